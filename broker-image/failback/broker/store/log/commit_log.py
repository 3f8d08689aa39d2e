"""The commit log: every message of the broker, one behind the other.

    file 0                                   file 1
    | record | record | ... | blank | zeros | record | ...          tail
                                                                       ^ next byte to be written

A record never spans two files. One that does not fit leaves a blank record and opens the next file,
so every file keeps 8 bytes for it. The length of a blank record is all that is left, its magic
CBD43194.

Records are gathered in a *pending run* and go to the disk in one write (two where the run
crosses a file's end). The tail moves last: a record whose write failed half-way is never
readable. Single writer: the broker's event loop.

Room on the disk is allocated before a record gets its place, some MiB at a time. So a full disk
refuses a message, while its request can still be answered, and never a whole run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from failback.broker.disk_errors import is_fatal
from failback.broker.store.log.mapped_file import MappedFileQueue
from failback.broker.store.log.record import BLANK_BYTES, Record, pack_blank, read_record
from failback.broker.store.log.results import MessageIllegal
from failback.protocol.errors import StoreError

PAGE_BYTES: Final = 4096
LEAST_ROOM_BYTES: Final = 1 << 20
MOST_ROOM_BYTES: Final = 16 << 20
"""How much room a log takes on the disk at a time: as much as it has written since its start,
within these two. Taking it costs 0.1 ms, and a small broker should not hold what it never uses."""


class Placement(NamedTuple):
    """Where a record goes; ``blank_bytes`` are left unused before it."""

    physical_offset: int
    blank_bytes: int = 0


def place_record(tail: int, record_bytes: int, mapped_file_bytes: int) -> Placement:
    """Choose the physical offset of the next record or batch of ``record_bytes``.

    A batch is placed as a whole: if it does not fit, nothing of it goes into the old file.

    Raises:
        MessageIllegal: It would not fit into an empty file either.
    """
    needed = record_bytes + BLANK_BYTES
    if needed > mapped_file_bytes:
        limit = mapped_file_bytes - BLANK_BYTES
        raise MessageIllegal(f"{record_bytes} bytes do not fit a file, which takes {limit}")
    free = mapped_file_bytes - tail % mapped_file_bytes
    if needed > free:
        return Placement(tail + free, free)
    return Placement(tail)


def flush_is_due(flushed_offset: int, tail: int, mapped_file_bytes: int, least_pages: int) -> bool:
    """Whether a timed flush should sync (MappedFile.isAbleToFlush); 0 pages: anything dirty.

    A file that has become full is always synced.
    """
    if tail <= flushed_offset:
        return False
    if tail // mapped_file_bytes > flushed_offset // mapped_file_bytes:
        return True
    return least_pages <= 0 or tail // PAGE_BYTES - flushed_offset // PAGE_BYTES >= least_pages


class CommitLog:
    """The log's files, its tail and the run that waits to be written.

    Attributes:
        tail: Readers see only bytes below it.
        flushed_offset: Everything below it is durable.
        pending_tail: Where the next record goes; above :attr:`tail` while a run is pending.
        room_end: Up to where there is room on the disk, in the file that holds
            :attr:`pending_tail`, less the blank record.
        pieces: The pending bytes of that file, in order.
        refused: Gets the disk's refusal of room for a record; returns what :meth:`place` raises.
    """

    def __init__(self, files: MappedFileQueue) -> None:
        self.files = files
        self.tail = 0
        self.flushed_offset = 0
        self.pending_tail = 0
        self.room_end = 0
        self.pieces: list[bytes] = []
        self._full: list[tuple[int, list[bytes]]] = []
        """Pending runs of files that the pending run has filled: offset and pieces."""
        self._pieces_offset = 0
        self._room_until = 0
        """Up to where the disk has given room. In the file of the tail, or at its end."""
        self._began_at = 0
        self._wanted: tuple[int, int] | None = None
        """The room that the disk refused last: offset and length."""
        self.refused: Callable[[OSError], Exception] = lambda error: error
        self.move_tail(0)

    @property
    def min_offset(self) -> int:
        """First byte of the oldest file, -1 without files."""
        return self.files.start if self.files.files else -1

    def move_tail(self, tail: int) -> None:
        """Set the tail and forget what is pending."""
        self.tail = self.pending_tail = self._pieces_offset = tail
        self.pieces = []
        self._full = []
        size = self.files.file_bytes
        if not tail <= self._room_until <= tail - tail % size + size:
            self._room_until = self._began_at = tail
        self._set_room_end(tail)

    def _set_room_end(self, offset: int) -> None:
        size = self.files.file_bytes
        file_end = offset - offset % size + size
        self.room_end = min(self._room_until, file_end) - BLANK_BYTES

    def place(self, record_bytes: int) -> int:
        """Reserve room in the pending run and return its physical offset.

        The caller adds exactly ``record_bytes`` to :attr:`pieces`.

        Raises:
            MessageIllegal: It would not fit into an empty file either.
            Exception: What :attr:`refused` gives: the disk has no room. Nothing has changed.
        """
        physical_offset = self.pending_tail
        if physical_offset + record_bytes > self.room_end:
            physical_offset = self._make_room(record_bytes)
        self.pending_tail = physical_offset + record_bytes
        return physical_offset

    def _make_room(self, record_bytes: int) -> int:
        """Take room on the disk, or open the next file; return the place of the record."""
        place = place_record(self.pending_tail, record_bytes, self.files.file_bytes)
        try:
            if place.blank_bytes:
                self._take_room(self.pending_tail, BLANK_BYTES)
            self._take_room(place.physical_offset, record_bytes + BLANK_BYTES)
        except OSError as error:
            raise self.refused(error) from error
        if place.blank_bytes:
            self.pieces.append(pack_blank(place.blank_bytes))
            self._full.append((self._pieces_offset, self.pieces))
            self.pieces = []
            self._pieces_offset = place.physical_offset
        self._set_room_end(place.physical_offset)
        return place.physical_offset

    def _take_room(self, offset: int, length: int) -> None:
        """Let the disk give room for ``length`` bytes at ``offset``, which fit their file.

        Where it has less than is taken at a time, it is asked for half of that, and so on.

        Raises:
            OSError: There is not enough.
        """
        if offset + length <= self._room_until:
            return
        size = self.files.file_bytes
        start = max(offset, self._room_until)
        file_end = offset - offset % size + size
        step = min(max(start - self._began_at, LEAST_ROOM_BYTES), MOST_ROOM_BYTES)
        while True:
            end = min(max(offset + length, start + step), file_end)
            try:
                self.files.allocate(start, end - start)
                break
            except OSError as error:
                if is_fatal(error) or end == offset + length:
                    self._wanted = offset, length
                    raise
                step //= 2
        self._room_until, self._wanted = end, None

    def take_wanted_room(self) -> None:
        """Ask the disk again for what it refused last.

        Raises:
            OSError: It refuses still.
        """
        if self._wanted is not None:
            self.files.allocate(*self._wanted)
            self._wanted = None

    def write_pending(self) -> None:
        """Write the pending run; :attr:`tail` stays where it is (:meth:`publish` moves it).

        Raises:
            OSError: A file could not be created or written.
        """
        for offset, pieces in self._full:
            self.files.write_at(offset, b"".join(pieces))
        if self.pieces:
            self.files.write_at(self._pieces_offset, b"".join(self.pieces))

    def publish(self) -> None:
        """Make what :meth:`write_pending` wrote readable."""
        self.tail = self._pieces_offset = self.pending_tail
        self.pieces = []
        self._full = []

    def drop_pending(self) -> None:
        self.move_tail(self.tail)

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        """Append bytes of another broker's log at the tail.

        An empty log starts at the file that holds ``physical_offset``, even if a killed process
        left a first file without data. 4.9.8 would put the bytes into that one.

        Raises:
            StoreError: They do not continue this log.
            OSError: The disk did not take them; those before are appended.
        """
        size = self.files.file_bytes
        if not self.files.files or (self.tail == 0 and physical_offset):
            if physical_offset % size:
                raise StoreError(f"a log can't begin at {physical_offset}, inside a file")
            self.files.delete_all()
            self.move_tail(physical_offset)
        if physical_offset != self.tail:
            raise StoreError(f"bytes for {physical_offset} do not continue a log of {self.tail}")
        rest = memoryview(data)
        while rest:
            room = size - self.tail % size
            self._take_room(self.tail, min(room, len(rest)))
            self.files.write_at(self.tail, rest[:room])
            self.move_tail(self.tail + min(room, len(rest)))
            rest = rest[room:]

    def read(self, physical_offset: int, max_bytes: int) -> memoryview:
        """Return bytes below the tail, at most to the end of their file; perhaps none."""
        return self.files.read(physical_offset, min(physical_offset + max_bytes, self.tail))

    def record(self, physical_offset: int, size: int) -> memoryview | None:
        """Return ``size`` bytes if all of them are in one file and below the tail."""
        view = self.read(physical_offset, size)
        return view if len(view) == size else None

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the whole record that begins there, None if none does."""
        view = self.read(physical_offset, self.files.file_bytes)
        found = read_record(view, 0, physical_offset, check_crc=False) if view else None
        return bytes(view[: found.size]) if isinstance(found, Record) else None
