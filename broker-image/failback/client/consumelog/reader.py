"""Reads hot log files back, also those of a killed process, and finds which records are missing."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from failback.client.consumelog import hot_format
from failback.client.consumelog.hot_format import BadHotLog
from failback.common.files import open_file, read_file

_HEAD_BYTES: Final = 4096

Record = Sequence[Any]
"""``[table code, seq, wall_ns, mono_ns, columns...]``; trailing columns may be missing."""


@dataclass(frozen=True, slots=True)
class Head:
    """The writer of the file, and the ``seq`` of its first record."""

    run: str
    proc: bytes
    proc_no: int
    role: str
    host: str
    index: int
    seq_lo: int


@dataclass(frozen=True, slots=True)
class HotLog:
    """One file: its head, its whole records, and what was left behind them."""

    head: Head
    records: list[Record]
    torn: bool
    """Bytes of a record that was never finished followed the last whole one."""
    used_bytes: int


def read_hot(path: Path) -> HotLog:
    """Read every whole record of ``path``.

    Raises:
        BadHotLog: The head is missing or of another format, so nothing can be said.
    """
    payloads, used, torn = payloads_of(read_file(path))
    head = _head(payloads, path)
    decode = msgspec.msgpack.Decoder().decode
    return HotLog(head, [decode(payload) for payload in payloads[1:]], torn, used)


def read_head(path: Path) -> Head:
    """Read the head of ``path`` only. Raises ``BadHotLog``."""
    with open_file(path) as file:
        data = file.read(_HEAD_BYTES)
    length = hot_format.FRAME.unpack_from(data)[0] if len(data) >= hot_format.FRAME.size else 0
    return _head(payloads_of(data[: hot_format.FRAME.size + length])[0], path)


def _head(payloads: Sequence[bytes], path: Path) -> Head:
    try:
        name, *rest = msgspec.msgpack.decode(payloads[0])
        head = Head(*rest)
    except (IndexError, TypeError, ValueError, msgspec.DecodeError) as error:
        raise BadHotLog("the head cannot be read", path) from error
    if name != hot_format.FORMAT:
        raise BadHotLog(f"format {name!r}, not {hot_format.FORMAT!r}", path)
    return head


def payloads_of(data: bytes) -> tuple[list[bytes], int, bool]:
    """Payloads up to the first that is not whole, the bytes they use, and whether one was cut."""
    found: list[bytes] = []
    position = 0
    while position + hot_format.FRAME.size <= len(data):
        length, crc = hot_format.FRAME.unpack_from(data, position)
        if length == 0:
            # A record whose length was not stored yet may have left its payload behind.
            tail = data[position : position + 64]
            return found, position, any(tail)
        start = position + hot_format.FRAME.size
        payload = data[start : start + length]
        if len(payload) < length or zlib.crc32(payload) != crc:
            return found, position, True
        found.append(payload)
        position = start + length
    return found, position, any(data[position:])


def missing_ranges(
    last_seq: int, records: int, ranges: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """First and last ``seq`` of every hole in ``1..last_seq``.

    Args:
        last_seq: How far the process got.
        records: How many of its records are stored, all tables together.
        ranges: Lowest and highest ``seq`` of each of its hot files.

    A hole inside a file (one of its tables is missing) cannot be placed: then all is named.
    """
    if records >= last_seq:
        return []
    holes = []
    following = 1
    for low, high in sorted(ranges):
        if low > following:
            holes.append((following, low - 1))
        following = max(following, high + 1)
    if following <= last_seq:
        holes.append((following, last_seq))
    return holes or [(1, last_seq)]
