"""The message store: what the broker appends to and reads from.

    append, append, ...      records gather in the pending run of the log, entries in their queues
    commit_pending           one write to the log, one to each touched queue; then readers see them
    request_flush            SYNC_FLUSH: told once the disk has them

On a slave ``append_raw`` takes the master's log bytes and the queues are built from them. All of
it runs on the event loop's thread; only syncs run in threads of their own (``flush``).

Directory, everything big-endian, as RocketMQ 4.9 has it:

    <root>/commitlog/<20 digits>                     records, see ``commit_log``, ``record``
    <root>/consumequeue/<topic>/<id>/<20 digits>     entries, see ``consume_queue``
    <root>/index/<time of creation>                  records by key, see ``index_file``
    <root>/checkpoint                                see ``checkpoint``
    <root>/abort                                     present while running: the last stop was none
    <root>/lock                                      held while running

``abort`` is empty in 4.9; here it names the machine's boot, which tells recovery whether the
page cache survived. A Java broker only asks whether the file is there.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import struct
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final

from failback.broker.store.checkpoint import StoreCheckpoint
from failback.broker.store.commit_log import CommitLog
from failback.broker.store.config import StoreConfig
from failback.broker.store.consume_queue import ENTRY, ConsumeQueue
from failback.broker.store.dispatch import Dispatcher, delay_table
from failback.broker.store.expiry import Expiry
from failback.broker.store.files import TEMPORARY_PREFIX, Files, OsFiles
from failback.broker.store.filtered_reading import PropertyFilter
from failback.broker.store.flush import FlushService
from failback.broker.store.index_query import QueryResult, query_messages
from failback.broker.store.index_service import IndexService
from failback.broker.store.mapped_file import MappedFileQueue, OpenFiles
from failback.broker.store.queue_table import QueueTable
from failback.broker.store.reading import get_messages, offset_by_time, store_time_at
from failback.broker.store.record import (
    MAX_PROPERTIES_BYTES,
    has_queue_entry,
    head_layout,
    pack_property_length,
    tags_code_of,
)
from failback.broker.store.recovery import Judge, LogScan, RecoveryReport, choose_first_file
from failback.broker.store.results import (
    Appended,
    GetResult,
    MessageIllegal,
    ServiceNotAvailable,
    WriteFailed,
)
from failback.protocol.codes import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_MASK
from failback.protocol.errors import CorruptStore
from failback.protocol.message import V1_MAGIC, BatchElement

logger = logging.getLogger(__name__)

_RECORD_OVERHEAD_LIMIT: Final = 65_536
"""What a record may have beyond ``max_message_bytes``."""

DISK_FULL: Final = "the broker's disk is full"
"""Refuses messages; a slave goes on copying its master's log, as it does in 4.9.8."""

_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6

