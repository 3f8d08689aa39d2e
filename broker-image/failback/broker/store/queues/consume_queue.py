"""The consume queue: where in the log the messages of one (topic, queue id) are.

An entry is 20 bytes, big-endian, entry *n* at byte 20·n:

    | physical offset i64 | size i32 | tags code i64 |

The tags code is the Java hash of the tag, sign-extended, or the delivery time in ms for the
delay topic. A valid entry has an offset >= 0 and a size > 0, so zeros end the queue. A queue
whose first record is not its number 0 (a slave that began in mid-log) is filled up before it
with blank entries (0, 2^31 - 1, 0). Source: ConsumeQueue, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import struct
from enum import Enum
from pathlib import Path
from typing import Final

from failback.broker.store.config import ENTRY_BYTES
from failback.broker.store.log.mapped_file import MappedFile, MappedFileQueue
from failback.broker.store.log.unreadable import bad_pages
from failback.protocol.errors import CorruptStore

logger = logging.getLogger(__name__)

ENTRY: Final = struct.Struct(">qiq")
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK: Final = ENTRY.pack(0, PRE_BLANK_SIZE, 0)
_TORN_BLANK_SIZE: Final = 0x7F000000
"""The least that a write leaves of a blank entry that it ends in; no record is as large."""
_MOST_OFFSET: Final = (1 << 63) // ENTRY_BYTES - 1
"""The last entry whose place in the queue's files is a long of Java."""
_PRE_BLANK_PIECE: Final = 50_000  # entries written at a time: 1 MB


_SCAN_BYTES: Final = 4096 * ENTRY_BYTES  # checked at a time


def _valid_bytes(entries: bytes) -> int:
    """Return the bytes before the first entry that ends the queue.

    Looks at one byte of all entries at once where that is enough. A start reads up to three files
    of every queue, and taking every entry apart costs twenty times as much.
    """
    if not (entries[0::ENTRY_BYTES] + entries[8::ENTRY_BYTES]).isascii():  # a number below 0
        for number, (physical_offset, size, _) in enumerate(ENTRY.iter_unpack(entries)):
            if physical_offset < 0 or size <= 0:
                return number * ENTRY_BYTES
    low_bytes = entries[11::ENTRY_BYTES]
    number = low_bytes.find(0)
    while number >= 0:
        start = number * ENTRY_BYTES
        if entries[start + 8 : start + 12] == b"\0\0\0\0":  # no size
            return start
        number = low_bytes.find(0, number + 1)
    return len(entries)


class Offered(Enum):
    """What became of an entry that dispatch offered."""

    TAKEN = "taken"
    KNOWN = "already there"
    MISPLACED = "would leave a gap"


