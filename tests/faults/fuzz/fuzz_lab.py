"""A broker in the hands of a peer that sends nonsense: what it may do and what it may not.

In process, with real stores, processors and replication, and imaginary connections. Whatever comes
in, nothing may be raised into the event loop, a connection is answered or closed, no more is held
in memory than was sent, and a well-behaved client is served afterwards.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from failback.broker.ha.client import _MasterConnection
from failback.broker.ha.config import HaConfig
from failback.broker.ha.connection import HaConnection
from failback.broker.ha.service import HaService
from failback.broker.ha.stream import FRAME_HEADER, REPORT
from failback.broker.store.message_store import MessageStore
from failback.protocol.command import RemotingCommand
from failback.protocol.frames import MAX_FRAME_BYTES, PREFIX, Frame, encode_frame
from tests.faults.fuzz.frame_corpus import FIELDS, corpus
from tests.faults.fuzz.mutation import mutated, pieces
from tests.support.brokers.broker_lab import BrokerLab, FakeTransport, LabClient, broker_lab
from tests.support.store.store_kit import make_store, put_all

FRAMES_PER_BROKER: Final = 5_000
"""A broker that makes topics on demand grows with every new name, as it has to."""
REQUESTS_PER_TURN: Final = 16
FILE_BYTES: Final = 1 << 16


def resident_bytes() -> int:
    """Return the anonymous memory of this process."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


class LoopErrors:
    """What was raised into the event loop: nothing, or the test fails."""

    def __init__(self) -> None:
        self.found: list[str] = []
        asyncio.get_running_loop().set_exception_handler(self._note)

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(f"{context.get('message')}: {context.get('exception')!r}")

    def assert_none(self) -> None:
        assert not self.found, self.found


# --- remoting -------------------------------------------------------------------------------


async def fuzz_frames(folder: Path, random: Random, count: int) -> Counter[str]:
    """Send ``count`` mutated requests to fresh brokers; return what became of them."""
    outcomes: Counter[str] = Counter()
    number = 0
    while count > 0:
        share = min(count, FRAMES_PER_BROKER)
        await _fuzz_one_broker(folder / f"broker-{number}", random, share, outcomes)
        count -= share
        number += 1
    return outcomes


async def _fuzz_one_broker(
    folder: Path, random: Random, count: int, outcomes: Counter[str]
) -> None:
    errors = LoopErrors()
    async with broker_lab(folder, defaultTopicQueueNums=4) as lab:
        samples = corpus(sorted(lab.controller.server._handlers), random.randrange(1 << 30))
        honest = lab.connect(("10.0.0.9", 9))
        stored = 0
        for begin in range(0, count, REQUESTS_PER_TURN):
            share = min(REQUESTS_PER_TURN, count - begin)
            await _send_nonsense(lab, samples, random, share, outcomes)
            if begin % 640 == 0:
                stored += 1
                assert (await honest.send(b"still here", topic="Honest")).code == 0
        await _let_go(lab, honest)
        honest = lab.connect(("10.0.0.9", 9))
        assert (await honest.send(b"the last", topic="Honest")).code == 0
        assert lab.controller.store.max_queue_offset("Honest", 0) == stored + 1
        assert lab.controller.phase.fatal is None
    errors.assert_none()


def nonsense(samples: Sequence[bytes], random: Random) -> bytes:
    """Return a request that is wrong: in a field, in header or body, or as a frame."""
    sample, kind = random.choice(samples), random.random()
    if kind < 0.1:
        return mutated(sample, samples, random)
    _, mark = PREFIX.unpack_from(sample)
    body_start = PREFIX.size + (mark & 0xFFFFFF)
    header, body = sample[PREFIX.size : body_start], sample[body_start:]
    if kind < 0.2:
        header = mutated(header, samples, random)
    elif body and kind < 0.5:
        body = mutated(body, samples, random)
    else:
        return _with_wrong_fields(Frame(mark >> 24, header, body), random)
    return encode_frame(mark >> 24, header, body)


def _with_wrong_fields(frame: Frame, random: Random) -> bytes:
    """Change some values of a request's header; its frame and its encoding are right."""
    request = RemotingCommand.from_frame(frame)
    fields = dict(request.ext_fields or {})
    for _ in range(random.choice((1, 1, 2, 4))):
        key = random.choice([*fields, *FIELDS])
        value = mutated(fields.get(key, "").encode(), [b"0", b"TopicTest"], random)
        if random.random() < 0.2:
            fields.pop(key, None)
        else:
            fields[key] = value.decode(errors="replace")
    request.ext_fields = fields
    if random.random() < 0.05:
        request.code = random.randrange(-(2**15), 2**15)
    if random.random() < 0.05:
        request.flag = random.randrange(4)
    return request.encode()


async def _send_nonsense(
    lab: BrokerLab, samples: Sequence[bytes], random: Random, count: int, outcomes: Counter[str]
) -> None:
    """Send ``count`` requests, on a new connection after each that was closed or not understood."""
    peer = _peer(lab, random)
    for _ in range(count):
        for piece in pieces(nonsense(samples, random), random):
            if not peer.connection.closed:
                peer.feed(piece)
        held = sum(map(len, peer.connection._chunks))
        assert held <= MAX_FRAME_BYTES
        if random.random() < 0.3:
            await peer.turn()
        if peer.connection.closed or held:
            outcomes["closed" if peer.connection.closed else "incomplete"] += 1
            await peer.turn()
            outcomes["answered"] += len(peer.received)
            peer.disconnect()
            peer = _peer(lab, random)
    await peer.turn()
    outcomes["answered"] += len(peer.received)
    peer.disconnect()


