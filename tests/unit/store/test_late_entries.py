"""Queue entries wait in memory: nobody sees it, and nothing is lost by it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from failback.broker.store.log.results import ServiceNotAvailable
from failback.broker.store.message_store import MessageStore
from failback.protocol.errors import StoreError
from tests.support.common.polling import until
from tests.support.store.crashing_files import Change, CrashingFiles
from tests.support.store.store_kit import (
    assert_queues_agree_with_log,
    kill,
    open_store,
    put,
    put_all,
    queue_messages,
)

ROOT = Path("/s")
QUEUES = "consumequeue"
HOUR_MS = 3_600_000
QUIET: dict[str, Any] = {
    "flush_interval_ms": HOUR_MS,
    "flush_thorough_interval_ms": HOUR_MS,
    "consume_queue_flush_interval_ms": HOUR_MS,
}


class Running:
    """A store that runs; entries wait in it until they are read or their time has come."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._shutdown = asyncio.Event()

    async def __aenter__(self) -> MessageStore:
        self.task = asyncio.create_task(self._store.run(self._shutdown))
        await asyncio.sleep(0)
        return self._store

    async def __aexit__(self, *_: object) -> None:
        self._shutdown.set()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_one_write_for_the_entries_of_several_commits() -> None:
    files = CrashingFiles()
    async with Running(open_store(ROOT, files, **QUIET)) as store:
        put_all(store, b"a", b"b", b"c")
        assert files.writes(QUEUES) == []
        await until(lambda: len(files.writes(QUEUES)) == 1, "entries are written")
        assert len(files.writes(QUEUES)[0].data) == 60
        assert_queues_agree_with_log(store)


async def test_who_reads_a_queue_gets_what_is_committed_and_no_more() -> None:
    files = CrashingFiles()
    async with Running(open_store(ROOT, files, **QUIET)) as store:
        put_all(store, b"a", b"other", queue_id=0)
        put_all(store, b"elsewhere", queue_id=1)
        put(store, b"not committed")
        assert store.max_queue_offset("TopicTest", 0) == 2
        assert [message.body for message in queue_messages(store, "TopicTest", 0)] == [
            b"a",
            b"other",
        ]
        assert len(files.writes(QUEUES)) == 1  # the other queue waits on
        store.commit_pending()
        assert store.max_queue_offset("TopicTest", 0) == 3


async def test_a_kill_before_entries_are_written_loses_none() -> None:
    files = CrashingFiles()
    async with Running(open_store(ROOT, files, **QUIET)) as store:
        put_all(store, b"a", b"b", queue_id=0)
        assert store.max_queue_offset("TopicTest", 0) == 2
        put_all(store, b"c", queue_id=1)
        put_all(store, b"d", queue_id=0)
        put_all(store, b"e", queue_id=2)
        assert store.max_queue_offset("TopicTest", 2) == 1
        crashed = files.after_kill(len(files.journal))
    again = open_store(ROOT, crashed)
    assert [again.max_queue_offset("TopicTest", queue) for queue in range(3)] == [3, 1, 1]
    assert_queues_agree_with_log(again)


async def test_a_clean_stop_writes_them() -> None:
    files = CrashingFiles()
    running = Running(open_store(ROOT, files, **QUIET))
    async with running as store:
        put_all(store, b"a", b"b")
        assert files.writes(QUEUES) == []
    store.close()
    assert len(files.writes(QUEUES)) == 1
    assert open_store(ROOT, files).max_queue_offset("TopicTest", 0) == 2


async def test_a_queue_that_gets_many_is_written_at_once() -> None:
    files = CrashingFiles()
    settings: dict[str, Any] = {"mapped_file_bytes": 1 << 20, "consume_queue_file_bytes": 1 << 20}
    async with Running(open_store(ROOT, files, **settings, **QUIET)) as store:
        for _ in range(1024):
            put(store, b"")
        store.commit_pending()
        assert [len(write.data) for write in files.writes(QUEUES)] == [20 * 1024]


async def test_entries_that_a_broken_disk_refuses_stop_the_store() -> None:
    files = CrashingFiles()
    running = Running(open_store(ROOT, files, **QUIET))

    def refuse(change: Change) -> None:
        if change.kind == "write" and QUEUES in str(change.path):
            raise OSError(5, "Input/output error", str(change.path))

    async with running as store:
        put_all(store, b"first")
        assert store.max_queue_offset("TopicTest", 0) == 1
        files.fail = refuse
        put_all(store, b"second")
        with pytest.raises(StoreError, match=QUEUES):
            await running.task
        with pytest.raises(ServiceNotAvailable, match="Input/output error"):
            put(store, b"third")
        assert store.max_queue_offset("TopicTest", 0) == 1
    kill(store)
    files.fail = lambda change: None
    again = open_store(ROOT, files)
    assert again.max_queue_offset("TopicTest", 0) == 2
    assert_queues_agree_with_log(again)


async def test_of_a_run_that_the_log_refuses_earlier_entries_stay() -> None:
    files = CrashingFiles()
    async with Running(open_store(ROOT, files, **QUIET)) as store:
        put_all(store, b"first")
        put(store, b"second")

        def refuse(change: Change) -> None:
            raise OSError(5, "Input/output error")

        files.fail = refuse
        with pytest.raises(StoreError):
            store.commit_pending()
        files.fail = lambda change: None
        assert store.max_queue_offset("TopicTest", 0) == 1


async def test_a_slave_dispatches_what_several_reads_brought_at_once() -> None:
    master = open_store(ROOT, CrashingFiles())
    put_all(master, b"a", b"b", b"c", b"d")
    log = bytes(master.read_raw(0, 1 << 20))
    files = CrashingFiles()
    async with Running(open_store(ROOT, files, broker_role="SLAVE", **QUIET)) as slave:
        for at in range(0, len(log), 70):
            slave.append_raw(at, log[at : at + 70])
        assert slave.max_physical_offset == len(log)
        assert files.writes(QUEUES) == []
        assert slave.dispatch_behind_bytes() == 0
        assert slave.max_queue_offset("TopicTest", 0) == 4
        assert len(files.writes(QUEUES)) == 1
        assert_queues_agree_with_log(slave)


async def test_a_slave_dispatches_without_being_asked() -> None:
    master = open_store(ROOT, CrashingFiles())
    put_all(master, b"a", b"b")
    files = CrashingFiles()
    async with Running(open_store(ROOT, files, broker_role="SLAVE", **QUIET)) as slave:
        slave.append_raw(0, bytes(master.read_raw(0, 1 << 20)))
        await until(lambda: len(files.writes(QUEUES)) == 1, "entries are written")
        assert_queues_agree_with_log(slave)
