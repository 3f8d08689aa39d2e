"""Where a connection's bytes join the log that a slave has: do they continue it? Pure.

Replication has no handshake, so a master whose log is another one sends bytes from the middle of
its records, and a slave of 4.9.8 appends them. Under the guarded rules the first record that the
connection completes is held back until it is proved: its magic, its own position, its lengths and
its CRC. Everything behind it comes from the same log.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from failback.broker.store.log.record import (
    Problem,
    Record,
    announced_size,
    read_record,
)
from failback.protocol.message import RECORD_FIXED_BYTES

MOST_HELD_BYTES: Final = 8 * 1024 * 1024
"""A longer record is believed once its fixed part fits the place, so that memory stays bounded."""

_POSITION_AT: Final = 28
_POSITION_END: Final = _POSITION_AT + 8


class Refusal(NamedTuple):
    """Why a slave does not replicate any more."""

    offset: int
    """The first byte of its log that is not the master's, as far as is known."""
    kind: str
    """``SlaveAhead``, ``Diverged`` or ``TooFarBehind``, as in a member's status, or ``Corrupt``."""
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.kind}{detail} (physical offset {self.offset})"


class _Verdict(Enum):
    GOOD = "good"
    MORE = "more bytes are needed"


class JoinCheck:
    """Takes what one connection brings until the join is proved.

    ``offset`` is where the last whole record of the own log ends, and ``rest`` are the own bytes
    behind it: a record whose end is still to come. An empty log gives ``None`` and no bytes.
    """

    def __init__(self, offset: int | None, rest: bytes, mapped_file_bytes: int) -> None:
        self._offset = offset
        self._bytes = bytearray(rest)
        self._own_bytes = len(rest)
        self._file_bytes = mapped_file_bytes
        self.is_proved = False
        if offset is not None and self._begins_with_blank(offset):
            # Zeros follow to the end of the file: the next file begins with the record that tells.
            self._offset = offset + self._file_rest(offset)
            self._bytes.clear()
            self._own_bytes = 0

    def take(self, offset: int, data: bytes) -> tuple[int, bytes] | Refusal | None:
        """Take the bytes of one file at ``offset``.

        Returns what may be appended now and where; ``None`` while it is held back.
        """
        if self._offset is None:
            self._offset = offset
        start = self._offset
        if self.is_proved or offset < start:  # before it: zeros behind an own blank record
            return offset, data
        self._bytes += data
        verdict = self._judge(start)
        if isinstance(verdict, Refusal):
            return verdict
        if verdict is _Verdict.MORE:
            return None
        self.is_proved = True
        return start + self._own_bytes, bytes(self._bytes[self._own_bytes :])

    def _judge(self, start: int) -> _Verdict | Refusal:
        view, file_rest = memoryview(self._bytes), self._file_rest(start)
        if len(view) < 8:
            return _Verdict.MORE
        size = announced_size(view, 0)
        found = read_record(view[:file_rest], 0, start, check_crc=True)
        if found is Problem.BLANK:
            if size == file_rest:
                return _Verdict.GOOD
            return _refusal(start, f"its blank record has {size} bytes, not {file_rest}")
        if found is not Problem.CUT_OFF:
            return _Verdict.GOOD if isinstance(found, Record) else _refusal(start, found.value)
        if not RECORD_FIXED_BYTES <= size <= file_rest:
            return _refusal(start, Problem.BAD_LENGTHS.value)
        if len(view) >= _POSITION_END:
            if int.from_bytes(view[_POSITION_AT:_POSITION_END], "big") != start:
                return _refusal(start, Problem.BAD_POSITION.value)
            if size > MOST_HELD_BYTES:
                return _Verdict.GOOD
        return _Verdict.MORE

    def _begins_with_blank(self, offset: int) -> bool:
        view = memoryview(self._bytes)
        return len(view) >= 8 and read_record(view, 0, offset, check_crc=False) is Problem.BLANK

    def _file_rest(self, offset: int) -> int:
        return self._file_bytes - offset % self._file_bytes


def _refusal(offset: int, problem: str) -> Refusal:
    return Refusal(offset, "Diverged", f"the master's bytes do not continue this log: {problem}")
