"""Flushing: when the log and the queues are synced, and which answers wait for it.

ASYNC_FLUSH syncs the log in intervals; SYNC_FLUSH is a group commit: a sync
answers the requests that wait when it begins, the next sync those that come later. A sync runs in
a thread with a duplicate of the descriptor that wrote, so the event loop never waits for the disk,
and an error of what was written is not missed.
FlushRealTimeService, GroupCommitService and FlushConsumeQueueService of 4.9.8.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final, NamedTuple

from failback.broker.disk_errors import is_fatal
from failback.broker.store.config import StoreConfig
from failback.broker.store.log.checkpoint import StoreCheckpoint
from failback.broker.store.log.commit_log import CommitLog, flush_is_due
from failback.broker.store.log.files import Files
from failback.broker.store.log.syncing import ToSync, sync_files
from failback.broker.store.queues.consume_queue import ConsumeQueue
from failback.broker.store.queues.queue_table import QueueTable
from failback.common.text import where_and_why
from failback.protocol.errors import StoreError

logger = logging.getLogger(__name__)

_UNWAITED_SYNC_SECONDS: Final = 0.010
"""SYNC_FLUSH: how soon records without a waiting answer are synced (4.9.8 looks every 10 ms)."""


class SyncThread:
    """Runs blocking calls one after another; tells the event loop when each is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._calls: SimpleQueue[
            tuple[Callable[[], None], Callable[[Exception | None], None]] | None
        ] = SimpleQueue()
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Run ``call`` in the thread, then ``done(its error)`` on the loop."""
        self._calls.put((call, done))

    def stop(self) -> None:
        """Finish what was submitted and end the thread."""
        self._calls.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._calls.get()) is not None:
            call, done = job
            error: Exception | None = None
            try:
                call()
            except Exception as raised:  # the loop's side must get every error
                error = raised
            self._loop.call_soon_threadsafe(done, error)


class Waiter(NamedTuple):
    """A request that waits until the log is flushed up to ``end_offset``."""

    end_offset: int
    deadline: float
    done: Callable[[bool], None]


class LogFlush(NamedTuple):
    """One sync of the log: what it covers, decided before it begins."""

    target: int
    timestamp: int
    written: tuple[ToSync, ...]


class QueueFlush(NamedTuple):
    """One queue's share of a sync; ``directory`` is None unless it has new files."""

    queue: ConsumeQueue
    target: int
    written: tuple[ToSync, ...]
    directory: Path | None


