"""How large an Arrow IPC stream becomes when it is unpacked, without unpacking it. Pure.

A packed buffer begins with its unpacked length, and the reader allocates what stands there. So the
messages are walked first, and their sums compared with the limits. A stream is a sequence of

    | 0xFFFFFFFF | metadata length int32 | metadata, a flatbuffer | body |

ended by a metadata length of 0. Of the metadata only what is needed is read: the kind of message,
the length of its body, and for batches the number of rows and the place of each buffer. Whatever is
read here is checked against the bounds of the stream; all else is left to Arrow's own verification.
Layout: Arrow's Message.fbs (``Message``, ``RecordBatch``, ``DictionaryBatch``, ``Buffer``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_CONTINUATION: Final = 0xFFFFFFFF
_HEAD: Final = struct.Struct("<Ii")
_DICTIONARY_BATCH: Final = 2
_RECORD_BATCH: Final = 3
_BUFFER_BYTES: Final = 16
_MAX_MESSAGES: Final = 10_000
_PREFIX_BYTES: Final = 8


class BadStream(Exception):
    """The bytes are not an Arrow IPC stream."""


@dataclass(frozen=True, slots=True)
class StreamSizes:
    """Sums over the messages of a stream."""

    rows: int
    dictionary_entries: int
    unpacked_bytes: int


def stream_sizes(stream: bytes) -> StreamSizes:
    """Walk the messages of ``stream``.

    Raises:
        BadStream: It is cut, or says something that cannot be.
    """
    rows = entries = unpacked = 0
    for number, (metadata, body) in enumerate(_messages(stream), 1):
        if number > _MAX_MESSAGES:
            raise BadStream(f"more than {_MAX_MESSAGES} messages")
        kind, batch = _batch(metadata)
        if batch is None:
            continue
        length = batch.integer(0, "<q")
        if length < 0:
            raise BadStream("a batch has a negative number of rows")
        if kind == _RECORD_BATCH:
            rows += length
        else:
            entries += length
        unpacked += _unpacked_bytes(batch, body)
    return StreamSizes(rows, entries, unpacked)


def _messages(stream: bytes) -> Iterator[tuple[memoryview, memoryview]]:
    """Metadata and body of each message up to the end mark."""
    view = memoryview(stream)
    position = 0
    while True:
        if position + _HEAD.size > len(view):
            raise BadStream(f"cut at byte {position}, before the mark of its end")
        mark, length = _HEAD.unpack_from(view, position)
        if mark != _CONTINUATION:
            raise BadStream(f"no message begins at byte {position}")
        if length == 0:
            return
        start = position + _HEAD.size
        if length < 0 or start + length > len(view):
            raise BadStream(f"cut at byte {len(view)}, inside the message at {position}")
        metadata = view[start : start + length]
        body_bytes = _Table.root(metadata).integer(3, "<q")
        if body_bytes < 0 or start + length + body_bytes > len(view):
            raise BadStream(
                f"cut at byte {len(view)}, inside the body of the message at {position}"
            )
        yield metadata, view[start + length : start + length + body_bytes]
        position = start + length + body_bytes


def _batch(metadata: memoryview) -> tuple[int, _Table | None]:
    """The kind of a message, and its record batch if it has one."""
    message = _Table.root(metadata)
    kind = message.integer(1, "<B")
    header = message.table(2)
    if kind == _RECORD_BATCH:
        return kind, header
    if kind == _DICTIONARY_BATCH:
        return kind, header.table(1) if header is not None else None
    return kind, None


def _unpacked_bytes(batch: _Table, body: memoryview) -> int:
    packed = batch.table(3) is not None
    total = 0
    for offset, length in batch.pairs(2):
        if offset < 0 or length < 0 or offset + length > len(body):
            raise BadStream("a buffer lies outside its message")
        if not packed or length == 0:
            total += length
            continue
        if length < _PREFIX_BYTES:
            raise BadStream("a packed buffer is shorter than its length word")
        (size,) = struct.unpack_from("<q", body, offset)
        if size < -1:
            raise BadStream("a packed buffer has a negative length")
        total += length - _PREFIX_BYTES if size == -1 else size  # -1: stored as it is
    return total


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of a flatbuffer: a position, and behind it the place of each field."""

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        return cls(data, _read(data, 0, "<I"))

    def integer(self, field: int, kind: str) -> int:
        """A scalar field; 0, its default, when it is absent."""
        at = self._field(field)
        return 0 if at is None else _read(self.data, at, kind)

    def table(self, field: int) -> _Table | None:
        at = self._field(field)
        return None if at is None else _Table(self.data, at + _read(self.data, at, "<I"))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two 64-bit integers."""
        at = self._field(field)
        if at is None:
            return
        start = at + _read(self.data, at, "<I")
        count = _read(self.data, start, "<I")
        if start + 4 + count * _BUFFER_BYTES > len(self.data):
            raise BadStream("a list of buffers lies outside its message")
        for number in range(count):
            place = start + 4 + number * _BUFFER_BYTES
            yield _read(self.data, place, "<q"), _read(self.data, place + 8, "<q")

    def _field(self, field: int) -> int | None:
        vtable = self.position - _read(self.data, self.position, "<i")
        slot = 4 + 2 * field
        if slot + 2 > _read(self.data, vtable, "<H"):
            return None
        offset = _read(self.data, vtable + slot, "<H")
        return self.position + offset if offset else None


def _read(data: memoryview, position: int, kind: str) -> int:
    if position < 0:
        raise BadStream("a message refers to a place before it")
    try:
        value: int = struct.unpack_from(kind, data, position)[0]
    except struct.error as error:
        raise BadStream("a message refers to a place behind it") from error
    return value