def _peer(lab: BrokerLab, random: Random) -> LabClient:
    port = random.randrange(1, 65536)
    return LabClient(lab.controller, ("10.0.0.2", port), fast=random.random() < 0.1)


async def _let_go(lab: BrokerLab, honest: LabClient) -> None:
    """Close every connection; nothing of them may stay."""
    honest.disconnect()
    for _ in range(5):
        await asyncio.sleep(0)
    for client in lab.clients:
        client.disconnect()
    for task in list(lab.controller.server._tasks):
        task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not lab.controller.server.connections
    assert not lab.controller.server._tasks


# --- replication ----------------------------------------------------------------------------


class FuzzTransport(FakeTransport):
    """Of a replication connection: counts what is written instead of keeping it."""

    def __init__(self, connection: Any) -> None:
        super().__init__(("10.0.0.2", 4711))
        self.written_bytes = 0
        self._socket = socket.socket()
        self._connection = connection
        connection.connection_made(self)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket if name == "socket" else super().get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written_bytes += len(data)

    def writelines(self, list_of_data: Any) -> None:
        self.written_bytes += sum(map(len, list_of_data))

    def end(self) -> None:
        self._connection.connection_lost(None)
        self._socket.close()


def ha_config(role: str, *, guarded: bool) -> HaConfig:
    return HaConfig(role, "127.0.0.1", 0, mapped_file_bytes=FILE_BYTES, is_guarded=guarded)


@asynccontextmanager
async def filled_store(folder: Path, role: str, messages: int) -> Any:
    store = make_store(folder, mapped_file_bytes=FILE_BYTES)
    store.load()
    put_all(store, *[bytes([number % 251]) * 500 for number in range(messages)])
    store.config.broker_role = role
    try:
        yield store
    finally:
        store.close()


async def fuzz_reports(folder: Path, random: Random, count: int) -> Counter[str]:
    """Send ``count`` mutated streams of reports to a master."""
    outcomes: Counter[str] = Counter()
    errors = LoopErrors()
    async with filled_store(folder, "ASYNC_MASTER", 300) as store:
        end = store.max_physical_offset
        samples = [
            b"".join(map(REPORT.pack, offsets))
            for offsets in ((0,), (end,), (end - 700, end - 100, end), (FILE_BYTES,), (1, 2, 3))
        ]
        for _ in range(count):
            service = HaService(store, ha_config("ASYNC_MASTER", guarded=random.random() < 0.5))
            connection = HaConnection(service)
            transport = FuzzTransport(connection)
            for piece in pieces(mutated(random.choice(samples), samples, random), random):
                if not transport.aborted:
                    connection.data_received(piece)
            assert len(connection._reports._rest) < REPORT.size
            assert transport.written_bytes <= 2 * (end + FILE_BYTES)
            outcomes["closed" if transport.aborted else "kept open"] += 1
            outcomes["log bytes sent"] += transport.written_bytes
            transport.end()
            assert service.connection_count == 0
            store._append_listeners.clear()
            await asyncio.sleep(0)  # the loop forgets cancelled timers
        assert store.max_physical_offset == end
    errors.assert_none()
    return outcomes


async def fuzz_ha_frames(folder: Path, random: Random, count: int) -> Counter[str]:
    """Send ``count`` mutated runs of a master's frames to slaves; a fresh slave for every few."""
    outcomes: Counter[str] = Counter()
    errors = LoopErrors()
    async with filled_store(folder / "master", "ASYNC_MASTER", 200) as master:
        number = 0
        while count > 0:
            share = min(count, 40)
            await _fuzz_one_slave(folder / f"slave-{number}", master, random, share, outcomes)
            count -= share
            number += 1
    errors.assert_none()
    return outcomes


def feed(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Bring ``data`` as reads of a socket would."""
    at = 0
    while at < len(data):
        buffer = memoryview(protocol.get_buffer(-1))
        part = data[at : at + len(buffer)]
        buffer[: len(part)] = part
        protocol.buffer_updated(len(part))
        at += len(part)


async def _fuzz_one_slave(
    folder: Path, master: MessageStore, random: Random, count: int, outcomes: Counter[str]
) -> None:
    async with filled_store(folder, "SLAVE", 0) as slave:
        for _ in range(count):
            connection = _MasterConnection(slave, ha_config("SLAVE", guarded=random.random() < 0.5))
            transport = FuzzTransport(connection)
            before = slave.max_physical_offset
            sent = _frames(master, before, random)
            data = mutated(sent, [sent], random) if random.random() < 0.9 else sent
            for piece in pieces(data, random):
                if not transport.aborted:
                    feed(connection, piece)
            after = slave.max_physical_offset
            start = before or max(slave.min_physical_offset, 0)  # an empty slave starts anywhere
            assert start <= after <= start + len(data)
            outcomes["closed" if transport.aborted else "kept open"] += 1
            outcomes["log bytes taken"] += after - start
            transport.end()
            await asyncio.sleep(0)
        assert slave.is_writable is False
        assert slave.flush() == slave.max_physical_offset


def _frames(master: MessageStore, position: int, random: Random) -> bytes:
    """Return what the master would send next, in up to four frames."""
    parts = []
    for _ in range(random.randint(1, 4)):
        body = bytes(master.read_raw(position, random.choice((1, 7, 200, 3000))))
        parts.append(FRAME_HEADER.pack(position, len(body)) + body)
        position += len(body)
    return b"".join(parts)
