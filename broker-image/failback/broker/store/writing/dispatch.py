"""Dispatch: from records in the log to entries in the consume queues.

ReputMessageService of 4.9.8. A master's appends make their entries directly. This module reads the
log on a slave, and at start for what the queues don't hold yet. The index of keys follows
:attr:`Dispatcher.position` at its own pace.
"""

from __future__ import annotations

import logging
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, cast

from failback.broker.native import kernels
from failback.broker.store.index.index_keys import PackedKeys, RecordParts, pack_keys
from failback.broker.store.log.commit_log import CommitLog
from failback.broker.store.log.deletion import Deleted, Deletion, deletion_of
from failback.broker.store.log.record import (
    HEAD_BYTES,
    TAGS,
    Problem,
    Record,
    announced_size,
    delay_level_of,
    has_queue_entry,
    read_record,
    tags_code_of,
)
from failback.broker.store.log.results import MessageIllegal
from failback.broker.store.queues.consume_queue import ENTRY, ConsumeQueue, Offered
from failback.broker.store.queues.queue_table import QueueTable
from failback.protocol.codes import (
    BORN_HOST_V6,
    SCHEDULE_TOPIC,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from failback.protocol.errors import ConfigError
from failback.protocol.message import V1_MAGIC

logger = logging.getLogger(__name__)

_MOST_PENDING: Final = 8192  # entries; a recovery of many records must not gather them all
_MOST_IN_ONE_GO: Final = 1 << 20
"""Bytes of the log."""
_HEAD: Final = struct.Struct(">iI4xi4xqqi16xq20xi")
"""Of a record with IPv4 hosts: size, magic, queue id, queue offset, physical offset, sysFlag,
store timestamp, body length."""
_RARE_FLAGS: Final = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_PREPARED
"""Longer hosts, and what prepared and rolled back records have in common."""
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
_MOST_MS: Final = (1 << 63) - 1
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"(\d+)([smhd])")

Group = tuple[bytes, int, int, int, int, bytes]
"""Adjacent entries of one queue: topic, queue id, offset of the first, end of the first's record,
end of the last's, the entries."""
ScanPlain = Callable[
    [memoryview, int, int, int, bytes, bool], tuple[int, int, int, list[Group], PackedKeys]
]
_scan_plain: ScanPlain | None = kernels.scan_plain if kernels is not None else None


def delay_table(levels: str, scale: float = 1.0) -> tuple[int, ...]:
    """Return the delays of level 1, 2, ... in ms, each multiplied by ``scale``.

    Raises:
        ConfigError: It has another form than ``1s 5m 2h``.
    """
    delays = []
    for text in levels.split():
        part = _LEVEL.fullmatch(text)
        if part is None:
            raise ConfigError("messageDelayLevel", f"{text!r} is no delay like 30s, 5m, 2h or 1d")
        delays.append(round(int(part[1]) * _UNIT_MS[part[2]] * scale))
    return tuple(delays)


def delivery_time(properties: bytes, store_timestamp: int, delays: tuple[int, ...]) -> int:
    """Return what the entry of a delayed record carries: when to deliver it, ms, an int64."""
    level = min(delay_level_of(properties), len(delays))
    if level <= 0:
        return tags_code_of(properties)
    return min(store_timestamp + delays[level - 1], _MOST_MS)


