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
"""

from __future__ import annotations

from typing import Final, NamedTuple

from failback.broker.store.log.mapped_file import MappedFile, MappedFileQueue
from failback.broker.store.log.record import BLANK_BYTES, Record, pack_blank, read_record
from failback.broker.store.log.results import MessageIllegal
from failback.protocol.errors import StoreError

PAGE_BYTES: Final = 4096


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
        room_end: End of the file that holds :attr:`pending_tail`, less the blank record.
        pieces: The pending bytes of that file, in order.
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
        self.room_end = tail - tail % size + size - BLANK_BYTES

    def place(self, record_bytes: int) -> int:
        """Reserve room in the pending run and return its physical offset.

        The caller adds exactly ``record_bytes`` to :attr:`pieces`.
        """
        physical_offset = self.pending_tail
        if physical_offset + record_bytes > self.room_end:
            physical_offset = self._roll(record_bytes)
        self.pending_tail = physical_offset + record_bytes
        return physical_offset

    def _roll(self, record_bytes: int) -> int:
        size = self.files.file_bytes
        place = place_record(self.pending_tail, record_bytes, size)
        if place.blank_bytes:
            self.pieces.append(pack_blank(place.blank_bytes))
            self._full.append((self._pieces_offset, self.pieces))
            self.pieces = []
            self._pieces_offset = place.physical_offset
        self.room_end = place.physical_offset + size - BLANK_BYTES
        return place.physical_offset

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
            OSError: The disk did not take them.
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

    def dirty_files(self, end: int) -> list[MappedFile]:
        """Return the files that hold unflushed bytes below ``end``."""
        return self.files.between(self.flushed_offset, end)
