"""What can be asked of an open store: messages, places, offsets, times."""

from __future__ import annotations

import contextlib
import heapq
import logging
from collections.abc import Generator, Iterator
from pathlib import Path

from failback.broker.store.config import StoreConfig
from failback.broker.store.index.index_query import QueryResult, query_messages
from failback.broker.store.index.index_service import IndexService
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.results import GetResult, ServiceNotAvailable
from failback.broker.store.log.unreadable import BAD_PAGE, ReadCheck, ReadFailed, touch
from failback.broker.store.queues.consume_queue import ENTRY, ConsumeQueue
from failback.broker.store.queues.entry_writer import EntryWriter
from failback.broker.store.queues.queue_table import QueueTable
from failback.broker.store.reading.filtered_reading import PropertyFilter
from failback.broker.store.reading.reading import get_messages, offset_by_time, store_time_at
from failback.broker.store.writing.dispatch import Dispatcher
from failback.common.text import where_and_why, why

logger = logging.getLogger(__name__)


class StoreReader:
    """The reading half of a message store. Only what is committed is seen."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        writer: EntryWriter,
        index: IndexService,
    ) -> None:
        self.config = config
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._writer = writer
        self._index = index
        self.read_check = ReadCheck(self._drop_mappings)
        self._closed: str | None = "the store is not loaded"
        """Why nothing can be read; None while the store is open."""

    def _dispatch_due(self) -> None:
        """Dispatch what a slave has got but left for later. Called before every read of a queue.

        While a slave is far behind with it, queues end where dispatch has come, as in 4.9.8.
        """

    def _dispatch_all(self) -> None:
        """As :meth:`_dispatch_due`, however much it is."""

    def _write_entries(self) -> bool:
        """As :meth:`_dispatch_due`, and write all entries that wait; return whether none does."""
        return True

    def _drop_mappings(self) -> None:
        """Let all files be mapped again."""

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that has all its entries."""
        self._dispatch_due()
        queue = self._queues.get(topic, queue_id)
        if queue is not None:
            self._writer.write(queue)
        return queue

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
            ReadFailed: The disk can't read what is asked for.
        """
        if self._closed is not None:
            raise ServiceNotAvailable(f"{self._closed}: group={group} topic={topic}")
        queue = self._queue(topic, queue_id)
        try:
            found = get_messages(
                queue, self._log, self.config, offset, max_msgs, tag_filter, matches
            )
            if touch(found.chunks, True) == self.read_check.known and (
                found.bytes or not found.message_count
            ):
                return found
        except OSError:
            pass  # as below
        return self._get_carefully(topic, queue_id, offset, max_msgs, tag_filter, matches)

    def _get_carefully(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tag_filter: frozenset[int] | None,
        matches: PropertyFilter | None,
    ) -> GetResult:
        """Read again: the zeros may have come from another read. Then the first message alone.

        So what lies before a bad page is handed out.
        """
        what = BAD_PAGE
        self.read_check.begin_again()
        for most in (max_msgs, 1):
            queue = self._queue(topic, queue_id)
            try:
                found = get_messages(
                    queue, self._log, self.config, offset, most, tag_filter, matches
                )
            except OSError as error:
                what = why(error)
                continue
            is_good = self.read_check.is_good(found.chunks, are_records=True)
            if is_good and (found.bytes or not found.message_count):
                return found
        raise self._unreadable(queue, offset, what)

    def _unreadable(self, queue: ConsumeQueue | None, offset: int, what: str) -> ReadFailed:
        """Count and log a read that failed; return what is raised."""
        path, position = self.config.root, 0
        with contextlib.suppress(OSError):
            if queue is not None and (file := queue.files.find(offset * ENTRY.size)) is not None:
                path, position = file.path, offset * ENTRY.size - file.start
                entry = queue.entry(offset)
                if entry is not None and entry[1] and (at := self._log.files.find(entry[0])):
                    path, position = at.path, entry[0] - at.start
        return self._failed_at(path, position, what)

    def _failed_at(self, path: Path, position: int, what: str) -> ReadFailed:
        error = ReadFailed(path, position, what)
        self.read_check.failures += 1
        logger.error("%s", error)
        return error

    def query_message(
        self, topic: str, key: str, most: int, begin: int, end: int
    ) -> Generator[None, None, QueryResult]:
        """Return the newest records of a topic with a key, stored from ``begin`` to ``end``, ms.

        At most ``most`` and ``max_msgs_num_batch``. A generator that yields between short steps
        and returns the result, so that a long search does not hold up the event loop.

        Raises:
            ServiceNotAvailable: The store is not open.
        """
        if self._closed is not None:
            raise ServiceNotAvailable(f"{self._closed}: topic={topic} key={key}")
        most = min(most, self.config.max_msgs_num_batch)
        return query_messages(self._index, self._log, topic, key, most, begin, end)

    def read_raw(self, physical_offset: int, max_bytes: int) -> memoryview:
        """Return log bytes for a slave, never across a file's end, blank rest included.

        Empty at and behind the tail, and before the oldest file.

        Raises:
            ReadFailed: The disk can't read them.
        """
        what = BAD_PAGE
        for _ in range(2):
            try:
                view = self._log.read(physical_offset, max_bytes)
                if self.read_check.is_good((view,), are_records=False):
                    return view
            except OSError as error:
                what = why(error)
        file = self._log.files.find(physical_offset)
        path = file.path if file is not None else self.config.commit_log_directory
        raise self._failed_at(path, physical_offset % self._log.files.file_bytes, what)

    def entries(
        self, topic: str, queue_id: int, offset: int, most: int
    ) -> list[tuple[int, int, int]]:
        """Return physical offset, size and tags code of at most ``most`` messages from ``offset``.

        The tags code of a delayed message is when it is due, ms.
        """
        queue = self._queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return []
        return list(ENTRY.iter_unpack(queue.entries(offset, most)))

    @property
    def delays(self) -> tuple[int, ...]:
        """How long each delay level waits, ms; the first is level 1."""
        return self._dispatcher.delays

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the record that begins at ``physical_offset``, None if none can be read there."""
        try:
            record = self._log.record_at(physical_offset)
            if self.read_check.is_good((), are_records=False):
                return record
            record = self._log.record_at(physical_offset)
            return record if self.read_check.is_good((), are_records=False) else None
        except OSError as error:
            logger.error("no record at %d: %s", physical_offset, where_and_why(error))
            return None

    def last_records(self, most: int) -> list[tuple[int, bytes]]:
        """Return up to ``most`` of the last records that are in queues: physical offset and bytes.

        Oldest first. Only the queues that end last are read.
        """
        self._dispatch_all()
        self._write_entries()
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
        queue = self._queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry is not None and not self.is_in_memory(entry[0])

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset the queue's next message gets; 0 without a queue."""
        queue = self._queue(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queue(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def physical_offset_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return where in the log that message is; -1 if the queue has no such entry."""
        queue = self._queue(topic, queue_id)
        entry = queue.entry(offset) if queue is not None else None
        return entry[0] if entry is not None else -1

    def store_time_of(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when that message was stored, ms; -1 if it is not there."""
        physical_offset = self.physical_offset_of(topic, queue_id, offset)
        return store_time_at(self._log, physical_offset) if physical_offset >= 0 else -1

    def search_offset(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of the message stored nearest to ``timestamp_ms``."""
        queue = self._queue(topic, queue_id)
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

    def dispatch_behind_bytes(self) -> int:
        """Dispatch what is due; return how many log bytes have no entries in the queues yet."""
        self._dispatch_due()
        return self._log.tail - self._dispatcher.position

    @property
    def index_behind_bytes(self) -> int:
        """Log bytes whose records are not found by their keys yet."""
        return self._dispatcher.position - self._index.position

    def dispatch_until_stuck(self) -> int | None:
        """Dispatch all that came; return where a slave's log stops making sense, else ``None``."""
        self._dispatch_all()
        return self._dispatcher.stuck_at

    # --- queues -----------------------------------------------------------------------------

    def queues(self) -> Iterator[tuple[str, int]]:
        """Yield topic and id of every queue that has, or had, messages."""
        self._dispatch_due()
        return ((queue.topic, queue.queue_id) for queue in list(self._queues))

    def has_topic(self, topic: str) -> bool:
        """Whether the topic has, or had, messages."""
        self._dispatch_due()
        return self._queues.has_topic(topic)

    def has_queue(self, topic: str, queue_id: int) -> bool:
        return self._queue(topic, queue_id) is not None
