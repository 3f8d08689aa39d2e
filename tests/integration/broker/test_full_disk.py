"""A pair whose disks are 48 MiB each and get full under load, and a log file that somebody cuts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from failback.broker.native import kernels
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import ResponseCode
from failback.protocol.message import decode_records
from tests.support.brokers.full_disk import Peer, SmallDisk, small_disk
from tests.support.brokers.replica_lab import eventually
from tests.support.common.polling import until
from tests.support.java.apache import Broker
from tests.support.net.ports import free_port_block

pytestmark = pytest.mark.foreign

LOG_FILE = 4 << 20


class Pair:
    """A master and its slave, each with its store on a disk of its own."""

    def __init__(self, folder: Path, disks: ExitStack) -> None:
        port = free_port_block(10) + 2
        self.disks: list[SmallDisk] = []
        self.brokers: list[Broker] = []
        for number, role in enumerate(("ASYNC_MASTER", "SLAVE")):
            disk = disks.enter_context(small_disk(folder / str(number) / "disk"))
            settings = {
                "storePathRootDir": disk.path / "store",
                "storePathCommitLog": disk.path / "store" / "commitlog",
                "mappedFileSizeCommitLog": LOG_FILE,
                "mappedFileSizeConsumeQueue": 60_000,
                "maxHashSlotNum": 1000,
                "maxIndexNum": 4000,
                "haMasterAddress": f"127.0.0.1:{port + 1}",
            }
            broker = Broker(
                *("failback", folder / str(number), ""),
                broker_id=number,
                role=role,
                port=port + 5 * number,
                settings=settings,
            )
            self.disks.append(disk)
            self.brokers.append(broker)
            broker.start()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as disks:
        made = Pair(tmp_path, disks)
        try:
            yield made
        finally:
            for broker in made.brokers:
                broker.process.dispose()


@asynccontextmanager
async def peer_of(broker: Broker) -> AsyncIterator[tuple[Peer, AdminClient]]:
    async with RemotingClient() as client, AdminClient([]) as admin:
        yield Peer(client, broker.address), admin


async def copied(peer: Peer, admin: AdminClient, slave: Broker) -> None:
    """Return when the slave's queue has every message that was acknowledged."""
    await eventually(
        lambda: admin.max_offset(slave.address, "TopicTest", 0),
        lambda end: end == len(peer.acknowledged),
        f"the slave has {len(peer.acknowledged)} messages",
        seconds=30,
    )


async def test_a_full_master_refuses_sends_and_does_everything_else(pair: Pair) -> None:
    (master, slave), (disk, _) = pair.brokers, pair.disks
    async with peer_of(master) as (peer, admin):
        for _ in range(20):
            assert (await peer.send()).code == 0
        disk.fill(left_bytes=1 << 20)
        for _ in range(2):  # and what is refused is refused again, with the same reason
            refusal = await peer.send_until_refused()
            assert not isinstance(refusal, Exception), refusal
            assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "disk" in (refusal.remark or "")
            disk.fill(left_bytes=0)
        assert await peer.pull_all() == peer.acknowledged
        assert await peer.commit(admin, 7)
        await copied(peer, admin, slave)
        assert master.process.alive
        disk.make_room()
        assert await peer.seconds_until_taken(10) < 10
        assert await peer.pull_all() == peer.acknowledged
        await copied(peer, admin, slave)
        assert master.stop() == 0
        assert "Traceback" not in master.process.errors()
        master.start()
    async with peer_of(master) as (again, admin):
        assert await again.pull_all() == peer.acknowledged
        assert await again.commit(admin, 8)


async def test_what_many_senders_were_told_holds(pair: Pair) -> None:
    """Eight senders on four queues, while the disk gets full, is full, and is made empty again."""
    (master, slave), (disk, _) = pair.brokers, pair.disks
    stop, taken = asyncio.Event(), [list[bytes]() for _ in range(4)]
    refused = 0

    async def send_on(number: int, peer: Peer) -> None:
        nonlocal refused
        while not stop.is_set():
            answer = await peer.send(20_000, timeout_ms=10_000, queue_id=number % 4)
            if answer.code:
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                refused += 1
                await asyncio.sleep(0.01)
            else:
                taken[number % 4].append(peer.acknowledged[-1] + b"%d" % number)

    async with peer_of(master) as (reader, admin), AsyncExitStack() as peers:
        senders = [(await peers.enter_async_context(peer_of(master)))[0] for _ in range(8)]
        tasks = [asyncio.create_task(send_on(number, peer)) for number, peer in enumerate(senders)]
        await until(lambda: all(len(each) > 10 for each in taken), "messages are taken")
        disk.fill(left_bytes=1 << 20)
        await until(lambda: refused > 50, "messages are refused")
        assert await reader.commit(admin, 3)
        assert (await reader.pull(0)).code == 0
        before = sum(map(len, taken))
        disk.make_room()
        await until(lambda: sum(map(len, taken)) > before + 40, "messages are taken again")
        stop.set()
        await asyncio.gather(*tasks)
        for queue_id, bodies in enumerate(taken):
            assert await admin.max_offset(master.address, "TopicTest", queue_id) == len(bodies)
            found = await reader.pull_all(queue_id)
            assert sorted(found) == sorted(body[:8] for body in bodies)
            await eventually(
                partial(admin.max_offset, slave.address, "TopicTest", queue_id),
                len(bodies).__eq__,
                "the slave has all",
            )