class ConsumeQueue:
    """One queue. Single writer; readers see entries below :attr:`max_offset`.

    Offsets are numbers of entries. ``next_offset`` is the one the next record gets: above
    ``committed_offset`` while its record is not written, which is above ``max_offset`` while the
    entry is not. ``max_physical_offset`` is the end of the last record entered here. ``pending``
    holds the entries that are not written, one or several in a piece.
    """

    __slots__ = (
        "committed_offset",
        "files",
        "fixed_bytes",
        "flushed_offset",
        "is_schedule",
        "max_offset",
        "max_physical_offset",
        "min_offset",
        "misplaced_count",
        "next_offset",
        "pending",
        "pending_codes",
        "queue_id",
        "topic",
        "topic_piece",
        "unsynced_directory",
    )

    def __init__(self, topic: str, topic_bytes: bytes, queue_id: int, files: MappedFileQueue):
        self.topic = topic
        self.queue_id = queue_id
        self.files = files
        self.topic_piece = bytes((len(topic_bytes),)) + topic_bytes
        """The topic as a record carries it."""
        self.fixed_bytes = 0
        """Size of a record with IPv4 hosts, no body and no properties."""
        self.is_schedule = False
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.committed_offset = 0
        self.flushed_offset = 0
        self.max_physical_offset = 0
        self.misplaced_count = 0
        """Entries refused because the ones before them are missing."""
        self.pending: list[bytes] = []
        self.pending_codes: list[int] = []
        self.unsynced_directory = False

    # --- writing ----------------------------------------------------------------------------

    def add(self, physical_offset: int, size: int, tags_code: int) -> None:
        """Queue the entry of the record that got :attr:`next_offset`."""
        self.pending.append(ENTRY.pack(physical_offset, size, tags_code))
        self.pending_codes.append(tags_code)
        self.next_offset += 1
        self.max_physical_offset = physical_offset + size

    def add_run(self, entries: list[bytes], codes: list[int], end_offset: int) -> None:
        """Queue the packed entries of adjacent records that end at ``end_offset`` of the log."""
        self.pending += entries
        self.pending_codes += codes
        self.next_offset += len(entries)
        self.max_physical_offset = end_offset

    def add_packed(self, entries: bytes, end_offset: int) -> None:
        """Queue entries that dispatch found; their records are written already."""
        self.pending.append(entries)
        self.next_offset += len(entries) // ENTRY_BYTES
        self.max_physical_offset = end_offset

    def offer(self, physical_offset: int, size: int, tags_code: int, queue_offset: int) -> Offered:
        """Queue the entry of a record found in the log, unless it is there or out of place.

        4.9.8 writes a misplaced entry all the same, and every reader of that queue gets wrong
        messages from then on. Here it is refused, so the queue ends before the gap.
        """
        if physical_offset + size <= self.max_physical_offset:
            return Offered.KNOWN
        is_possible = 0 <= queue_offset <= _MOST_OFFSET
        if is_possible and queue_offset and not self.files.files and self.next_offset == 0:
            self._begin_at(queue_offset)
        if is_possible and queue_offset < self.next_offset:
            return Offered.KNOWN
        if queue_offset != self.next_offset:
            self.misplaced_count += 1
            logger.error(
                "queue entry refused: topic=%s queue_id=%d expects queue_offset=%d, record at "
                "physical_offset=%d has %d",
                self.topic,
                self.queue_id,
                self.next_offset,
                physical_offset,
                queue_offset,
            )
            return Offered.MISPLACED
        self.add(physical_offset, size, tags_code)
        return Offered.TAKEN

    def _begin_at(self, queue_offset: int) -> None:
        """Create the first file and fill it with blank entries up to ``queue_offset``."""
        position = queue_offset * ENTRY_BYTES
        file = self.files.file_for_writing(position)
        self.unsynced_directory = True
        first = file.start // ENTRY_BYTES
        for offset in range(first, queue_offset, _PRE_BLANK_PIECE):
            count = min(_PRE_BLANK_PIECE, queue_offset - offset)
            self.files.write_at(offset * ENTRY_BYTES, PRE_BLANK * count)
        self.min_offset = self.max_offset = self.next_offset = queue_offset
        self.flushed_offset = first

    def commit(self) -> list[int]:
        """Note that the records of all pending entries are written.

        Returns their tags codes since the last call.
        """
        self.committed_offset = self.next_offset
        codes, self.pending_codes = self.pending_codes, []
        return codes

    def write_committed(self) -> None:
        """Write the entries that are committed and make them readable.

        Raises:
            OSError: The disk did not take them.
        """
        offset, committed = self.max_offset, self.committed_offset
        size = (committed - offset) * ENTRY_BYTES
        if size <= 0:
            return
        data = b"".join(self.pending)
        rest = data[size:]
        if rest:
            data = data[:size]
        position = offset * ENTRY_BYTES
        file_bytes = self.files.file_bytes
        room = file_bytes - position % file_bytes
        if room == file_bytes or len(data) > room:
            self.unsynced_directory = True
        while data:
            self.files.write_at(position, data[:room] if len(data) > room else data)
            position += min(room, len(data))
            data, room = data[room:], file_bytes
        self.max_offset = committed
        self.pending = [rest] if rest else []

    def drop_pending(self) -> None:
        """Forget the pending entries that are not committed."""
        kept = max(self.committed_offset, self.max_offset)
        data = b"".join(self.pending)[: (kept - self.max_offset) * ENTRY_BYTES]
        self.pending = [data] if data else []
        self.pending_codes = []
        self.next_offset = kept

    # --- reading ----------------------------------------------------------------------------

    def entries(self, queue_offset: int, max_entries: int) -> memoryview:
        """Return entries from ``queue_offset``, at most to the end of their file."""
        limit = min(queue_offset + max_entries, self.max_offset)
        return self.files.read(queue_offset * ENTRY_BYTES, limit * ENTRY_BYTES)

    def entry(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return physical offset, size and tags code; None outside the queue."""
        view = self.entries(queue_offset, 1) if queue_offset >= 0 else memoryview(b"")
        if len(view) != ENTRY_BYTES:
            return None
        physical_offset, size, tags_code = ENTRY.unpack(view)
        return physical_offset, size, tags_code

    def next_file_offset(self, queue_offset: int) -> int:
        """Return the first entry of the file behind the one that holds ``queue_offset``."""
        per_file = self.files.file_bytes // ENTRY_BYTES
        return queue_offset - queue_offset % per_file + per_file

    # --- recovery ---------------------------------------------------------------------------

    def recover(self) -> None:
        """Find the end of the queue: from the third-last file on, the first invalid entry.

        Raises:
            CorruptStore: The disk can't read a file: what lies behind may be good.
        """
        files = self.files.files
        if not files:
            return
        end, known = files[max(len(files) - 3, 0)].start, bad_pages()
        for file in files[max(len(files) - 3, 0) :]:
            count = self._valid_entries(file)
            end = file.start + count * ENTRY_BYTES
            if bad_pages() != known and not self.files.is_readable(file):
                raise CorruptStore(file.path, end - file.start, "the disk can't read here")
            if end < file.end:
                break
        self.min_offset = files[0].start // ENTRY_BYTES
        self._end_at(end)

    def _valid_entries(self, file: MappedFile) -> int:
        view, at = self.files.handle(file).view(), 0
        while at < len(view):
            piece = bytes(view[at : min(at + _SCAN_BYTES, self.files.data_end(file, at))])
            # The rest of an entry may lie in the hole behind: it is zeros.
            piece += bytes(-len(piece) % ENTRY_BYTES)
            valid = _valid_bytes(piece)
            at += valid
            if not piece or valid < len(piece):
                break
        return at // ENTRY_BYTES

    def truncate(self, physical_offset: int) -> int:
        """Drop the entries of records at or behind ``physical_offset``; return how many."""
        kept = self._first_at(physical_offset)
        dropped = self.max_offset - kept
        if dropped:
            self._end_at(kept * ENTRY_BYTES)
        return dropped

    def drop_last(self, physical_offset: int) -> None:
        """Drop the last entry if its record lies at or behind ``physical_offset``."""
        last = self.entry(self.max_offset - 1)
        if last is not None and last[0] >= physical_offset:
            self._end_at((self.max_offset - 1) * ENTRY_BYTES)

    def _first_at(self, physical_offset: int) -> int:
        """Return the first entry of a record at or behind ``physical_offset``, or the end.

        A hole counts as such an entry: a power loss leaves some among the unflushed ones.
        """
        low = high = self.max_offset
        for file in reversed(self.files.files):  # entries ascend; old files stay closed
            low = min(file.start // ENTRY_BYTES, high)
            if self._is_before(low, physical_offset):
                break
            high = low
        while low < high:
            middle = (low + high) // 2
            if self._is_before(middle, physical_offset):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_before(self, queue_offset: int, physical_offset: int) -> bool:
        entry = self.entry(queue_offset)
        return entry is not None and entry[1] > 0 and entry[0] < physical_offset

    def _end_at(self, end: int) -> None:
        """Let the queue end at byte ``end``: later files are deleted, what is behind it zeroed.

        Zeroed because a later recovery would take old entries there for new ones.
        """
        self.max_offset = end // ENTRY_BYTES
        if self.max_offset == 0:
            self.destroy()
            return
        last = self.entry(self.max_offset - 1)
        deleted = self.files.delete_after(end)
        if self.files.zero_from(end) or deleted:
            self.unsynced_directory = True  # until then a power loss brings back what was there
        self.next_offset = self.committed_offset = self.flushed_offset = self.max_offset
        if last is None or last[1] >= _TORN_BLANK_SIZE:
            # Its records are gone, and their offsets are not given again. A record of a later
            # offset, found in the log, begins the queue again.
            self.min_offset, self.max_physical_offset = self.max_offset, 0
        else:
            self.max_physical_offset = last[0] + last[1]

    def drop_before(self, min_physical_offset: int) -> list[Path]:
        """Forget the oldest files, never the last, that end before a physical offset."""
        dropped = []
        while len(self.files.files) > 1:
            last = self.entry(self.files.files[0].end // ENTRY_BYTES - 1)
            if last is None or last[0] >= min_physical_offset:
                break
            dropped.append(self.files.drop_first())
        return dropped

    def correct_min_offset(self, min_physical_offset: int) -> None:
        """Let the queue begin at the first entry of its first file that the log still holds.

        Without such an entry it stays as it is. Pre-blank entries never count; in 4.9.8 they do
        while the log begins at 0.
        """
        if not self.files.files:
            return
        first = self.files.start // ENTRY_BYTES
        low, high = first, min(self.next_file_offset(first), self.max_offset)
        end = high
        while low < high:  # entries ascend, blank ones come first
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is None or entry[0] < min_physical_offset or entry[1] == PRE_BLANK_SIZE:
                low = middle + 1
            else:
                high = middle
        if low < end:
            self.min_offset = low

    def distrust(self, physical_offset: int) -> None:
        """Count the entries of records at or behind ``physical_offset`` as not flushed."""
        if self.max_physical_offset <= physical_offset and not self.unsynced_directory:
            return
        first = min(self._first_at(physical_offset), max(self.max_offset - 1, 0))
        self.flushed_offset = min(self.flushed_offset, first)
        self.unsynced_directory = bool(self.files.files)

    def destroy(self) -> None:
        """Delete the files; the queue is empty again."""
        self.files.delete_all()
        self.min_offset = self.max_offset = self.next_offset = self.flushed_offset = 0
        self.max_physical_offset = self.committed_offset = 0
        self.drop_pending()
