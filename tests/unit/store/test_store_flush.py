"""Flushing: what is due when, and group commit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.store.log.commit_log import flush_is_due
from failback.broker.store.log.results import ServiceNotAvailable
from failback.broker.store.message_store import MessageStore
from failback.protocol.errors import StoreError
from tests.support.common.polling import until
from tests.support.store.crashing_files import Change, CrashingFiles
from tests.support.store.store_kit import Clock, open_store, put, put_all

ROOT = Path("/s")
HOUR_MS = 3_600_000
QUIET: dict[str, Any] = {
    "flush_interval_ms": HOUR_MS,
    "flush_thorough_interval_ms": HOUR_MS,
    "consume_queue_flush_interval_ms": HOUR_MS,
}


@pytest.mark.parametrize(
    ("flushed", "tail", "least_pages", "due"),
    [
        (0, 0, 0, False),
        (0, 1, 0, True),
        (100, 100, 0, False),
        (0, 4 * 4096 - 1, 4, False),
        (0, 4 * 4096, 4, True),
        (4095, 4 * 4096, 4, True),
        (4096, 5 * 4096 - 1, 4, False),
        ((1 << 20) - 10, (1 << 20) - 1, 4, False),
        ((1 << 20) - 10, 1 << 20, 4, True),  # its file is full
    ],
)
def test_a_flush_is_due(flushed: int, tail: int, least_pages: int, due: bool) -> None:
    assert flush_is_due(flushed, tail, 1 << 20, least_pages) is due


@given(flushed=st.integers(0, 1 << 21), grown=st.integers(0, 1 << 16))
def test_a_thorough_flush_is_due_whenever_anything_is_dirty(flushed: int, grown: int) -> None:
    assert flush_is_due(flushed, flushed + grown, 1 << 20, 0) is (grown > 0)


class SlowDisk:
    """Holds the syncs of the flush threads until told, and counts them."""

    def __init__(self, files: CrashingFiles, *, held: bool = False) -> None:
        self.syncs = 0
        self.error: OSError | None = None
        self.go = threading.Event()
        if not held:
            self.go.set()
        files.fail = self

    def __call__(self, change: Change) -> None:
        if threading.current_thread() is threading.main_thread():
            return  # a new file, synced by its creation
        if change.kind == "sync" and "commitlog" in str(change.path):
            self.syncs += 1
            assert self.go.wait(30)
            if self.error is not None:
                raise self.error


@asynccontextmanager
async def running(store: MessageStore) -> AsyncIterator[asyncio.Event]:
    shutdown = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.run(shutdown))
        await asyncio.sleep(0)
        try:
            yield shutdown
        finally:
            shutdown.set()


def unflushed(store: MessageStore) -> int:
    return store.max_physical_offset - store.flushed_offset


async def test_sixty_four_waiters_share_one_sync() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, flush_disk_type="SYNC_FLUSH", **QUIET)
    put_all(store, b"x")
    store.flush()
    disk, done = SlowDisk(files), list[bool]()
    async with running(store):
        places = [put(store, b"x") for _ in range(64)]
        store.commit_pending()
        files_of_run = {place.physical_offset // 1024 for place in places}
        for place in places:
            store.request_flush(place.end_offset, done.append)
        await until(lambda: len(done) == 64, "all waiters answered")
    assert done == [True] * 64
    assert disk.syncs == len(files_of_run)  # the run lies in that many files; one sync of each
    assert unflushed(store) == 0


async def test_who_comes_during_a_sync_is_answered_by_the_next() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, flush_disk_type="SYNC_FLUSH", **QUIET)
    (first,) = put_all(store, b"first")
    disk, told = SlowDisk(files, held=True), list[str]()
    async with running(store):
        store.request_flush(first.end_offset, lambda ok: told.append(f"first {ok}"))
        await until(lambda: disk.syncs == 1, "the first sync began")
        (second,) = put_all(store, b"second")
        store.request_flush(second.end_offset, lambda ok: told.append(f"second {ok}"))
        disk.go.set()
        await until(lambda: len(told) == 2, "both waiters answered")
    assert told == ["first True", "second True"]
    assert disk.syncs == 2


async def test_what_is_flushed_already_needs_no_waiting() -> None:
    store = open_store(ROOT, CrashingFiles(), **QUIET)
    (place,) = put_all(store, b"x")
    store.flush()
    done: list[bool] = []
    store.request_flush(place.end_offset, done.append)
    assert done == [True]


async def test_a_request_made_before_the_start_is_answered_after_it() -> None:
    store = open_store(ROOT, CrashingFiles(), **QUIET)
    (place,) = put_all(store, b"x")
    done: list[bool] = []
    store.request_flush(place.end_offset, done.append)
    assert done == []
    async with running(store):
        await until(lambda: done, "the waiter answered")
    assert done == [True]


async def test_a_sync_that_takes_too_long_is_told_but_goes_on() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, sync_flush_timeout_ms=30, **QUIET)
    (place,) = put_all(store, b"x")
    disk, done = SlowDisk(files, held=True), list[bool]()
    async with running(store):
        store.request_flush(place.end_offset, done.append)
        await until(lambda: done, "the waiter gave up")
        assert done == [False]
        disk.go.set()
        await until(lambda: unflushed(store) == 0, "the sync ended")
    assert done == [False]


async def test_who_waits_at_the_stop_is_answered_by_a_last_sync() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, **QUIET)
    disk, done = SlowDisk(files, held=True), list[bool]()
    async with running(store) as shutdown:
        for _ in range(2):
            (place,) = put_all(store, b"x")
            store.request_flush(place.end_offset, done.append)
            await until(lambda: disk.syncs == 1, "a sync began")
        shutdown.set()
        disk.go.set()
    assert done == [True, True]
    assert unflushed(store) == 0


async def test_a_failed_sync_stops_the_store_and_answers_false() -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, **QUIET)
    (place,) = put_all(store, b"x")
    disk, done = SlowDisk(files), list[bool]()
    disk.error = OSError(5, "Input/output error")
    store.request_flush(place.end_offset, done.append)
    with pytest.raises(StoreError, match="Input/output error"):
        await store.run(asyncio.Event())
    assert done == [False]
    disk.error = None
    # A second sync might succeed without the lost pages: nothing is promised any more.
    store.request_flush(place.end_offset, done.append)
    assert done == [False, False]
    with pytest.raises(ServiceNotAvailable):
        put(store)
    store.close()
    assert ROOT / "abort" in files.content
    assert disk.syncs == 1


async def test_async_flush_syncs_by_pages_and_thoroughly() -> None:
    files = CrashingFiles()
    store = open_store(
        ROOT,
        files,
        flush_interval_ms=1,
        flush_thorough_interval_ms=HOUR_MS,
        mapped_file_bytes=65536,
    )
    disk = SlowDisk(files)
    async with running(store):
        put_all(store, b"little")
        await asyncio.sleep(0.02)
        assert disk.syncs == 0
        put_all(store, bytes(4 * 4096))
        await until(lambda: unflushed(store) == 0, "four dirty pages were flushed")
        store.config.flush_thorough_interval_ms = 1  # from the next thorough flush on
    store.close()

    store = open_store(
        ROOT, files, flush_interval_ms=1, flush_thorough_interval_ms=5, mapped_file_bytes=65536
    )
    async with running(store):
        put_all(store, b"little")
        await until(lambda: unflushed(store) == 0, "a little was flushed by the thorough one")


async def test_an_untimed_flush_does_not_wait_for_its_interval() -> None:
    quiet = QUIET | {"flush_timed": False, "mapped_file_bytes": 65536}
    store = open_store(ROOT, CrashingFiles(), **quiet)
    async with running(store):
        put_all(store, b"little")
        await asyncio.sleep(0.02)
        assert unflushed(store) > 0
        put_all(store, bytes(4 * 4096))
        await until(lambda: unflushed(store) == 0, "four dirty pages were flushed")
    store.close()


async def test_with_sync_flush_what_nobody_waits_for_is_synced_soon() -> None:
    store = open_store(ROOT, CrashingFiles(), flush_disk_type="SYNC_FLUSH", **QUIET)
    async with running(store):
        put_all(store, b"WAIT=false")
        await until(lambda: unflushed(store) == 0, "the record was flushed")


async def test_queues_are_flushed_and_then_the_checkpoint_written() -> None:
    files, clock = CrashingFiles(), Clock(5000)
    quiet = QUIET | {"consume_queue_flush_interval_ms": 1}
    store = open_store(ROOT, files, clock, **quiet, consume_queue_flush_thorough_interval_ms=5)
    async with running(store):
        put_all(store, b"x")
        path = ROOT / "checkpoint"
        await until(
            lambda: any(c.kind == "sync" and c.path == path for c in files.journal[20:]),
            "the checkpoint was written",
        )
        await until(lambda: store.checkpoint.logics_msg_timestamp == 5000, "it holds the time")
    kinds = [
        "queue" if "consumequeue" in str(c.path) else "checkpoint"
        for c in files.journal
        if c.kind == "sync" and "commitlog" not in str(c.path)
    ]
    assert "queue" in kinds
    assert store._queues.unflushed_files(0) == []


def test_the_checkpoint_never_claims_what_was_not_synced() -> None:
    files, clock = CrashingFiles(), Clock(1000)
    store = open_store(ROOT, files, clock)
    put_all(store, b"a")

    def append_meanwhile(change: Change) -> None:
        if change.kind == "sync":
            files.fail = lambda change: None
            clock.now = 9000
            put_all(store, b"b")

    files.fail = append_meanwhile
    store.flush()
    assert store.checkpoint.physic_msg_timestamp == 1000
    assert unflushed(store) > 0
    files.fail = append_meanwhile
    clock.now = 9000
    store.flush_queues()
    assert store.checkpoint.logics_msg_timestamp == 9000
    (queue, _), *_ = store._queues.unflushed_files(0)
    assert (queue.flushed_offset, queue.max_offset) == (2, 3)