Arrival = Callable[[str, int, int, int], None]


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class MessageStore:
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
        self.config = config
        self.on_arrive: Arrival | None = None
        self._clock_ms = clock_ms
        self._files = files = files or OsFiles()
        self._open_log_files = OpenFiles(files, config.max_mapped_log_files)
        log_files = MappedFileQueue(
            files,
            self._open_log_files,
            config.commit_log_directory,
            config.mapped_file_bytes,
            durable=True,
        )
        self._log = CommitLog(log_files)
        self._queues = QueueTable(files, config)
        delays = delay_table(config.message_delay_level, config.delay_scale)
        self._dispatcher = Dispatcher(self._log, self._queues.find_or_create, delays)
        self._checkpoint = StoreCheckpoint(files, config.root / "checkpoint")
        self._flush = FlushService(
            files,
            config,
            self._log,
            self._queues,
            self._checkpoint,
            timestamp=lambda: self._dispatcher.store_timestamp,
            on_failure=self._fail,
        )
        self._index = IndexService(
            files,
            config,
            self._log,
            self._checkpoint,
            dispatched=lambda: self._dispatcher.position,
            clock_ms=clock_ms,
            on_failure=self._fail,
        )
        self._expiry = Expiry(files, config, self._log, self._queues, clock_ms=clock_ms)
        self._expiry.followers.append(self._index.drop_before)
        self._append_listeners: list[Callable[[], None]] = []
        self._store_timestamp = 0
        self._touched: dict[ConsumeQueue, None] = {}
        self._unlock: Callable[[], None] | None = None
        self._refusal: str | None = "the store is not loaded"
        self._failed = False

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
            report = self._recover()
        except BaseException:
            self._release()
            raise
        report.seconds = time.monotonic() - began
        self._refusal = None
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

    def _recover(self) -> RecoveryReport:
        abort = self.config.root / "abort"
        mark, boot = self._files.read_small(abort), self._files.boot_id().encode()
        report = RecoveryReport(clean=mark is None)
        self._remove_temporaries()
        self._log.files.load()
        self._queues.load()
        self._checkpoint.load()
        cache_survived = mark is None or (mark == boot and bool(boot))
        if self._log.files.files:
            self._recover_log(report, Judge(cache_survived, self._checkpoint.physic_msg_timestamp))
        else:
            self._queues.destroy_all()
        self._dispatch_the_rest(report)
        self._queues.correct_min_offsets(max(self._log.min_offset, 0))
        self._index.load(clean=report.clean, cache_survived=cache_survived)
        self._log.flushed_offset = self._log.tail
        if not report.clean:
            self._sync_what_a_crash_left(report.scanned_from)
        report.end_offset = self._log.tail
        self._files.write_small(abort, boot)
        return report

    def _remove_temporaries(self) -> None:
        for directory in {self.config.root, self.config.commit_log_directory.parent}:
            for name in self._files.names(directory):
                if name.startswith(TEMPORARY_PREFIX):
                    self._files.delete(directory / name)

    def _recover_log(self, report: RecoveryReport, judge: Judge) -> None:
        first = choose_first_file(
            self._log, clean=report.clean, recover_from=self._checkpoint.recover_from
        )
        enter = None
        ends = [(queue, queue.max_offset) for queue in self._queues]
        if not report.clean:
            start = self._log.files.files[first].start
            self._queues.drop_torn(start, cache_survived=judge.cache_survived)
            enter = self._dispatcher.enter
        scan = LogScan(self._log, judge, enter, check_crc=self.config.check_crc_on_recover)
        scan.run(first, report)
        self._dispatcher.write_touched()
        self._store_timestamp = self._dispatcher.store_timestamp = scan.last_timestamp
        if self._queues.max_physical_offset >= self._log.tail:
            self._queues.truncate(self._log.tail)
        report.dropped_entries = sum(max(end - queue.max_offset, 0) for queue, end in ends)

    def _dispatch_the_rest(self, report: RecoveryReport) -> None:
        """Enter the records behind the last one that any queue has."""
        held = min(self._queues.max_physical_offset, self._log.tail)
        self._dispatcher.position = max(held, self._log.min_offset, 0)
        report.dispatched = self._dispatcher.catch_up()
        stopped, log = self._dispatcher.position, self._log
        if stopped < log.tail and (file := log.files.find(stopped)) is not None:
            what = "no record here, while the queues end here"
            raise CorruptStore(file.path, stopped - file.start, what)

    def _sync_what_a_crash_left(self, scanned_from: int) -> None:
        """Sync what the dead process wrote and may not have synced.

        From here on ``flushed_offset`` and the checkpoint say that it is on the disk. What lies
        before ``scanned_from`` the checkpoint said already: thousands of old files stay closed.
        """
        if self._log.files.files:  # killed between creating a file and syncing its name
            self._log.files.sync_directory()
        self._log.flushed_offset = max(self._log.files.start, scanned_from)
        for queue in self._queues:
            queue.distrust(scanned_from)
        self._flush.flush_log()
        self._flush.flush_queues()

    async def run(self, shutdown: asyncio.Event) -> None:
        """Flush, and enter keys into the index, in the background until ``shutdown`` is set.

        Raises:
            StoreError: The disk failed.
        """
        self._index.start(asyncio.get_running_loop())
        try:
            await self._flush.run(shutdown)
        finally:
            await self._index.stop()

    def close(self) -> None:
        """Stop in order: everything is made durable and ``abort`` goes away. Safe to repeat.

        After a failed write or sync ``abort`` stays, so the next start recovers.

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
                self._files.delete(self.config.root / "abort")
        finally:
            self._release()

    def _release(self) -> None:
        self._refusal = "the store is closed"
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
        was_full = self._expiry.is_full
        await self._expiry.run_round()
        if self._expiry.is_full != was_full and not self._failed and self._unlock is not None:
            self._refusal = DISK_FULL if self._expiry.is_full else None

    def _fail(self, error: Exception) -> None:
        """Take no more writes. What is on the disk stays readable."""
        self._failed = True
        self._refusal = f"the disk failed: {error}"

    # --- appending --------------------------------------------------------------------------

    def append(
        self,
        *,
        topic: bytes,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        body: bytes,
        properties: bytes,
        tags_code: int,
        prepared_transaction_offset: int = 0,
    ) -> Appended:
        """Add one record to the pending run; :meth:`commit_pending` writes it.

        Hosts are packed (``pack_host``). ``tags_code`` is the hash of the TAGS property; the
        delivery time of a delayed message is worked out here, since it depends on the store's
        clock.

        Raises:
            MessageIllegal: A limit is broken; the pending run is as before.
            ServiceNotAvailable: The store takes no writes.
        """
        if self._refusal is not None or self.config.broker_role == "SLAVE":
            raise ServiceNotAvailable(self._refusal or "this broker is a slave")
        queue = self._queues.find(topic, queue_id) or self._queues.find_or_create(topic, queue_id)
        store_host = self.config.store_host
        body_bytes, property_bytes = len(body), len(properties)
        size = queue.fixed_bytes + body_bytes + property_bytes
        if sys_flag & _HOST_BITS or len(born_host) != 8 or len(store_host) != 8:
            sys_flag, size = _with_hosts(sys_flag, size, born_host, store_host)
        limit = self.config.max_message_bytes
        if (
            body_bytes > limit
            or property_bytes > MAX_PROPERTIES_BYTES
            or size > limit + _RECORD_OVERHEAD_LIMIT
        ):
            raise MessageIllegal(
                f"body of {body_bytes}, properties of {property_bytes}, record of {size} bytes; "
                f"the body's limit is {limit}"
            )
        log = self._log
        if log.pending_tail == log.tail:
            self._read_clock()
        store_timestamp = self._store_timestamp
        entered = has_queue_entry(sys_flag) if sys_flag & TRANSACTION_MASK else True
        queue_offset = queue.next_offset if entered else 0
        physical_offset = log.place(size)
        try:
            head = head_layout(born_host, store_host).pack(
                size,
                V1_MAGIC,
                zlib.crc32(body) & 0x7FFFFFFF,
                queue_id,
                flag,
                queue_offset,
                physical_offset,
                sys_flag,
                born_timestamp,
                born_host,
                store_timestamp,
                store_host,
                reconsume_times,
                prepared_transaction_offset,
                body_bytes,
            )
        except struct.error as error:
            log.pending_tail = physical_offset
            raise MessageIllegal(f"a number does not fit its field: {error}") from error
        log.pieces += (
            head,
            body,
            queue.topic_piece,
            pack_property_length(property_bytes),
            properties,
        )
        if entered:
            if queue.is_schedule:
                tags_code = self._dispatcher.entry_code(queue, properties, store_timestamp)
            queue.add(physical_offset, size, tags_code)
            self._touched[queue] = None
        return Appended(physical_offset, queue_offset, physical_offset + size, store_timestamp)

    def append_batch(
        self,
        *,
        topic: bytes,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
        elements: Sequence[BatchElement],
        batch_properties: bytes,
    ) -> list[Appended]:
        """Add all messages of a batch, or none of them.

        They get consecutive queue offsets, one store timestamp and adjacent places in one file.
        ``batch_properties`` are added to those of each element.

        Raises:
            MessageIllegal: A limit is broken, for one element or for the sum.
            ServiceNotAvailable: The store takes no writes.
        """
        if not self.is_writable:
            raise ServiceNotAvailable(self._refusal or "this broker is a slave")
        limit = self.config.max_message_bytes
        joined = [_join_properties(element.properties, batch_properties) for element in elements]
        if sum([len(element.body) for element in elements]) > limit:
            raise MessageIllegal(f"the bodies of a batch together are above {limit} bytes")
        if sys_flag & TRANSACTION_MASK:
            raise MessageIllegal("a batch can't be part of a transaction")
        for element, properties in zip(elements, joined, strict=True):
            if len(properties) > MAX_PROPERTIES_BYTES or not -(2**31) <= element.flag < 2**31:
                raise MessageIllegal(f"properties of {len(properties)} bytes, flag {element.flag}")
        queue = self._queues.find_or_create(topic, queue_id)
        store_host = self.config.store_host
        sys_flag, fixed = _with_hosts(sys_flag, queue.fixed_bytes, born_host, store_host)
        log = self._log
        if log.pending_tail == log.tail:
            self._read_clock()
        store_timestamp = self._store_timestamp
        sizes = [
            fixed + len(element.body) + len(properties)
            for element, properties in zip(elements, joined, strict=True)
        ]
        start = physical_offset = log.place(sum(sizes))
        queue_offset = queue.next_offset
        # Not append() for each: what the elements share is worked out once, and a failure leaves
        # nothing behind.
        pack, crc32 = head_layout(born_host, store_host).pack, zlib.crc32
        topic_piece, pack_entry = queue.topic_piece, ENTRY.pack
        pieces: list[bytes] = []
        entries: list[bytes] = []
        codes: list[int] = []
        run: list[Appended] = []
        try:
            for element, properties, size in zip(elements, joined, sizes, strict=True):
                body = element.body
                head = pack(
                    size,
                    V1_MAGIC,
                    crc32(body) & 0x7FFFFFFF,
                    queue_id,
                    element.flag,
                    queue_offset,
                    physical_offset,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    store_timestamp,
                    store_host,
                    reconsume_times,
                    0,
                    len(body),
                )
                pieces += (
                    head,
                    body,
                    topic_piece,
                    pack_property_length(len(properties)),
                    properties,
                )
                code = (
                    self._dispatcher.entry_code(queue, properties, store_timestamp)
                    if queue.is_schedule
                    else tags_code_of(properties)
                )
                entries.append(pack_entry(physical_offset, size, code))
                codes.append(code)
                end = physical_offset + size
                run.append(Appended(physical_offset, queue_offset, end, store_timestamp))
                physical_offset = end
                queue_offset += 1
        except struct.error as error:
            log.pending_tail = start
            raise MessageIllegal(f"a number does not fit its field: {error}") from error
        log.pieces += pieces
        if run:
            queue.add_run(entries, codes, physical_offset)
            self._touched[queue] = None
        return run

    def _read_clock(self) -> None:
        """Read the clock for the pending run; store timestamps never decrease."""
        self._store_timestamp = max(self._store_timestamp, self._clock_ms())

    def commit_pending(self) -> None:
        """Write the pending run, make it readable, tell who waits for messages.

        Raises:
            WriteFailed: The disk refused. The run is dropped (its end may be on the disk all the
                same, as with a lost answer) and the store takes no more writes.
        """
        log = self._log
        if log.pending_tail == log.tail:
            return
        touched, self._touched = self._touched, {}
        try:
            log.write_pending()
        except OSError as error:
            log.drop_pending()
            for queue in touched:
                queue.drop_pending()
            raise self._write_failed(error) from error
        stored = log.pending_runs()
        arrive = self.on_arrive
        arrivals = [(queue, set(queue.pending_codes)) for queue in touched] if arrive else []
        try:
            for queue in touched:
                queue.write_pending()
        except OSError as error:
            raise self._write_failed(error) from error
        finally:
            # The records are in the log: without entries now, they get them at the next start.
            log.publish()
        self._dispatcher.position = log.tail
        self._dispatcher.store_timestamp = self._store_timestamp
        for start, end, pieces in stored:
            self._index.stored(start, end, pieces)
        self._flush.appended()
        self._index.appended()
        for listener in self._append_listeners:
            listener()
        if arrive is not None:
            for queue, codes in arrivals:
                for code in codes:
                    arrive(queue.topic, queue.queue_id, queue.max_offset, code)

    def _write_failed(self, error: OSError) -> WriteFailed:
        logger.critical("write failed, the store takes no more: %s", error)
        self._fail(error)
        return WriteFailed(f"the disk refused a write: {error}")

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """Append bytes of the master's log (slave) and dispatch the records they complete.

        An empty log starts with the file that ``physical_offset`` begins.

        Raises:
            StoreError: The bytes do not continue this log, or the disk refused them.
        """
        if self._refusal is not None and self._refusal is not DISK_FULL:
            raise ServiceNotAvailable(self._refusal)
        if not self._log.files.files or self._log.tail == 0:
            self._dispatcher.position = physical_offset
        try:
            self._log.append_raw(physical_offset, bytes(data))
            self._dispatcher.catch_up()
        except OSError as error:
            raise self._write_failed(error) from error
        self._flush.appended()
        self._index.appended()
        for listener in self._append_listeners:
            listener()

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

    # --- reading ----------------------------------------------------------------------------

    def get_message(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tag_filter: frozenset[int] | None = None,
        matches: PropertyFilter | None = None,
    ) -> GetResult:
        """Return messages of a queue from ``offset`` on; ``tag_filter`` holds tag hashes.

        ``matches`` decides by properties. Only committed records are seen.

        Raises:
            ServiceNotAvailable: The store is not open.
        """
        if self._unlock is None:
            raise ServiceNotAvailable(f"{self._refusal}: group={group} topic={topic}")
        queue = self._queues.get(topic, queue_id)
        return get_messages(queue, self._log, self.config, offset, max_msgs, tag_filter, matches)

    def query_message(
        self, topic: str, key: str, most: int, begin: int, end: int
    ) -> Generator[None, None, QueryResult]:
        """Return the newest records of a topic with a key, stored from ``begin`` to ``end``, ms.

        At most ``most`` and ``max_msgs_num_batch``. A generator that yields between short steps
        and returns the result, so that a long search does not hold up the event loop.

        Raises:
            ServiceNotAvailable: The store is not open.
        """
        if self._unlock is None:
            raise ServiceNotAvailable(f"{self._refusal}: topic={topic} key={key}")
        most = min(most, self.config.max_msgs_num_batch)
        return query_messages(self._index, self._log, topic, key, most, begin, end)

    def read_raw(self, physical_offset: int, max_bytes: int) -> memoryview:
        """Return log bytes for a slave, never across a file's end, blank rest included.

        Empty at and behind the tail, and before the oldest file.
        """
        return self._log.read(physical_offset, max_bytes)

    def entries(
        self, topic: str, queue_id: int, offset: int, most: int
    ) -> list[tuple[int, int, int]]:
        """Return physical offset, size and tags code of at most ``most`` messages from ``offset``.

        The tags code of a delayed message is when it is due, ms.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return []
        return list(ENTRY.iter_unpack(queue.entries(offset, most)))

    @property
    def delays(self) -> tuple[int, ...]:
        """How long each delay level waits, ms; the first is level 1."""
        return self._dispatcher.delays

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the record that begins at ``physical_offset``, None if none does."""
        return self._log.record_at(physical_offset)

    def last_records(self, most: int) -> list[tuple[int, bytes]]:
        """Return up to ``most`` of the last records that are in queues: physical offset and bytes.

        Oldest first. Only the queues that end last are read.
        """
        ends = heapq.nlargest(most, self._queues, key=lambda queue: queue.max_physical_offset)
        places = {
            offset
            for queue in ends
            for offset, *_ in ENTRY.iter_unpack(
                queue.entries(max(queue.min_offset, queue.max_offset - most), most)
            )
        }
        records = [(offset, self.record_at(offset)) for offset in sorted(places)[-most:]]
        return [(offset, record) for offset, record in records if record is not None]

    def is_in_memory(self, physical_offset: int) -> bool:
        """Whether a record there is near enough to the log's end to count as in memory."""
        return self._log.tail - physical_offset <= self.config.in_memory_bytes

    def is_on_disk(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether that message counts as on disk; False if the queue has no such entry."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry is not None and not self.is_in_memory(entry[0])

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset the queue's next message gets; 0 without a queue."""
        queue = self._queues.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.get(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def physical_offset_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return where in the log that message is; -1 if the queue has no such entry."""
        queue = self._queues.get(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry[0] if entry is not None else -1

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when that message was stored, ms; -1 if it is not there."""
        physical_offset = self.physical_offset_of(topic, queue_id, offset)
        return store_time_at(self._log, physical_offset) if physical_offset >= 0 else -1

    def search_offset(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of the message stored nearest to ``timestamp_ms``."""
        queue = self._queues.get(topic, queue_id)
        return offset_by_time(queue, self._log, timestamp_ms) if queue is not None else 0

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return when the queue's oldest message was stored, ms; -1 without one."""
        return self.store_time_of(topic, queue_id, self.min_queue_offset(topic, queue_id))

    def earliest_log_time(self) -> int:
        """Return when the log's oldest message was stored, ms; -1 without one."""
        return store_time_at(self._log, max(self._log.min_offset, 0))

    @property
    def max_physical_offset(self) -> int:
        """The log's end: the physical offset of the next byte."""
        return self._log.tail

    @property
    def min_physical_offset(self) -> int:
        """First byte of the oldest log file; -1 without one."""
        return self._log.min_offset

    @property
    def flushed_offset(self) -> int:
        """Everything before this physical offset is durable."""
        return self._log.flushed_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Log bytes whose records are not in the queues yet."""
        return self._log.tail - self._dispatcher.position

    @property
    def index_behind_bytes(self) -> int:
        """Log bytes whose records are not found by their keys yet."""
        return self._dispatcher.position - self._index.position

    @property
    def dispatch_stuck_at(self) -> int | None:
        """Where a slave's log stopped making sense; see Dispatcher."""
        return self._dispatcher.stuck_at

    @property
    def is_writable(self) -> bool:
        return self._refusal is None and not self.config.is_slave

    @property
    def checkpoint(self) -> StoreCheckpoint:
        return self._checkpoint

    # --- queues -----------------------------------------------------------------------------

    def queues(self) -> Iterator[tuple[str, int]]:
        """Yield topic and id of every queue that has, or had, messages."""
        return ((queue.topic, queue.queue_id) for queue in list(self._queues))

    def has_queue(self, topic: str, queue_id: int) -> bool:
        return self._queues.get(topic, queue_id) is not None

    def clean_expired_queues(self) -> None:
        """Delete the queues whose last message the log no longer holds; they begin again at 0."""
        self._queues.delete_expired(self._log.min_offset)

    def expire_by_hand(self) -> None:
        """Let the next rounds of :meth:`expire` delete old files at any hour."""
        self._expiry.order()

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of ``topic``; the log keeps the records."""
        self._queues.delete_topic(topic)


def _with_hosts(sys_flag: int, size: int, born_host: bytes, store_host: bytes) -> tuple[int, int]:
    """Return the flag and the size of a record with these hosts instead of two IPv4 ones.

    Raises:
        MessageIllegal: A host has neither 8 nor 20 bytes.
    """
    sys_flag &= ~_HOST_BITS
    for host, bit in ((born_host, BORN_HOST_V6), (store_host, STORE_HOST_V6)):
        if len(host) == 20:
            sys_flag |= bit
            size += 12
        elif len(host) != 8:
            raise MessageIllegal(f"host of {len(host)} bytes")
    return sys_flag, size


def _join_properties(own: bytes, batch: bytes) -> bytes:
    """Return the properties of a batch's message: its own, then those of the batch."""
    if own and batch and not own.endswith(b"\x02"):
        return own + b"\x02" + batch
    return own + batch
