"""The message store: what the broker appends to and reads from.

    append, append, ...      records gather in the pending run of the log, entries in their queues
    commit_pending           one write to the log, one to each touched queue; then readers see them
    request_flush            SYNC_FLUSH: called back once the disk has them

On a slave ``append_raw`` takes the master's log bytes and the queues are built from them. All of
it runs on the event loop's thread; only syncs run in threads of their own (``flush``).

Directory, everything big-endian, as RocketMQ 4.9 has it:

    <root>/commitlog/<20 digits>                     records, see ``commit_log``, ``record``
    <root>/consumequeue/<topic>/<id>/<20 digits>     entries, see ``consume_queue``
    <root>/index/<time of creation>                  records by key, see ``index_file``
    <root>/checkpoint                                see ``checkpoint``
    <root>/abort                                     present while running, and after a crash
    <root>/lock                                      held while running

``abort`` is empty in 4.9; here it names the machine's boot, which tells recovery whether the
page cache survived. A Java broker only asks whether the file is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from failback.broker.disk_errors import is_fatal
from failback.broker.store.config import StoreConfig
from failback.broker.store.index.index_service import IndexService
from failback.broker.store.log.checkpoint import StoreCheckpoint
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.files import Files, OsFiles
from failback.broker.store.log.mapped_file import MappedFileQueue, OpenFiles
from failback.broker.store.log.results import ServiceNotAvailable, WriteFailed, WriteRefused
from failback.broker.store.queues.entry_writer import EntryWriter
from failback.broker.store.queues.queue_table import QueueTable
from failback.broker.store.reading.store_reader import StoreReader
from failback.broker.store.upkeep.disk_room import DISK_FULL, DiskRoom
from failback.broker.store.upkeep.expiry import Expiry
from failback.broker.store.upkeep.flush import FlushService
from failback.broker.store.upkeep.folders import StoreFolders
from failback.broker.store.upkeep.opening import StoreOpening
from failback.broker.store.upkeep.recovery import RecoveryReport
from failback.broker.store.upkeep.reserve import Reserve
from failback.broker.store.writing.appending import Appender
from failback.broker.store.writing.deletions import Deletions
from failback.broker.store.writing.dispatch import Dispatcher, delay_table
from failback.broker.store.writing.late_work import LateWork
from failback.common.text import where_and_why
from failback.protocol.errors import StoreError

logger = logging.getLogger(__name__)

_GATHER_SECONDS: Final = 0.01
"""How long a slave waits with received records, to dispatch them together with later ones."""
_SHARE_BYTES: Final = 256 * 1024
"""Log bytes that a slave dispatches in one go: half a millisecond."""
_FAR_BYTES: Final = 1 << 20
"""A slave that has more than this to dispatch lets no request wait for it."""

Arrival = Callable[[str, int, int, int], None]


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MessageStore(StoreReader):
    """One broker's store. ``load`` it, ``run`` its flushing beside the rest, ``close`` it.

    Attributes:
        on_arrive: Called after a commit with topic, queue id, the queue's new max offset and a
            tags code, once for each different tags code that came. Not on a slave.
    """

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        files: Files | None = None,
    ) -> None:
        self.on_arrive: Arrival | None = None
        self._files = files = files or OsFiles()
        self._open_log_files = OpenFiles(files, config.max_mapped_log_files)
        log_files = MappedFileQueue(
            files,
            self._open_log_files,
            config.commit_log_directory,
            config.mapped_file_bytes,
            durable=True,
        )
        log, queues = CommitLog(log_files), QueueTable(files, config)
        log.refused = self._refused
        delays = delay_table(config.message_delay_level, config.delay_scale)
        writer = EntryWriter(self._late_failure)
        dispatcher = Dispatcher(log, queues, writer.add, delays)
        self._checkpoint = StoreCheckpoint(files, config.root / "checkpoint")
        self._flush = FlushService(
            files,
            config,
            log,
            queues,
            self._checkpoint,
            timestamp=lambda: dispatcher.store_timestamp,
            write_entries=self._write_entries,
            on_failure=self._fail,
        )
        index = IndexService(
            files,
            config,
            log,
            self._checkpoint,
            dispatched=lambda: dispatcher.position,
            clock_ms=clock_ms,
            on_failure=self._late_failure,
        )
        super().__init__(config, log, queues, dispatcher, writer, index)
        self._expiry = Expiry(files, config, log, queues, clock_ms=clock_ms)
        self._expiry.followers.append(index.drop_before)
        self._appender = appender = Appender(config, log, queues, dispatcher, clock_ms)
        self.appender = appender
        self.append = appender.append
        self.append_batch = appender.append_batch
        self.append_encoded_batch = appender.append_encoded_batch
        self.deletions = Deletions(
            config,
            queues,
            dispatcher,
            appender,
            settle=self._settle,
            make_durable=self._make_durable,
        )
        self.delete_topic = self.deletions.delete_topic
        self._late = LateWork(self._dispatch, _GATHER_SECONDS)
        self._append_listeners: list[Callable[[], None]] = []
        self._unlock: Callable[[], None] | None = None
        self._failed = False
        self._folders = StoreFolders(files, config)
        self._room = DiskRoom(
            reserve=Reserve(files, config.root / "reserve"),
            expiry=self._expiry,
            log=log,
            writer=writer,
            index=index,
            changed=self._set_refusal,
        )

    # --- life cycle -------------------------------------------------------------------------

    def load(self) -> RecoveryReport:
        """Take the lock, recover what is on disk, mark the store as running.

        Raises:
            StoreError: Another process holds the store, or a file does not belong into it.
            CorruptStore: A bad record lies before good ones; the error says where.
            OSError: The disk can't be used.
        """
        began = time.monotonic()
        self._unlock = self._files.lock(self.config.root / "lock")
        try:
            report = self._open()
        except BaseException:
            self._release()
            raise
        report.seconds = time.monotonic() - began
        self.read_check.begin_again_if_needed()  # holes of a full tmpfs are bad pages of a mapping
        self._closed = None
        self._set_refusal()
        logger.info(
            "store loaded: root=%s last_stop=%s log=%d..%d records=%d scanned_bytes=%d "
            "dispatched=%d queues=%d seconds=%.3f",
            self.config.root,
            "clean" if report.clean else "unclean",
            self.min_physical_offset,
            self.max_physical_offset,
            report.records,
            report.scanned_bytes,
            report.dispatched,
            len(self._queues),
            report.seconds,
        )
        return report

    def _open(self) -> RecoveryReport:
        opening = StoreOpening(
            self.config,
            self._files,
            self._log,
            self._queues,
            self._dispatcher,
            self._checkpoint,
            self._flush,
            self._index,
            self._folders,
        )
        report = opening.recover()
        self._appender.store_timestamp = self._dispatcher.store_timestamp
        self._room.begin()
        return report

    async def run(self, shutdown: asyncio.Event) -> None:
        """Flush, and write queue entries and index, in the background until ``shutdown`` is set.

        Raises:
            StoreError: The disk failed.
        """
        loop = asyncio.get_running_loop()
        self._late.start(loop)
        self._writer.start(loop)
        self._index.start(loop)
        try:
            await self._flush.run(shutdown)
        finally:
            self._late.stop()
            self._writer.stop()
            await self._index.stop()

    def close(self) -> None:
        """Stop in order: everything is made durable and ``abort`` goes away. Safe to repeat.

        After a failed write or sync, and where the disk had no room for queue entries, ``abort``
        stays, so the next start recovers.

        Raises:
            OSError: The disk failed; ``abort`` stays.
        """
        if self._unlock is None:
            return
        try:
            if not self._failed:
                self.commit_pending()
                self._index.finish()
                self._flush.flush_log()
                self._flush.flush_queues()
                if not self._writer.is_waiting:
                    self._folders.remember()
                    self._room.end()
                    self._files.delete(self.config.root / "abort")
        finally:
            self._release()

    def _release(self) -> None:
        self._closed = self._appender.refusal = "the store is closed"
        self._open_log_files.close_all()
        self._queues.open_files.close_all()
        self._index.close()
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    async def expire(self) -> None:
        """Delete what is too old, take no messages while the disk is full. Call it regularly.

        Raises:
            OSError: A file could not be deleted.
        """
        if self._unlock is None or self._failed:
            return
        self._write_entries()
        self._folders.remember()
        stuck = self._dispatcher.stuck_at is not None
        await self._expiry.run_round(self._log.tail if stuck else self._dispatcher.position)
        self._set_refusal()

    def look_at_disk(self) -> None:
        """See whether the disk is full, and ask it again for what it refused. Often and cheap."""
        if self._unlock is None or self._failed:
            return
        try:
            has_given = self._room.look()
        except OSError as error:
            self._late_failure(error)
            return
        if has_given and self.config.is_slave:
            self._late.ask()  # a share of it may have been refused

    def _set_refusal(self) -> None:
        if self._closed is None and not self._failed:
            self._appender.refusal = self._room.refusal

    @property
    def is_out_of_room(self) -> bool:
        """Whether messages are refused because the disk is full, or nearly."""
        return self._room.refusal is not None

    def _refused(self, error: OSError) -> StoreError:
        """Note that the disk refused room for a record; return the error for its sender."""
        self._late_failure(error)
        if self._failed:
            return WriteFailed(f"the disk refused a write: {where_and_why(error)}")
        return ServiceNotAvailable(self._room.lack)

    def _fail(self, error: Exception) -> None:
        """Take no more writes. What is on the disk stays readable."""
        self._failed = True
        self._appender.refusal = f"the disk failed: {error}"

    # --- appending --------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        """How much log the pending run makes, what it leaves empty at a file's end included."""
        return self._log.pending_tail - self._log.tail

    def commit_pending(self) -> None:
        """Write the pending run, make it readable, notify held pulls.

        Raises:
            WriteRefused: The disk had no room. The run is dropped; its end may be on the disk all
                the same, as with a lost answer. File systems that keep their word about allocated
                room refuse before, when a message gets its place.
            WriteFailed: The disk is broken: likewise, and the store takes no more writes.
        """
        log = self._log
        if log.pending_tail == log.tail:
            return
        touched, self._appender.touched = self._appender.touched, {}
        try:
            log.write_pending()
        except OSError as error:
            log.drop_pending()
            self._appender.take_keyed()
            for queue in touched:
                queue.drop_pending()
            self._late_failure(error)
            kind = WriteFailed if self._failed else WriteRefused
            raise kind(f"the disk refused a write: {where_and_why(error)}") from error
        start, keyed = log.tail, self._appender.take_keyed()
        log.publish()
        self._dispatcher.position = log.tail
        self._dispatcher.store_timestamp = self._appender.store_timestamp
        arrivals = [(queue, queue.commit()) for queue in touched]
        self._writer.add(touched)
        self._index.stored(start, log.tail, keyed)
        self._flush.appended()
        self._index.appended()
        for listener in self._append_listeners:
            listener()
        if (arrive := self.on_arrive) is not None:
            for queue, codes in arrivals:
                for code in set(codes):
                    arrive(queue.topic, queue.queue_id, queue.committed_offset, code)

    def _late_failure(self, error: Exception) -> None:
        """Stop the store, as after a failed sync, if the disk is broken; wait if it has no room."""
        if isinstance(error, OSError) and not is_fatal(error):
            self._room.note(error)
            return
        said = where_and_why(error) if isinstance(error, OSError) else error
        logger.critical("write failed, the store takes no more: %s", said)
        self._flush.fail(error)

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """Append bytes of the master's log (slave); the records they complete get queue entries.

        An empty log starts with the file that ``physical_offset`` begins.

        Raises:
            StoreError: The bytes do not continue this log, or the disk refused them.
        """
        refusal = self._appender.refusal
        if refusal is not None and refusal is not DISK_FULL:
            raise ServiceNotAvailable(refusal)
        log = self._log
        if not log.files.files or log.tail == 0:
            self._dispatcher.position = physical_offset
        before = log.tail
        try:
            log.append_raw(physical_offset, data)
        except OSError as error:
            raise self._refused(error) from error
        finally:
            if log.tail > before:
                self._appended_raw()

    def _appended_raw(self) -> None:
        log = self._log
        self._late.ask()
        # While a slave copies its master's log, copying goes first. What it has to dispatch later
        # is at most one file, which the page cache still holds.
        while self._late.due and log.tail - self._dispatcher.position > log.files.file_bytes:
            self._late.share()
        self._flush.appended()
        for listener in self._append_listeners:
            listener()

    def _dispatch(self) -> bool:
        """Dispatch a part of the received records; return whether there are more."""
        dispatcher = self._dispatcher
        start, dispatcher.keyed = dispatcher.position, []
        try:
            dispatcher.catch_up_in_background(_SHARE_BYTES)
        except OSError as error:
            self._late_failure(error)
            return False
        self._index.stored(start, dispatcher.position, dispatcher.take_keyed())
        self._index.appended()
        return start + _SHARE_BYTES <= dispatcher.position < self._log.tail

    def _dispatch_due(self) -> None:
        # Who looks at a queue sees all of the log unless this slave is far behind with it.
        if self._log.tail - self._dispatcher.position <= _FAR_BYTES:
            self._late.settle()

    def _dispatch_all(self) -> None:
        self._late.settle()

    def _drop_mappings(self) -> None:
        self._open_log_files.close_all()
        self._queues.open_files.close_all()
        self._index.close()

    def _write_entries(self) -> bool:
        self._dispatch_due()
        self._writer.write_all()
        return not self._writer.is_waiting

    def add_append_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every commit and every raw append."""
        self._append_listeners.append(listener)

    # --- flushing ---------------------------------------------------------------------------

    def request_flush(self, end_offset: int, done: Callable[[bool], None]) -> None:
        """Call ``done(True)`` on the loop once the log is durable up to ``end_offset``.

        ``done(False)`` after ``sync_flush_timeout_ms`` or a disk failure. Needs :meth:`run`.
        """
        self._flush.request(end_offset, done)

    def flush(self) -> int:
        """Make the log durable at once; return the flushed offset. Blocks.

        Raises:
            OSError: The disk failed.
        """
        return self._flush.flush_log()

    def flush_queues(self) -> None:
        """Make all queues durable at once and write the checkpoint. Blocks.

        Raises:
            OSError: The disk failed.
        """
        self._flush.flush_queues()

    @property
    def is_writable(self) -> bool:
        return self._appender.is_writable

    @property
    def checkpoint(self) -> StoreCheckpoint:
        return self._checkpoint

    # --- queues -----------------------------------------------------------------------------

    def clean_expired_queues(self) -> None:
        """Delete the queues whose last message the log no longer holds; they begin again at 0."""
        self._settle()
        self._queues.delete_expired(self._log.min_offset)

    def expire_by_hand(self) -> None:
        """Let the next rounds of :meth:`expire` delete old files at any hour."""
        self._expiry.order()

    def _settle(self) -> None:
        self._dispatch_all()
        self._write_entries()

    def _make_durable(self) -> None:
        self.commit_pending()
        try:
            self.flush()
        except OSError as error:
            self._late_failure(error)
            raise WriteFailed(f"the disk failed: {where_and_why(error)}") from error
