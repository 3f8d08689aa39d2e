"""Running broker processes are sent nonsense over loopback, and serve a client all the while."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from failback.broker.ha.stream import FRAME_HEADER, REPORT
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.frames import MAX_FRAME_BYTES, PREFIX
from failback.protocol.message import decode_records
from tests.faults.fuzz.frame_corpus import corpus
from tests.faults.fuzz.fuzz_lab import nonsense
from tests.faults.fuzz.mutation import mutated, pieces
from tests.support.brokers.broker_lab import pull_header, send_header
from tests.support.common.polling import SCALE, until
from tests.support.java.apache import Broker
from tests.support.net.async_server import Served

MOST_GROWTH_BYTES = 64 << 20
LOG_BYTES = 1 << 20
PEERS = 8


def anonymous_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"pid {pid} shows no RssAnon")


def open_sockets(pid: int) -> int:
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += os.readlink(entry).startswith("socket:")
    return count


@asynccontextmanager
async def running_broker(folder: Path, **settings: object) -> AsyncIterator[Broker]:
    broker = Broker("failback", folder, "", settings=settings)
    broker.settings["mappedFileSizeCommitLog"] = LOG_BYTES
    broker.role = str(settings.get("brokerRole", broker.role))
    await asyncio.to_thread(broker.start)
    try:
        yield broker
        assert broker.process.alive
        assert await asyncio.to_thread(broker.stop) == 0
        assert "Traceback" not in broker.process.errors()
    finally:
        broker.process.dispose()


class HonestClient:
    """Sends messages that nobody else's topic has, and finds all of them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._client = RemotingClient()
        self._bodies: list[bytes] = []

    async def send(self) -> None:
        body = b"message %d" % len(self._bodies)
        header = send_header(topic="Honest")
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)
        answer = await self._client.invoke(self._broker.address, request, 30_000 * SCALE)
        assert answer.code == 0, answer
        self._bodies.append(body)

    async def close(self) -> None:
        """Check that everything is there."""
        found: list[bytes] = []
        while len(found) < len(self._bodies):
            header = pull_header(topic="Honest", queue_offset=len(found))
            request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
            answer = await self._client.invoke(self._broker.address, request, 30_000 * SCALE)
            assert answer.code == 0, answer
            found += [message.body for message in decode_records(answer.body)]
        assert found == self._bodies
        await self._client.close()