def _known_entries(entries: bytes, max_physical_offset: int) -> int:
    """Return how many of a queue's entries are of records up to there; they ascend."""
    return bisect_right(
        range(len(entries) // ENTRY.size),
        max_physical_offset,
        key=lambda number: _end_of(entries, number),
    )


def _end_of(entries: bytes, number: int) -> int:
    physical_offset, size, _ = ENTRY.unpack_from(entries, number * ENTRY.size)
    end: int = physical_offset + size
    return end


class Dispatcher:
    """Enters the log's records into their queues, from :attr:`position` on.

    Attributes:
        position: Everything below it is dispatched.
        stuck_at: Where a slave found bytes that are no record, or failed to enter one. Like 4.9.8
            it keeps taking and acknowledging log bytes, while its queues stay as they are.
        store_timestamp: Of the last record dispatched, ms.
        touched: Queues with pending entries.
        keyed: Where to note dispatched records for the index, which else reads them once more; of
            what a kernel dispatched, their keys.
        delays: How long each delay level waits, ms.
        on_deletion: Called with each deletion that the log tells of, after its queues are gone.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        write: Callable[[Iterable[ConsumeQueue]], None],
        delays: tuple[int, ...],
    ) -> None:
        """``write`` takes queues with committed entries; ``delays`` are ms, first that of level 1.

        ``write`` may raise OSError.
        """
        self._log = log
        self._queues = queues
        self._find_queue = queues.find_or_create
        self._write = write
        self.delays = delays
        self.position = 0
        self.stuck_at: int | None = None
        self.store_timestamp = 0
        self.touched: dict[ConsumeQueue, None] = {}
        self.keyed: list[RecordParts | PackedKeys] | None = None
        self.on_deletion: Callable[[Deletion], None] | None = None
        self._pending_count = 0
        self._one_by_one_end = 0

    def enter(self, record: Record, physical_offset: int) -> None:
        """Offer one record's entry to its queue."""
        self.store_timestamp = record.store_timestamp
        if self.keyed is not None and record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            topic_piece = bytes((len(record.topic),)) + record.topic
            self.keyed.append(
                (physical_offset, record.store_timestamp, topic_piece, record.properties)
            )
        if not has_queue_entry(record.sys_flag):
            self._take_deletion(record, physical_offset)
            return
        try:
            queue = self._find_queue(record.topic, record.queue_id)
        except MessageIllegal as error:
            logger.error("record at physical_offset=%d not dispatched: %s", physical_offset, error)
            return
        code = self.entry_code(queue, record.properties, record.store_timestamp)
        if (
            record.queue_offset > queue.next_offset
            and queue.max_offset
            and queue.max_physical_offset <= self._log.min_offset
        ):
            # A power loss took entries whose records expired since: nothing of them is missing.
            queue.destroy()
        elif (
            record.queue_offset == 0
            and queue.next_offset
            and physical_offset >= queue.max_physical_offset
        ):
            # The queue was deleted and made again where nothing in the log says so: by a Java
            # broker, or because all it had was expired. What it has ends here.
            logger.warning(
                "%s queue %d begins again at physical_offset=%d",
                queue.topic,
                queue.queue_id,
                physical_offset,
            )
            queue = self._queues.begin_again(queue)
        taken = queue.offer(physical_offset, record.size, code, record.queue_offset)
        if taken is Offered.TAKEN:
            self.touched[queue] = None
            self._pending_count += 1
            if self._pending_count >= _MOST_PENDING:
                self.write_touched()

    def _take_deletion(self, record: Record, physical_offset: int) -> None:
        deletion = deletion_of(record)
        if deletion is None:
            return
        if deletion.kind is Deleted.TOPIC:
            self._queues.delete_topic(deletion.name, before=physical_offset)
        if self.on_deletion is not None:
            self.on_deletion(deletion)

    def enter_good(self, view: memoryview, start: int, at: int, stop: int) -> None:
        """Offer the entries of good records, bytes ``at`` to ``stop`` of a file from ``start``."""
        while True:
            at, _ = self._enter_plain(view, at, start, stop)
            if at >= stop:
                return
            found = read_record(view, at, start + at, check_crc=False)
            if not isinstance(found, Record):
                raise ValueError(f"no record at physical_offset={start + at}: {found.value}")
            self.enter(found, start + at)
            at += found.size

    def entry_code(self, queue: ConsumeQueue, properties: bytes, store_timestamp: int) -> int:
        if queue.is_schedule:
            return delivery_time(properties, store_timestamp, self.delays)
        return tags_code_of(properties)

    def take_keyed(self) -> list[RecordParts] | PackedKeys:
        """Return what :attr:`keyed` got; nothing is noted from now on."""
        keyed, self.keyed = self.keyed or [], None
        if pack_keys is not None:
            return pack_keys(keyed)
        return cast("list[RecordParts]", keyed)  # who has no kernels packs nothing

    def write_touched(self) -> None:
        """Let the pending entries of all touched queues be written."""
        for queue in self.touched:
            queue.commit()
        self._write(self.touched)
        self.touched.clear()
        self._pending_count = 0

    def catch_up(self, most_bytes: int | None = None) -> int:
        """Dispatch up to the log's tail, as far as records are whole; return how many.

        ``most_bytes`` ends it with the record that reaches so far.

        Raises:
            OSError: A queue could not be written.
        """
        count = 0
        goal = self._log.tail if most_bytes is None else self.position + most_bytes
        while self.stuck_at is None and self.position < min(goal, self._log.tail):
            view = self._log.read(self.position, self._log.files.file_bytes)
            done, advanced = self._dispatch_view(view, goal - self.position)
            self.write_touched()
            count += done
            if not advanced:
                break
        return count

    def catch_up_in_background(self, most_bytes: int) -> None:
        """As :meth:`catch_up`, where no caller would handle an error of another kind.

        It stops dispatch for good: the next request would only fail there again.

        Raises:
            OSError: A queue could not be written.
        """
        try:
            self.catch_up(most_bytes)
        except OSError:
            raise
        except Exception:
            self.stuck_at = self.position
            logger.exception(
                "dispatch failed behind physical_offset=%d. The queues stay as they are until the "
                "broker is started again",
                self.position,
            )

    def _dispatch_view(self, view: memoryview, stop: int) -> tuple[int, int]:
        """Dispatch the whole records that begin in the first ``stop`` bytes of ``view``.

        ``view`` is the rest of a file, or what there is of it.
        """
        start, at, count = self.position, 0, 0
        while True:
            at, entered = self._enter_plain(view, at, start, stop)
            count += entered
            if at >= min(stop, len(view)):
                break
            found = read_record(view, at, start + at, check_crc=False)
            if isinstance(found, Record):
                self.enter(found, start + at)
                at += found.size
                count += 1
                continue
            skip = self._beside_a_record(found, view, at, start + at)
            if not skip:
                break
            at += skip
        self.position = start + at
        return count, at

    def _enter_plain(self, view: memoryview, at: int, start: int, stop: int) -> tuple[int, int]:
        """Enter plain records from byte ``at`` of ``view`` on; return where that ends, how many.

        None begins at byte ``stop`` or behind it.

        Plain is a whole record with IPv4 hosts and an entry that comes next in a queue without
        delays: nearly every one that a slave gets. All others, and every error, are left
        to :func:`read_record` and :meth:`enter`, which do the same at twice the cost.

        A kernel sorts the entries by queue; it knows no queue. Where a queue does not continue with
        what the kernel found, the same records are entered one by one. Entries that it has already
        do not count.
        """
        if _scan_plain is None or start + at < self._one_by_one_end:
            return self._enter_one_by_one(view, at, start, stop)
        last = min(stop, at + _MOST_IN_ONE_GO)
        end, count, timestamp, groups, keys = _scan_plain(
            view, at, start, last, _SCHEDULE_TOPIC, self.keyed is not None
        )
        if not count:
            return at, 0
        fitting = self._fitting(groups)
        if fitting is None:
            self._one_by_one_end = start + end
            return self._enter_one_by_one(view, at, start, stop)
        for queue, entries, entries_end in fitting:
            queue.add_packed(entries, entries_end)
            self.touched[queue] = None
        self._note_plain(sum(len(entries) for _, entries, _ in fitting) // ENTRY.size, timestamp)
        if self.keyed is not None:
            self.keyed.append(keys)
        return end, count

    def _fitting(self, groups: list[Group]) -> list[tuple[ConsumeQueue, bytes, int]] | None:
        """Return each queue with the entries that it lacks, and the end of the last's record.

        None if one of them does not take all that it lacks.
        """
        fitting = []
        for topic, queue_id, first_offset, first_end, end, entries in groups:
            try:
                queue = self._find_queue(topic, queue_id)
            except MessageIllegal:
                return None
            if queue.is_schedule:
                return None
            if queue.max_physical_offset >= end:
                continue
            if queue.max_physical_offset >= first_end:
                known = _known_entries(entries, queue.max_physical_offset)
                first_offset += known
                entries = entries[known * ENTRY.size :]
            if queue.next_offset != first_offset:
                return None
            fitting.append((queue, entries, end))
        return fitting

    def _note_plain(self, count: int, timestamp: int) -> None:
        self.store_timestamp = timestamp
        self._pending_count += count
        if self._pending_count >= _MOST_PENDING:
            self.write_touched()

    def _enter_one_by_one(
        self, view: memoryview, at: int, start: int, stop: int
    ) -> tuple[int, int]:
        """Do what :meth:`_enter_plain` does, without a kernel; twin of ``native/dispatch.c``."""
        end, count = len(view), 0
        last = min(stop, end - HEAD_BYTES, at + _MOST_IN_ONE_GO)
        unpack, pack, keyed, touched = _HEAD.unpack_from, ENTRY.pack, self.keyed, self.touched
        of_topic: dict[int, ConsumeQueue] = {}
        queue: ConsumeQueue  # of the record before, and what goes with it
        pending: list[bytes]
        queue_of: int | None = None
        piece, head = b"", 0
        timestamp = self.store_timestamp
        while at < last:
            size, magic, queue_id, queue_offset, own, flags, stored, body = unpack(view, at)
            rest_start, record_end = at + HEAD_BYTES + body, at + size
            if magic != V1_MAGIC or flags & _RARE_FLAGS or own != start + at or body < 0:
                break
            if not rest_start < record_end <= end:
                break
            rest = bytes(view[rest_start:record_end])  # topic and properties, with their lengths
            is_same_topic = rest.startswith(piece)
            if queue_id != queue_of or not is_same_topic:
                if not is_same_topic:
                    of_topic = {}
                found = of_topic.get(queue_id) or self._queue_of(rest, queue_id)
                if found is None:
                    break
                of_topic[queue_id] = queue = found
                queue_of, pending = queue_id, queue.pending
                piece, head = queue.topic_piece, len(queue.topic_piece) + 2
            properties = rest[head:]
            record_end_offset = own + size
            if head > len(rest) or (rest[head - 2] << 8 | rest[head - 1]) != len(properties):
                break
            if record_end_offset > queue.max_physical_offset:
                if queue_offset != queue.next_offset:
                    break
                code = tags_code_of(properties) if TAGS in properties else 0
                pending.append(pack(own, size, code))
                touched[queue] = None
                queue.next_offset = queue_offset + 1
                queue.max_physical_offset = record_end_offset
            timestamp = stored
            if keyed is not None:
                keyed.append((own, stored, piece, properties))
            at, count = record_end, count + 1
        self._note_plain(count, timestamp)
        return at, count

    def _queue_of(self, rest: bytes, queue_id: int) -> ConsumeQueue | None:
        """Return the queue of a record, ``rest`` begins with its topic; None if it is not plain."""
        topic_end = rest[0] + 1
        properties_bytes = len(rest) - topic_end - 2
        if properties_bytes < 0 or (rest[topic_end] << 8 | rest[topic_end + 1]) != properties_bytes:
            return None
        try:
            queue = self._find_queue(rest[1:topic_end], queue_id)
        except MessageIllegal:
            return None
        return None if queue.is_schedule else queue

    def _beside_a_record(
        self, problem: Problem, view: memoryview, at: int, physical_offset: int
    ) -> int:
        """Return how many bytes to skip where no good record is; 0 = wait for more or stop."""
        size = self._log.files.file_bytes
        file_rest = size - physical_offset % size
        if problem is Problem.BLANK:
            # The zeros behind it arrive like data; a slave may have to wait for the last of them.
            return file_rest if physical_offset + file_rest <= self._log.tail else 0
        announced = announced_size(view, at) if len(view) - at >= 8 else 0
        if problem is Problem.CUT_OFF and announced <= file_rest:
            return 0
        if problem is Problem.BAD_LENGTHS and 0 < announced <= file_rest:
            logger.error(
                "physical_offset=%d: %s; its %d bytes are skipped",
                physical_offset,
                problem.value,
                announced,
            )
            return min(announced, len(view) - at)
        self.stuck_at = physical_offset
        logger.error(
            "dispatch stops at physical_offset=%d: %s. The queues stay as they are; wipe this "
            "store and let it copy its master again",
            physical_offset,
            problem.value,
        )
        return 0
