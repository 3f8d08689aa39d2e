"""How large the pages of a Parquet file become when unpacked, without unpacking them. Pure.

The sizes in a footer may be false, and a reader allocates what the head of each page says. So the
heads of the pages of each column chunk are read first. A head is Thrift's compact form of
``PageHeader``, of which the first three fields are needed, and the number of values:

    1 type i32, 2 uncompressed size i32, 3 compressed size i32, 5 or 8 data page, 7 dictionary page

In a page whose encoding lets values grow out of other values each may be as long as the page.
Layout: Parquet's parquet.thrift; Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

_DICTIONARY_PAGE: Final = 7
_ENCODING_OF: Final = {5: 2, _DICTIONARY_PAGE: 2, 8: 4}
"""Field of a head that describes a page, and where its encoding stands there."""
_CODED: Final = frozenset({2, 8})
"""PLAIN_DICTIONARY, RLE_DICTIONARY: a value is a number of the dictionary's."""
_AS_WRITTEN: Final = frozenset({0, 3, 5, 6, 9})
"""PLAIN, RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, BYTE_STREAM_SPLIT."""
_MAX_PAGES: Final = 100_000
_MAX_DEPTH: Final = 8


class Bytes(Protocol):
    """What a column chunk is read from: bytes, or a file's."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: int, /) -> int: ...


class BadPages(ValueError):
    """A column chunk is no sequence of pages."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page as its head describes it."""

    start: int
    """Where its content begins in ``data``."""
    packed_bytes: int
    unpacked_bytes: int
    values: int
    encoding: int | None
    is_dictionary: bool

    @property
    def is_coded(self) -> bool:
        """Whether its values are numbers of the dictionary's."""
        return self.encoding in _CODED

    @property
    def grows(self) -> bool:
        """Whether a value may be longer than what the page has of it."""
        return self.encoding is not None and self.encoding not in _CODED | _AS_WRITTEN


def pages(data: Bytes, start: int, length: int) -> Iterator[Page]:
    """Walk the pages of a column chunk at ``data[start : start + length]``.

    Raises:
        BadPages: It is cut, or says something that cannot be.
    """
    end = start + length
    if start < 0 or length < 0 or end > len(data):
        raise BadPages("a column chunk lies outside its file")
    number = 0
    while start < end:
        number += 1
        if number > _MAX_PAGES:
            raise BadPages(f"more than {_MAX_PAGES} pages in a column chunk")
        head = _Compact(data, start, end)
        fields = head.struct()
        unpacked, packed = fields.get(2, 0), fields.get(3, 0)
        if not isinstance(unpacked, int) or not isinstance(packed, int):
            raise BadPages("a page without sizes")
        body, start = head.position, head.position + packed
        if unpacked < 0 or packed < 0 or start > end:
            raise BadPages("a page lies outside its column chunk")
        yield Page(body, packed, unpacked, *_values(fields))


def _values(fields: dict[int, object]) -> tuple[int, int | None, bool]:
    """Return how many values a page holds, its encoding, and whether it is the dictionary."""
    for number, at in _ENCODING_OF.items():
        described = fields.get(number)
        if not isinstance(described, dict):
            continue
        count, encoding = described.get(1, 0), described.get(at)
        if not isinstance(count, int) or count < 0 or not isinstance(encoding, int):
            raise BadPages("a page has a negative number of values, or no encoding")
        return count, encoding, number == _DICTIONARY_PAGE
    return 0, None, False


class _Compact:
    """A reader of Thrift's compact protocol."""

    def __init__(self, data: Bytes, position: int, end: int) -> None:
        self._data = data
        self._end = end
        self.position = position

    def struct(self, depth: int = 0) -> dict[int, object]:
        """Take a struct; return its numbers and structs by field."""
        if depth > _MAX_DEPTH:
            raise BadPages("the head of a page is nested too deep")
        found: dict[int, object] = {}
        field = 0
        while (byte := self._byte()) != 0:
            delta, kind = byte >> 4, byte & 0x0F
            field = field + delta if delta else self._integer()
            found[field] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> object:
        if kind in (1, 2):  # a boolean, in its type
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind in (7, 8):  # a float, a text
            self._skip(8 if kind == 7 else self._varint())
            return None
        if kind == 12:
            return self.struct(depth + 1)
        raise BadPages(f"the head of a page has a field of type {kind}")

    def _byte(self) -> int:
        if self.position >= self._end:
            raise BadPages("the head of a page is cut")
        self.position += 1
        return self._data[self.position - 1]

    def _skip(self, count: int) -> None:
        self.position += count
        if self.position > self._end:
            raise BadPages("the head of a page is cut")

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise BadPages("the head of a page has a number of too many bytes")
        return value | byte << shift

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
