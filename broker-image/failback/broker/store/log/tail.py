"""The last records of a commit log that no broker has open, read without changing anything.

Used before a broker starts, so the log may end in a torn record: what counts is where the good
records end, as recovery will find it. Only lengths and magics are followed through a file; the
records that are returned are read whole, with their CRC.
"""

from __future__ import annotations

import mmap
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.broker.store.log.record import (
    MAGIC_POSITION,
    V1_MAGIC_BYTES,
    Problem,
    Record,
    announced_size,
    read_record,
)

_LEAST_BYTES: Final = MAGIC_POSITION + len(V1_MAGIC_BYTES)


@dataclass(frozen=True, slots=True)
class LogTail:
    """Where a log ends, and its last records as ``(physical offset, bytes)``, oldest first."""

    end: int
    records: tuple[tuple[int, bytes], ...] = ()


def read_tail(directory: Path, records: int) -> LogTail:
    """Read up to ``records`` last records of the log in ``directory``.

    A folder that is not there is an empty log. ``OSError`` when a file cannot be read.
    """
    end, found = 0, list[tuple[int, bytes]]()
    for start, path in log_files(directory):
        file_end, kept = _file_tail(path, start, records - len(found))
        if not end and (kept or file_end > start):  # records that are torn may be all that was read
            end = file_end
        found = kept + found
        if len(found) >= records:
            break
    return LogTail(end, tuple(found))


def log_files(directory: Path) -> list[tuple[int, Path]]:
    """Return the files of a log with the physical offset of their first byte, newest first."""
    if not directory.is_dir():
        return []
    found = [
        (int(path.name), path)
        for path in directory.iterdir()
        if path.name.isdecimal() and path.stat().st_size
    ]
    return sorted(found, reverse=True)


def record_offsets(path: Path, start: int) -> array[int]:
    """Return the physical offsets of all records of one file, by the lengths they announce."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = memoryview(mapped)
        try:
            return array("q", (start + place for place, _ in _walk(view)))
        finally:
            view.release()


def record_bytes(path: Path, start: int, offset: int) -> bytes:
    """Return the record of one file at a physical offset that :func:`record_offsets` gave."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        place = offset - start
        view = memoryview(mapped)
        try:
            return bytes(view[place : place + announced_size(view, place)])
        finally:
            view.release()


def _file_tail(path: Path, start: int, wanted: int) -> tuple[int, list[tuple[int, bytes]]]:
    """Return where the good records of one file end, and the last ``wanted`` of them."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = memoryview(mapped)
        try:
            places, at = _places(view, wanted)
            kept: list[tuple[int, bytes]] = []
            for place in places:
                record = read_record(view, place, start + place, check_crc=True)
                if not isinstance(record, Record):  # torn, or it only looked like one
                    return start + place, kept
                kept.append((start + place, bytes(view[place : place + record.size])))
            blank = read_record(view, at, start + at, check_crc=False) is Problem.BLANK
            return start + (len(view) if blank else at), kept
        finally:
            view.release()


def _places(view: memoryview, wanted: int) -> tuple[deque[int], int]:
    """Return the positions of the last ``wanted`` records of a file and where they end."""
    places: deque[int] = deque(maxlen=max(wanted, 0))
    at = 0
    for place, length in _walk(view):
        places.append(place)
        at = place + length
    return places, at


def _walk(view: memoryview) -> Iterator[tuple[int, int]]:
    """Yield position and announced length of what looks like records, from the file's begin."""
    at, size = 0, len(view)
    while at + _LEAST_BYTES <= size:
        if view[at + MAGIC_POSITION : at + _LEAST_BYTES] != V1_MAGIC_BYTES:
            return
        length = announced_size(view, at)
        if length < _LEAST_BYTES or at + length > size:
            return
        yield at, length
        at += length
