"""Replication between two real stores: equal bytes, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from failback.broker.ha.config import HaConfig
from failback.broker.ha.service import HaService
from failback.broker.store.config import StoreConfig
from failback.broker.store.message_store import MessageStore
from failback.protocol.message import pack_host
from tests.integration.ha.cutting_proxy import cutting_proxy
from tests.support.brokers.ha_pair import FAST, running, slave_of
from tests.support.common.polling import until

FILE = 1 << 16
HA = replace(FAST, mapped_file_bytes=FILE, heartbeat_ms=1_000)
HOST = pack_host("127.0.0.2", 10911)
QUEUES = 4


@contextmanager
def opened(root: Path, role: str = "ASYNC_MASTER") -> Iterator[MessageStore]:
    store = MessageStore(
        StoreConfig(
            root=root,
            store_host=HOST,
            broker_role=role,
            mapped_file_bytes=FILE,
            consume_queue_file_bytes=20 * 100,
        )
    )
    store.load()
    try:
        yield store
    finally:
        store.close()


def put(store: MessageStore, numbers: range, body_bytes: int = 500) -> None:
    """Append one message per number, one commit for each ten of them."""
    for number in numbers:
        store.append(
            topic=b"TopicTest",
            queue_id=number % QUEUES,
            flag=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            born_host=HOST,
            reconsume_times=0,
            body=str(number).encode().ljust(body_bytes),
            properties=b"KEYS\x01k%d\x02TAGS\x01TagA" % number,
            tags_code=2598919,
        )
        if number % 10 == 9:
            store.commit_pending()
    store.commit_pending()


def log_bytes(store: MessageStore, start: int = 0) -> bytes:
    pieces = []
    while view := store.read_raw(start, FILE):
        pieces.append(bytes(view))
        start += len(view)
    return b"".join(pieces)


def messages(store: MessageStore) -> list[tuple[int, int, bytes]]:
    """Return queue id, queue offset and record of everything that can be consumed."""
    found: list[tuple[int, int, bytes]] = []
    for queue_id in range(QUEUES):
        offset = store.min_queue_offset("TopicTest", queue_id)
        while offset < store.max_queue_offset("TopicTest", queue_id):
            result = store.get_message("g", "TopicTest", queue_id, offset, 32, None)
            data = b"".join(result.chunks)
            found.append((queue_id, offset, data))
            offset = result.next_offset
    return found


async def replicated(master: MessageStore, slave: MessageStore) -> None:
    await until(
        lambda: slave.max_physical_offset == master.max_physical_offset,
        "the slave to hold the master's log",
        seconds=30,
    )
    assert slave.dispatch_behind_bytes() == 0


@contextmanager
def pair(tmp_path: Path) -> Iterator[tuple[MessageStore, MessageStore]]:
    with opened(tmp_path / "master") as master, opened(tmp_path / "slave", "SLAVE") as slave:
        yield master, slave


@pytest.mark.sample
async def test_a_slave_that_was_there_from_the_start_has_every_byte(tmp_path: Path) -> None:
    with pair(tmp_path) as (master, slave):
        async with running(master, HA) as source, running(slave, slave_of(source, HA)):
            for start in range(0, 600, 50):
                put(master, range(start, start + 50))
                await asyncio.sleep(0)
            await replicated(master, slave)
            assert len(list((tmp_path / "slave" / "commitlog").iterdir())) > 5
            assert log_bytes(slave) == log_bytes(master)
            assert messages(slave) == messages(master)
            assert messages(slave)


async def test_what_was_written_before_the_slave_came_follows(tmp_path: Path) -> None:
    with pair(tmp_path) as (master, slave):
        put(master, range(100))
        async with running(master, HA) as source, running(slave, slave_of(source, HA)):
            await replicated(master, slave)
            put(master, range(100, 200))
            await replicated(master, slave)
            assert log_bytes(slave) == log_bytes(master)


async def test_a_fresh_slave_gets_the_masters_last_file_only(tmp_path: Path) -> None:
    with pair(tmp_path) as (master, slave):
        put(master, range(300))
        async with running(master, HA) as source, running(slave, slave_of(source, HA)):
            await replicated(master, slave)
            start = master.max_physical_offset - master.max_physical_offset % FILE
            assert slave.min_physical_offset == start > 0
            assert log_bytes(slave, start) == log_bytes(master, start)
            held = messages(slave)
            assert 0 < len(held) < len(messages(master))
            assert slave.min_queue_offset("TopicTest", 0) > 0
            assert set(b"".join(data for *_, data in held)) <= set(log_bytes(master))
            put(master, range(300, 600))
            await replicated(master, slave)
            assert log_bytes(slave, start) == log_bytes(master, start)


async def test_a_first_file_without_data_does_not_keep_a_slave_from_a_later_one(
    tmp_path: Path,
) -> None:
    """A process killed between making the file and filling it leaves this."""
    with opened(tmp_path / "master") as master:
        put(master, range(300))
        (tmp_path / "slave" / "commitlog").mkdir(parents=True)
        (tmp_path / "slave" / "commitlog" / f"{0:020d}").write_bytes(bytes(FILE))
        with opened(tmp_path / "slave", "SLAVE") as slave:
            assert slave.max_physical_offset == 0
            async with running(master, HA) as source, running(slave, slave_of(source, HA)):
                await replicated(master, slave)
                start = master.max_physical_offset - master.max_physical_offset % FILE
                assert slave.min_physical_offset == start > 0
                assert log_bytes(slave, start) == log_bytes(master, start)


async def test_a_slave_that_was_away_too_long_is_left_where_it_is(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master:
        with opened(tmp_path / "slave", "SLAVE") as slave:
            put(master, range(50))
            async with running(master, HA) as source, running(slave, slave_of(source, HA)):
                await replicated(master, slave)
        put(master, range(50, 600))
    oldest = sorted((tmp_path / "master" / "commitlog").iterdir())[:2]
    for path in oldest:  # what expiry does
        path.unlink()
    quick = replace(HA, heartbeat_ms=50)
    with opened(tmp_path / "master") as master, opened(tmp_path / "slave", "SLAVE") as slave:
        held = slave.max_physical_offset
        assert held < master.min_physical_offset
        async with running(master, quick) as source, running(slave, slave_of(source, quick)):
            await until(lambda: source.push2slave_max_offset == held, "its report")
            (connection,) = source.connections
            seen = connection.transfer_offset
            put(master, range(600, 700))
            await until(lambda: slave.dispatch_behind_bytes() == 0, "nothing to dispatch")
            assert (connection.transfer_offset, seen) == (held, held)
            assert slave.max_physical_offset == held
            assert source.is_slave_ok(held + 1)
            assert not source.is_slave_ok(held + source.config.fallbehind_max)


async def test_a_guarded_pair_replicates_as_any_other(tmp_path: Path) -> None:
    guarded = replace(HA, is_guarded=True, reconnect_ms=1)
    with pair(tmp_path) as (master, slave):
        put(master, range(60))
        async with (
            running(master, guarded) as source,
            cutting_proxy(source.bound_port or 0, budgets(5, 90_000, 20)) as proxy,
            running(slave, slave_of(proxy.address, guarded)) as follower,
        ):
            # An empty slave begins with the last file: let it begin while that is the first.
            await until(lambda: slave.max_physical_offset, "the slave to begin")
            for start in itertools.count(60, 20):
                put(master, range(start, start + 20))
                await asyncio.sleep(0.005)
                if proxy.cuts >= 10:
                    break
            await replicated(master, slave)
            assert log_bytes(slave) == log_bytes(master)
            assert follower.client.refusal is None
            assert source.refused_reports == 0


def budgets(seed: int, most: int, count: int) -> Iterator[int]:
    chooser = random.Random(seed)
    return iter([chooser.randint(1, most) for _ in range(count)])


@pytest.mark.parametrize("seed", range(4))
async def test_connections_cut_anywhere_lose_and_repeat_nothing(tmp_path: Path, seed: int) -> None:
    most = [13, 700, 40_000, 150_000][seed]  # within a header, a record, a frame, several
    with pair(tmp_path) as (master, slave):
        put(master, range(60))
        ha = replace(HA, reconnect_ms=1, heartbeat_ms=100)
        async with (
            running(master, ha) as source,
            cutting_proxy(source.bound_port or 0, budgets(seed, most, 60)) as proxy,
            running(slave, slave_of(proxy.address, ha)),
        ):
            # An empty slave begins with the last file: let it begin while that is the first.
            await until(lambda: slave.max_physical_offset, "the slave to begin")
            for start in itertools.count(60, 20):
                put(master, range(start, start + 20))
                await asyncio.sleep(0.005)
                if proxy.cuts >= 25:
                    break
            await replicated(master, slave)
            assert log_bytes(slave) == log_bytes(master)
            assert messages(slave) == messages(master)


async def test_a_cut_at_each_byte_of_a_small_log_is_survived(tmp_path: Path) -> None:
    with pair(tmp_path) as (master, slave):
        put(master, range(2), body_bytes=30)
        size = master.max_physical_offset
        ha = replace(HA, reconnect_ms=1)
        every_byte = iter([1 + n % 13 for n in range(12 + size)])
        async with (
            running(master, ha) as source,
            cutting_proxy(source.bound_port or 0, every_byte) as proxy,
            running(slave, slave_of(proxy.address, ha)),
        ):
            await replicated(master, slave)
            assert proxy.cuts > size // 2  # each connection brought one new byte at most
            assert log_bytes(slave) == log_bytes(master)
            assert messages(slave) == messages(master)


async def test_a_slave_goes_on_where_a_clean_stop_left_it(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master:
        async with running(master, HA) as source:
            for numbers in (range(40), range(40, 200), range(200, 400)):
                with opened(tmp_path / "slave", "SLAVE") as slave:
                    async with running(slave, slave_of(source, HA)):
                        put(master, numbers)
                        await replicated(master, slave)
                        assert log_bytes(slave) == log_bytes(master)
                        assert messages(slave) == messages(master)


async def test_a_slave_killed_in_the_middle_of_a_record_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path / "master") as master:
        put(master, range(60))
        async with running(master, HA) as source:
            with opened(tmp_path / "slave", "SLAVE") as slave:
                cut_after = iter([12 + 32_768 + 12 + 777])  # inside a record of the second frame
                async with (
                    cutting_proxy(source.bound_port or 0, cut_after) as proxy,
                    running(slave, replace(slave_of(proxy.address, HA), reconnect_ms=60_000)),
                ):
                    await until(lambda: slave.max_physical_offset >= 33_000, "a part of the log")
                    await until(lambda: proxy.cuts, "the cut")
                    # What a SIGKILL leaves: the files as they are, `abort` among them.
                    shutil.copytree(tmp_path / "slave", tmp_path / "killed")
            with opened(tmp_path / "killed", "SLAVE") as slave:
                async with running(slave, slave_of(source, HA)):
                    put(master, range(60, 200))
                    await replicated(master, slave)
                    assert log_bytes(slave) == log_bytes(master)
                    assert messages(slave) == messages(master)


async def test_a_restarted_master_finds_its_slave_again(tmp_path: Path) -> None:
    with opened(tmp_path / "slave", "SLAVE") as slave:
        port: int | None = 0
        slave_service: HaService | None = None
        shutdown, task = asyncio.Event(), None
        for numbers in (range(40), range(40, 200)):
            with opened(tmp_path / "master") as master:
                async with running(master, replace(HA, listen_port=port or 0)) as source:
                    assert source.push2slave_max_offset == 0
                    port = source.bound_port
                    if slave_service is None:
                        slave_service = HaService(slave, slave_of(source, HA))
                        task = asyncio.create_task(slave_service.run(shutdown))
                    put(master, numbers)
                    await replicated(master, slave)
                    await until(
                        lambda: source.push2slave_max_offset == master.max_physical_offset,
                        "the acknowledgement",
                    )
                    assert log_bytes(slave) == log_bytes(master)
        shutdown.set()
        if task is not None:
            await task


async def test_an_acknowledgement_means_that_the_slave_holds_the_bytes(tmp_path: Path) -> None:
    with pair(tmp_path) as (master, slave):
        sync = replace(HA, role="SYNC_MASTER")
        async with running(master, sync) as source, running(slave, slave_of(source, HA)):
            seen: list[tuple[int, int]] = []
            source.on_ack = lambda offset: seen.append((offset, slave.max_physical_offset))
            put(master, range(200))
            await replicated(master, slave)
            await until(lambda: seen[-1][0] == master.max_physical_offset, "the last one")
            assert all(acknowledged <= held for acknowledged, held in seen)


async def test_a_master_whose_file_size_differs_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path / "master") as master, opened(tmp_path / "slave", "SLAVE") as slave:
        put(master, range(300))
        other = replace(HA, mapped_file_bytes=FILE // 4)
        async with (
            running(master, HA) as source,
            running(slave, slave_of(source, other)),
        ):
            await until(lambda: "both brokers need one file size" in caplog.text, "the refusal")
            assert slave.max_physical_offset == 0


def test_defaults_are_those_of_4_9() -> None:
    made = HaConfig("SLAVE", "127.0.0.1", 1, FILE)
    assert (made.heartbeat_ms, made.housekeeping_ms, made.reconnect_ms) == (5000, 20000, 5000)
    assert (made.batch_bytes, made.fallbehind_max) == (32768, 1 << 28)
