"""Reading messages of one queue: what a pull gets, and looking offsets up by time.

DefaultMessageStore.getMessage and ConsumeQueue.getOffsetInQueueByTime, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from failback.broker.native import kernels
from failback.broker.store.config import StoreConfig
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.record import HEAD_BYTES
from failback.broker.store.log.results import GetResult, GetStatus
from failback.broker.store.queues.consume_queue import ENTRY, ConsumeQueue
from failback.broker.store.reading.filtered_reading import PropertyFilter, scan_filtered
from failback.protocol.codes import BORN_HOST_V6

_LEAST_ENTRIES: Final = 800
"""How many entries one read may examine, unless more messages are asked for."""
_SYS_FLAG_POSITION: Final = 36
_STORE_TIMESTAMP_POSITION: Final = 56
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")

_Walked = tuple[int, int, int, int, int, list[tuple[int, int]]]
"""The status if there is no message; how many entries were examined, how many messages found, their
bytes; the place of the last one examined; spans of the log that hold them."""
_walk_entries: Final[Callable[..., _Walked | None] | None] = (
    kernels.walk_entries if kernels is not None else None
)


def get_messages(
    queue: ConsumeQueue | None,
    log: CommitLog,
    config: StoreConfig,
    queue_offset: int,
    max_messages: int,
    tag_filter: frozenset[int] | None,
    matches: PropertyFilter | None = None,
) -> GetResult:
    """Return up to ``max_messages`` messages from ``queue_offset`` on, or why there are none.

    ``tag_filter`` holds the hashes of the wanted tags; None takes all. ``matches`` decides by a
    message's properties instead.
    """
    if queue is None or queue.max_offset == 0:
        status, next_offset = GetStatus.NO_MESSAGE_IN_QUEUE, 0
        return GetResult(status, _corrected(next_offset, queue_offset, config), 0, 0)
    low, high = queue.min_offset, queue.max_offset
    if queue_offset < low:
        status, next_offset = GetStatus.OFFSET_TOO_SMALL, low
    elif queue_offset == high:
        status, next_offset = GetStatus.OFFSET_OVERFLOW_ONE, queue_offset
    elif queue_offset > high:
        status, next_offset = GetStatus.OFFSET_OVERFLOW_BADLY, high
    else:
        entries = queue.entries(queue_offset, max(_LEAST_ENTRIES, max_messages))
        if len(entries) and matches is not None:
            return scan_filtered(
                log,
                config,
                entries,
                queue_offset=queue_offset,
                ends=(low, high),
                max_messages=max_messages,
                matches=matches,
            )
        if len(entries):
            scan = _Scan(log, config, max_messages, tag_filter)
            return scan.run(entries, queue_offset, low, high)
        status, next_offset = GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(queue_offset)
    return GetResult(status, _corrected(next_offset, queue_offset, config), low, high)


def _corrected(next_offset: int, asked: int, config: StoreConfig) -> int:
    """Return where to go on; a slave keeps the asked offset unless it is configured to check."""
    return asked if config.is_slave and not config.offset_check_in_slave else next_offset


class _Scan:
    """One walk over queue entries; adjacent records become one view of the log."""

    def __init__(
        self,
        log: CommitLog,
        config: StoreConfig,
        max_messages: int,
        tag_filter: frozenset[int] | None,
    ) -> None:
        self._log = log
        self._tag_filter = tag_filter
        self._in_memory_from = log.tail - config.in_memory_bytes
        """A record that begins below this counts as on disk."""
        self._memory_limits = (
            min(config.max_transfer_count_in_memory, max_messages),
            config.max_transfer_bytes_in_memory,
        )
        self._disk_limits = (
            min(config.max_transfer_count_on_disk, max_messages),
            config.max_transfer_bytes_on_disk,
        )

    def run(self, entries: memoryview, queue_offset: int, low: int, high: int) -> GetResult:
        """Walk ``entries``, which begin at ``queue_offset`` of a queue from low to high."""
        walked, log = None, self._log
        if _walk_entries is not None:
            # The kernel takes arguments by position only: naming them costs time per pull.
            walked = _walk_entries(
                entries,
                self._tag_filter,
                log.min_offset,
                log.tail,
                log.files.file_bytes,
                self._in_memory_from,  # the 40 % test: records below it count as on disk
                self._memory_limits,
                self._disk_limits,
            )
        if walked is None:
            walked = self.walk(entries)
        status, examined, count, total, last_examined, spans = walked
        return GetResult(
            GetStatus.FOUND if count else GetStatus(status),
            queue_offset + examined,
            low,
            high,
            last_examined < self._in_memory_from,
            log.files.read_spans(spans),
            count,
            total,
        )

    def walk(self, entries: memoryview) -> _Walked:
        """Choose entries: the twin of ``walk_entries`` in ``native``.

        ``filtered_reading.scan_filtered`` has the same test of memory or disk, record by record.
        """
        status = GetStatus.NO_MATCHED_MESSAGE
        log_tail, file_bytes = self._log.tail, self._log.files.file_bytes
        log_start = self._log.min_offset
        tag_filter, in_memory_from = self._tag_filter, self._in_memory_from
        examined = count = total = 0
        run_start = run_end = run_limit = 0
        skip_below = last_examined = -1
        spans: list[tuple[int, int]] = []
        for physical_offset, size, tags_code in ENTRY.iter_unpack(entries):
            last_examined = physical_offset
            if physical_offset < skip_below:
                examined += 1
                continue
            if count:
                limits = (
                    self._disk_limits if physical_offset < in_memory_from else self._memory_limits
                )
                if count >= limits[0] or total + size > limits[1]:
                    break
            examined += 1
            if tag_filter is not None and _as_int32(tags_code) not in tag_filter:
                status = GetStatus.NO_MATCHED_MESSAGE
                continue
            end = physical_offset + size
            if physical_offset != run_end or end > run_limit:
                # Not in one piece with the records before it: is it there at all?
                file_end = physical_offset - physical_offset % file_bytes + file_bytes
                if physical_offset < log_start or end > min(file_end, log_tail):
                    skip_below = file_end
                    status = GetStatus.MESSAGE_WAS_REMOVING
                    continue
                if run_end > run_start:
                    spans.append((run_start, run_end))
                run_start, run_limit = physical_offset, min(file_end, log_tail)
            run_end = end
            count += 1
            total += size
            skip_below = -1
        if run_end > run_start:
            spans.append((run_start, run_end))
        return status, examined, count, total, last_examined, spans


def _as_int32(code: int) -> int:
    """Return ``code`` as Java's ``intValue`` does: delivery times don't fit 32 bits."""
    return (code + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def store_time_at(log: CommitLog, physical_offset: int) -> int:
    """Return the store timestamp, ms, of the record there; -1 if the log does not hold it."""
    head = log.record(physical_offset, HEAD_BYTES)
    if head is None:
        return -1
    (sys_flag,) = _I32.unpack_from(head, _SYS_FLAG_POSITION)
    position = _STORE_TIMESTAMP_POSITION + (12 if sys_flag & BORN_HOST_V6 else 0)
    time: int = _I64.unpack_from(head, position)[0]
    return time


class _StoreTimes:
    """The store timestamps of a queue's entries, as a sequence that is read on demand."""

    def __init__(self, queue: ConsumeQueue, log: CommitLog) -> None:
        self._queue = queue
        self._log = log

    def __len__(self) -> int:
        return self._queue.max_offset - self._queue.min_offset

    def __getitem__(self, index: int) -> int:
        """Return ms; -1 for an entry whose record the log no longer holds."""
        entry = self._queue.entry(self._queue.min_offset + index)
        if entry is None or entry[0] < self._log.min_offset:
            return -1
        return store_time_at(self._log, entry[0])


def offset_by_time(queue: ConsumeQueue, log: CommitLog, timestamp_ms: int) -> int:
    """Return the queue offset of the message stored nearest to ``timestamp_ms``.

    Of the neighbours before and after, the nearer; with none after, the last message (so a
    time in the future gives max - 1); 0 for a queue without readable messages. Of several with
    that very time, the first. 4.9.8 picks the queue file by its modification time; the records
    say the same, and still do after a store was copied.
    """
    times = _StoreTimes(queue, log)
    after = bisect_left(times, timestamp_ms)
    if after == len(times):
        return queue.min_offset + after - 1 if len(times) and times[after - 1] >= 0 else 0
    before = after - 1
    if before < 0 or times[before] < 0:
        return queue.min_offset + after
    nearer = after if timestamp_ms - times[before] > times[after] - timestamp_ms else before
    return queue.min_offset + nearer