class FlushService:
    """Syncs log and queues, in the background while :meth:`run` runs, or at once.

    ``timestamp`` tells the store timestamp of the last record in log and queues; ``write_entries``
    writes the queue entries that still wait in memory and tells whether none does any more; it
    calls :meth:`fail` if the disk is broken.
    ``on_failure`` is called with a sync's failure. What it covered may be lost, and a second sync
    would hide that, so the store must take no more writes.
    """

    def __init__(
        self,
        files: Files,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        checkpoint: StoreCheckpoint,
        *,
        timestamp: Callable[[], int],
        write_entries: Callable[[], bool],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._files = files
        self._config = config
        self._log = log
        self._queues = queues
        self._checkpoint = checkpoint
        self._timestamp = timestamp
        self._write_entries = write_entries
        self._on_failure = on_failure
        self._waiters: deque[Waiter] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log_thread: SyncThread | None = None
        self._syncing = False
        self._failure: Exception | None = None
        self._failed: asyncio.Event | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._unwaited: asyncio.TimerHandle | None = None

    # --- at once ----------------------------------------------------------------------------

    def flush_log(self) -> int:
        """Make the log durable up to its tail; return the flushed offset.

        Raises:
            OSError: The disk failed.
        """
        flush = self._begin_log_flush()
        sync_files(self._files, flush.written)
        self._end_log_flush(flush)
        return self._log.flushed_offset

    def flush_queues(self) -> None:
        """Make all queues durable and write the checkpoint.

        Raises:
            OSError: The disk failed.
            StoreError: It had failed before.
        """
        has_all = self._write_entries()
        if self._failure is not None:
            raise StoreError(f"the disk failed: {self._failure}") from self._failure
        timestamp = self._timestamp()
        flushes = self._begin_queue_flush(least_pages=0)
        self._sync_queues(flushes)
        self._end_queue_flush(flushes)
        if has_all:
            self._checkpoint.logics_msg_timestamp = timestamp
            self._checkpoint.write()

    def _begin_log_flush(self) -> LogFlush:
        # The tail is read before the sync: what is appended meanwhile is not covered.
        target = self._log.tail
        written = self._log.files.to_sync(self._log.flushed_offset, target)
        return LogFlush(target, self._timestamp(), written)

    def _end_log_flush(self, flush: LogFlush) -> None:
        self._log.flushed_offset = max(self._log.flushed_offset, flush.target)
        self._checkpoint.physic_msg_timestamp = flush.timestamp

    def _begin_queue_flush(self, least_pages: int) -> list[QueueFlush]:
        flushes = []
        for queue, written in self._queues.unflushed_files(least_pages):
            directory = queue.files.directory if queue.unsynced_directory else None
            queue.unsynced_directory = False
            flushes.append(QueueFlush(queue, queue.max_offset, written, directory))
        return flushes

    def _sync_queues(self, flushes: Sequence[QueueFlush]) -> None:
        for flush in flushes:
            sync_files(self._files, flush.written)
            if flush.directory is not None:
                with contextlib.suppress(FileNotFoundError):  # its topic was deleted meanwhile
                    self._files.sync_directory(flush.directory)

    def _end_queue_flush(self, flushes: Sequence[QueueFlush]) -> None:
        for flush in flushes:
            flush.queue.flushed_offset = max(flush.queue.flushed_offset, flush.target)

    # --- group commit -----------------------------------------------------------------------

    def request(self, end_offset: int, done: Callable[[bool], None]) -> None:
        """Call ``done`` on the loop: True once the log is flushed up to ``end_offset``.

        False when that takes longer than ``sync_flush_timeout_ms``, or the disk failed.
        """
        if self._failure is not None:
            done(False)
            return
        if end_offset <= self._log.flushed_offset:
            done(True)
            return
        loop = self._loop or asyncio.get_running_loop()
        deadline = loop.time() + self._config.sync_flush_timeout_ms / 1000
        self._waiters.append(Waiter(end_offset, deadline, done))
        if self._expiry is None and self._loop is not None:
            self._expiry = self._loop.call_at(deadline, self._expire)
        self._start_sync()

    def appended(self) -> None:
        """Note that the log grew.

        With SYNC_FLUSH it is synced soon, waited for or not; with ASYNC_FLUSH by the timer, or,
        without ``flush_timed``, once enough pages are dirty.
        """
        if self._unwaited is not None or self._loop is None:
            return
        config = self._config
        if config.flush_disk_type == "SYNC_FLUSH":
            self._unwaited = self._loop.call_later(_UNWAITED_SYNC_SECONDS, self._sync_unwaited)
        elif not config.flush_timed and self._is_due(config.flush_least_pages):
            self._start_sync()

    def _is_due(self, least_pages: int) -> bool:
        log = self._log
        return flush_is_due(log.flushed_offset, log.tail, log.files.file_bytes, least_pages)

    def _sync_unwaited(self) -> None:
        self._unwaited = None
        self._start_sync()

    def _start_sync(self) -> None:
        if self._syncing or self._log_thread is None or self._failure is not None:
            return
        if self._log.flushed_offset >= self._log.tail:
            return
        self._syncing = True
        flush = self._begin_log_flush()
        self._log_thread.submit(
            lambda: sync_files(self._files, flush.written), lambda error: self._synced(flush, error)
        )

    def _synced(self, flush: LogFlush, error: Exception | None) -> None:
        self._syncing = False
        if error is not None:
            self._not_synced(error)
            return
        self._end_log_flush(flush)
        waiters, flushed = self._waiters, self._log.flushed_offset
        while waiters and waiters[0].end_offset <= flushed:
            waiters.popleft().done(True)
        if waiters:
            self._start_sync()

    def _expire(self) -> None:
        self._expiry = None
        assert self._loop is not None
        now = self._loop.time()
        while self._waiters and self._waiters[0].deadline <= now:
            self._waiters.popleft().done(False)
        if self._waiters:
            self._expiry = self._loop.call_at(self._waiters[0].deadline, self._expire)

    def _not_synced(self, error: Exception) -> None:
        """Stop the store, or try again later what never came to the sync itself."""
        if isinstance(error, OSError) and not is_fatal(error):
            logger.warning("not synced, tried again later: %s", where_and_why(error))
        else:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        logger.critical("sync failed, the store takes no more writes: %s", error)
        self.fail(error)

    def fail(self, error: Exception) -> None:
        """Sync nothing more: what the disk refused would be claimed to be on it."""
        self._failure = error
        self._on_failure(error)
        while self._waiters:
            self._waiters.popleft().done(False)
        if self._failed is not None:
            self._failed.set()

    # --- in the background ------------------------------------------------------------------

    async def run(self, shutdown: asyncio.Event) -> None:
        """Flush until ``shutdown`` is set; then answer what still waits.

        Raises:
            StoreError: A sync failed.
        """
        self._loop = asyncio.get_running_loop()
        self._failed = asyncio.Event()
        self._log_thread = SyncThread(self._loop, "log-flush")
        queue_thread = SyncThread(self._loop, "queue-flush")
        ends = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._waiters:  # they came before this began
                    self._expire()
                    self._start_sync()
                tasks.create_task(self._flush_log_regularly(ends))
                tasks.create_task(self._flush_queues_regularly(ends, queue_thread))
                waiting = [
                    asyncio.ensure_future(shutdown.wait()),
                    asyncio.ensure_future(self._failed.wait()),
                ]
                try:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in waiting:
                        task.cancel()
                    ends.set()
        finally:
            self._stop(queue_thread)
        if self._failure is not None:
            raise StoreError(f"the disk failed: {self._failure}") from self._failure

    def _stop(self, queue_thread: SyncThread) -> None:
        """End the threads; a last sync answers what still waits."""
        log_thread, self._log_thread, self._loop = self._log_thread, None, None
        for timer in (self._expiry, self._unwaited):
            if timer is not None:
                timer.cancel()
        self._expiry = self._unwaited = None
        queue_thread.stop()
        if log_thread is not None:
            log_thread.stop()
        if self._waiters and self._failure is None:
            try:
                self.flush_log()
            except OSError as error:
                self._not_synced(error)
        while self._waiters:
            waiter = self._waiters.popleft()
            waiter.done(waiter.end_offset <= self._log.flushed_offset)

    async def _flush_log_regularly(self, ends: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        thorough_at = loop.time() + self._config.flush_thorough_interval_ms / 1000
        while not await _set_within(ends, self._config.flush_interval_ms / 1000):
            least_pages = self._config.flush_least_pages
            if loop.time() >= thorough_at:
                least_pages = 0
                thorough_at = loop.time() + self._config.flush_thorough_interval_ms / 1000
            if self._is_due(least_pages):
                self._start_sync()

    async def _flush_queues_regularly(self, ends: asyncio.Event, thread: SyncThread) -> None:
        config = self._config
        loop = asyncio.get_running_loop()
        thorough_at = loop.time() + config.consume_queue_flush_thorough_interval_ms / 1000
        while not await _set_within(ends, config.consume_queue_flush_interval_ms / 1000):
            thorough = loop.time() >= thorough_at
            if thorough:
                thorough_at = loop.time() + config.consume_queue_flush_thorough_interval_ms / 1000
            await self._flush_queues_in(
                thread, 0 if thorough else config.consume_queue_flush_least_pages, thorough
            )

    async def _flush_queues_in(self, thread: SyncThread, pages: int, thorough: bool) -> None:
        # The checkpoint speaks of all entries: it waits while the disk has no room for some.
        has_all = thorough and self._write_entries()
        if self._failure is not None:
            return
        # As with the log: read first, then sync, so that the checkpoint never claims too much.
        timestamp = self._timestamp()
        flushes = self._begin_queue_flush(pages)
        if not flushes and not thorough:
            return
        finished: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def work() -> None:
            self._sync_queues(flushes)
            if has_all:
                self._checkpoint.logics_msg_timestamp = timestamp
                self._checkpoint.write()

        def done(error: Exception | None) -> None:
            if not finished.done():  # cancelled meanwhile
                finished.set_result(error)

        thread.submit(work, done)
        error = await finished
        if error is None:
            self._end_queue_flush(flushes)
        else:
            for flush in flushes:
                flush.queue.unsynced_directory |= flush.directory is not None
            self._not_synced(error)


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for ``event``, at most ``seconds``; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