async def say(port: int, data: Sequence[bytes], outcomes: Counter[str]) -> None:
    """Connect, write ``data``, wait for the end of what the broker says to it, and leave."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in data:
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
        async with asyncio.timeout(30 * SCALE):
            answered = bool(await reader.read(1 << 16))
            while await reader.read(1 << 16):
                pass
        outcomes["answered" if answered else "closed"] += 1
    except OSError:  # reset, or gone before its end was said
        outcomes["closed"] += 1
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def fuzz_broker(folder: Path, random: Random, count: int) -> Counter[str]:
    """Send ``count`` wrong requests and reports to one broker, some at a time."""
    outcomes: Counter[str] = Counter()
    samples = corpus(map(int, RequestCode), random.randrange(1 << 30))
    reports = [b"".join(map(REPORT.pack, some)) for some in ((0,), (500,), (0, 10, 20))]
    async with running_broker(folder) as broker:
        honest = HonestClient(broker)
        await honest.send()
        pid = broker.process.pid
        memory, sockets = anonymous_bytes(pid), open_sockets(pid)
        for begin in range(0, count, 10 * PEERS):
            async with asyncio.TaskGroup() as peers:
                for _ in range(min(PEERS, -(-(count - begin) // 10))):
                    if random.random() < 0.2:
                        port, data = (
                            broker.port + 1,
                            [mutated(random.choice(reports), reports, random) for _ in range(10)],
                        )
                    else:
                        port = broker.port if random.random() < 0.9 else broker.port - 2
                        data = [nonsense(samples, random) for _ in range(10)]
                    cut = [piece for each in data for piece in pieces(each, random)]
                    peers.create_task(say(port, cut, outcomes))
            await honest.send()
        await honest.close()
        await until(lambda: open_sockets(pid) <= sockets, "the connections are closed", 60)
        assert anonymous_bytes(pid) - memory < MOST_GROWTH_BYTES
    return outcomes


class WrongMaster(Served):
    """Sends nonsense to a slave, ``count`` connections long and longer."""

    def __init__(self, random: Random, count: int) -> None:
        super().__init__()
        self.outcomes: Counter[str] = Counter()
        self.enough = asyncio.Event()
        self._random = random
        self._count = count

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        random = self._random
        try:
            (position,) = REPORT.unpack(await reader.readexactly(REPORT.size))
            body = random.randbytes(random.choice((0, 1, 100, 5000)))
            frame = FRAME_HEADER.pack(max(position, 0), len(body)) + body
            writer.write(mutated(frame * random.randint(1, 3), [frame], random))
            writer.write_eof()
            async with asyncio.timeout(30 * SCALE):
                while await reader.read(1 << 16):
                    pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.outcomes["connections"] += 1
            if self.outcomes["connections"] >= self._count:
                self.enough.set()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def fuzz_slave(folder: Path, random: Random, count: int) -> Counter[str]:
    """Be a wrong master to one slave for ``count`` connections."""
    master = WrongMaster(random, count)
    server = await asyncio.start_server(master.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    slave = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": f"127.0.0.1:{port}"}
    async with running_broker(folder, **slave, failbackTimeScale=0.005) as broker:
        pid = broker.process.pid
        memory = anonymous_bytes(pid)
        try:
            async with asyncio.timeout(300 * SCALE):
                await master.enough.wait()
        except TimeoutError as error:
            raise AssertionError(
                f"{master.outcomes} of {count}: {broker.process.errors()[-4000:]}"
            ) from error
        finally:
            server.close()
        async with RemotingClient() as client:
            request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await client.invoke(broker.address, request, 30_000 * SCALE)
            assert answer.code == 0, answer
        assert anonymous_bytes(pid) - memory < MOST_GROWTH_BYTES
    await master.close()
    return master.outcomes


@pytest.mark.sample
async def test_a_broker_goes_on_serving(tmp_path: Path) -> None:
    print("\n", await fuzz_broker(tmp_path, Random(1), 2_000))


@pytest.mark.soak
async def test_a_broker_goes_on_serving_for_long(tmp_path: Path) -> None:
    print("\n", await fuzz_broker(tmp_path, Random(2), 20_000))


async def test_a_slave_of_a_wrong_master_goes_on_serving(tmp_path: Path) -> None:
    print("\n", await fuzz_slave(tmp_path, Random(1), 100))


@pytest.mark.soak
async def test_a_slave_of_a_wrong_master_goes_on_serving_for_long(tmp_path: Path) -> None:
    print("\n", await fuzz_slave(tmp_path, Random(2), 2_000))


async def test_what_a_frame_claims_is_not_held_in_memory(tmp_path: Path) -> None:
    """64 peers announce 16 MiB each and send one KiB of it: a whole gigabyte is not there."""
    async with running_broker(tmp_path) as broker:
        pid = broker.process.pid
        before, sockets = anonymous_bytes(pid), open_sockets(pid)
        writers = []
        for claimed in [MAX_FRAME_BYTES - 4] * 64 + [MAX_FRAME_BYTES - 3, 2**31 - 1]:
            _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(PREFIX.pack(claimed, 500) + bytes(1024))
            writers.append(writer)
        # What is too long is closed before any of it is kept; the others wait for the rest.
        await until(lambda: open_sockets(pid) == sockets + 64, "64 connections are open", 60)
        honest = HonestClient(broker)
        await honest.send()
        await honest.close()
        assert anonymous_bytes(pid) - before < 16 << 20
        for writer in writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