async def test_a_full_slave_stops_copying_and_its_master_does_not_care(pair: Pair) -> None:
    (master, slave), (_, disk) = pair.brokers, pair.disks
    async with peer_of(master) as (peer, admin):
        assert (await peer.send()).code == 0
        await copied(peer, admin, slave)
        disk.fill(left_bytes=0)
        for _ in range(300):
            assert (await peer.send()).code == 0
        assert await peer.pull_all() == peer.acknowledged
        await until(lambda: "no room" in slave.process.errors(), "a slave without room")
        assert slave.process.alive
        assert await admin.max_offset(slave.address, "TopicTest", 0) < len(peer.acknowledged)
        disk.make_room()
        await copied(peer, admin, slave)


@pytest.mark.parametrize("pure", ["0", "1"], ids=["kernels", "pure"])
async def test_a_broker_starts_on_a_full_disk(
    pair: Pair, pure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mapping of a file on a full tmpfs can't show its holes; without kernels that is the end."""
    monkeypatch.setenv("FAILBACK_PURE", pure)
    master, disk = pair.brokers[0], pair.disks[0]
    async with peer_of(master) as (peer, _admin):
        for _ in range(5):
            assert (await peer.send()).code == 0
        master.kill()
        disk.fill(left_bytes=0)
        master.start()
    async with peer_of(master) as (again, _admin):
        assert await again.pull_all() == peer.acknowledged
        refusal = await again.send_until_refused()
        assert getattr(refusal, "code", None) == ResponseCode.SERVICE_NOT_AVAILABLE
        disk.make_room()
        assert await again.seconds_until_taken(10) < 10


# --- a file that can't be read ----------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker("failback", tmp_path, "", settings={"mappedFileSizeCommitLog": LOG_FILE})
    made.start()
    try:
        yield made
    finally:
        made.process.dispose()


@pytest.mark.skipif(kernels is None, reason="without kernels a bad page ends the process")
@pytest.mark.parametrize("part", ["commitlog", "consumequeue/TopicTest/0"])
@pytest.mark.parametrize("left_bytes", [0, 4096, 5000, 100_000])
async def test_a_file_that_somebody_cuts_costs_what_was_in_it(
    broker: Broker, part: str, left_bytes: int
) -> None:
    async with peer_of(broker) as (peer, admin):
        for number in range(30):
            assert (await peer.send(8000, queue_id=number % 2)).code == 0
        assert await peer.pull_all() == peer.acknowledged[0::2]
        (first, *_) = sorted((broker.store / part).iterdir())
        os.truncate(first, left_bytes)
        refused = 0
        for _ in range(2):
            for offset in (0, 14):
                answer = await peer.pull(offset)
                if answer.code == ResponseCode.SYSTEM_ERROR:
                    refused += 1
                    assert first.name in (answer.remark or "")
                else:
                    found = [message.body[:8] for message in decode_records(answer.body)]
                    assert found == peer.acknowledged[2 * offset :: 2][: len(found)]
                    assert found
        if part == "commitlog" and left_bytes == 100_000:  # what is there is handed out
            whole = [(await peer.pull(offset)).code for offset in range(7)]
            assert whole[:6] == [0] * 6
            assert whole[6] == ResponseCode.SYSTEM_ERROR
        assert broker.process.alive
        assert await peer.commit(admin, 3)
        if part != "commitlog":  # the other queue is whole
            assert (await peer.pull(0, queue_id=1)).code == 0
    assert refused >= (2 if part == "commitlog" else 4 if not left_bytes else 0)
    assert ("can't be read" in broker.process.errors()) == bool(refused)
