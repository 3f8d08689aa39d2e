"""The keys under which a record is indexed, and their hashes.

A record is found by its UNIQ_KEY and by each of its KEYS, which are separated by spaces. What is
hashed is ``topic#key``, as String.hashCode does, and then without its sign. Source:
IndexService.buildIndex and IndexFile.indexKeyHashMethod, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from operator import mul
from typing import Final

from failback.broker.store.record import (
    Problem,
    Record,
    announced_size,
    property_value,
    read_record,
)
from failback.protocol.codes import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from failback.protocol.message import RECORD_FIXED_BYTES, V1_MAGIC, java_hash_state

logger = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">iI28xi16xq20xi")
"""Of a record with IPv4 hosts: size, magic, sysFlag, store timestamp, body length."""
_V6_TIMESTAMP: Final = struct.Struct(">68xq")
_HEAD_BYTES: Final = 88
_UNIQUE: Final = b"UNIQ_KEY\x01"
_KEYS: Final = b"KEYS\x01"
_RARE_FLAGS: Final = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_PREPARED
"""Longer hosts, and what prepared and rolled back records have in common."""
MASK: Final = 0xFFFFFFFF
HIGHEST: Final = 0x7FFFFFFF

TAIL: Final = 8
TAIL_POWERS: Final = tuple(pow(31, TAIL - 1 - at, 1 << 32) for at in range(TAIL))
_HEAD_FACTOR: Final = pow(31, TAIL, 1 << 32)
_MOST_HEADS: Final = 4096


NewEntry = tuple[int, int, int]
"""A key of a record, ready for an index file: key hash, physical offset, store timestamp.

A plain tuple: one is made for every key, and a named one costs 0.2 µs more.
"""


RecordParts = tuple[bytes, bytes, bytes]
"""Of a record: the fixed part, the topic behind its length, the properties."""


def without_sign(state: int) -> int:
    """Return the absolute value of an unsigned 32-bit ``state`` read as signed, 0 for -2^31."""
    if state > HIGHEST:
        state = (1 << 32) - state
    return state if state <= HIGHEST else 0


def key_hash(topic: str, key: str) -> int:
    """Return what an index file stores of a key."""
    return without_sign(java_hash_state(f"{topic}#{key}"))


def keys_of(properties: bytes) -> list[bytes]:
    """Return the keys of a record: UNIQ_KEY, then each of KEYS; none may be empty."""
    unique = property_value(properties, _UNIQUE)
    keys = [unique] if unique else []
    if several := property_value(properties, _KEYS):
        keys += [key for key in several.split(b" ") if key]
    return keys


Pattern = tuple[bytes, bytes, bytes, int]
"""What the records of a producer have in common: the topic behind its length, the properties before
and behind the last 8 characters of UNIQ_KEY, which is the only key, and KeyHasher.start of them."""
_NO_PATTERN: Final[Pattern] = (b"", b"", b"", 0)
_MISSES_PER_PATTERN: Final = 8
"""Where producers take turns, making a pattern for each record would cost more than it saves."""


class KeyHasher:
    """Hashes keys as bytes. Neighbours share all but the last characters: that part is kept.

    Topics come as records carry them, behind their length.
    """

    def __init__(self) -> None:
        self._heads: dict[tuple[bytes, bytes], int] = {}

    def __call__(self, topic_piece: bytes, key: bytes) -> int:
        """Return what an index file stores of a key."""
        if len(key) < TAIL or not key.isascii():
            return key_hash(topic_piece[1:].decode(errors="replace"), key.decode(errors="replace"))
        state = (self.start(topic_piece, key) + sum(map(mul, key[-TAIL:], TAIL_POWERS))) & MASK
        return state if state <= HIGHEST else without_sign(state)

    def start(self, topic_piece: bytes, key: bytes) -> int:
        """Return the hash of topic and an ASCII key but for its last 8 characters, times 31^8."""
        head = topic_piece, key[:-TAIL]
        start = self._heads.get(head)
        if start is None:
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            text = f"{topic_piece[1:].decode(errors='replace')}#{head[1].decode()}"
            start = self._heads[head] = java_hash_state(text) * _HEAD_FACTOR & MASK
        return start


class KeyScan:
    """Finds the keys of records: of those just stored, or in a run of the log."""

    def __init__(self) -> None:
        self._hash = KeyHasher()
        self._pattern = _NO_PATTERN
        self._misses = 0

    def stored(
        self, physical_offset: int, records: Sequence[RecordParts], found: list[NewEntry]
    ) -> int:
        """Add the keys of records that were just written, the first at ``physical_offset``.

        Returns where they end.
        """
        unpack, add = _HEAD.unpack_from, found.append
        topic, before, behind, start = self._pattern
        tail_at = len(before)
        tail_end = tail_at + TAIL
        for head, topic_piece, properties in records:
            size, _, flags, timestamp, _ = unpack(head)
            tail = properties[tail_at:tail_end]
            if (
                topic_piece == topic
                and properties.startswith(before)
                and properties[tail_end:] == behind
                and len(tail) == TAIL
                and not flags & _RARE_FLAGS
                and tail.isascii()
                and 2 not in tail
            ):
                hashed = (start + sum(map(mul, tail, TAIL_POWERS))) & MASK
                if hashed > HIGHEST:
                    hashed = without_sign(hashed)
                add((hashed, physical_offset, timestamp))
            else:
                self._add_stored(head, topic_piece, properties, physical_offset, found)
                self._misses += 1
                if self._misses % _MISSES_PER_PATTERN == 1:
                    self._pattern = self._pattern_of(topic_piece, properties)
                    topic, before, behind, start = self._pattern
                    tail_at = len(before)
                    tail_end = tail_at + TAIL
            physical_offset += size
        return physical_offset

    def _add_stored(
        self,
        head: bytes,
        topic_piece: bytes,
        properties: bytes,
        physical_offset: int,
        found: list[NewEntry],
    ) -> None:
        _, _, flags, timestamp, _ = _HEAD.unpack_from(head)
        if flags & BORN_HOST_V6:
            (timestamp,) = _V6_TIMESTAMP.unpack_from(head)
        if flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._add_keys(topic_piece, properties, physical_offset, timestamp, found)

    def _pattern_of(self, topic_piece: bytes, properties: bytes) -> Pattern:
        """Return what records like this one share; :data:`_NO_PATTERN` if it has several keys."""
        keys = keys_of(properties)
        is_plain = len(keys) == 1 and properties.count(_UNIQUE) == 1 and _KEYS not in properties
        if not is_plain or len(keys[0]) < TAIL or not keys[0].isascii():
            return _NO_PATTERN
        tail_at = properties.index(_UNIQUE) + len(_UNIQUE) + len(keys[0]) - TAIL
        start = self._hash.start(topic_piece, keys[0])
        return topic_piece, properties[:tail_at], properties[tail_at + TAIL :], start

    def run(
        self, view: memoryview, physical_offset: int, most_records: int, found: list[NewEntry]
    ) -> int:
        """Add the keys of at most ``most_records`` records to ``found``; return the bytes read.

        ``view`` begins with a record, at ``physical_offset`` of the log, and does not reach over
        the end of a mapped file. Its records are known to be whole.
        """
        at, end = 0, len(view)
        unpack, add_keys = _HEAD.unpack_from, self._add_keys
        for _ in range(most_records):
            if end - at < RECORD_FIXED_BYTES:
                return end  # no more than a blank record fits here
            size, magic, flags, timestamp, body_bytes = unpack(view, at)
            rest_start = at + _HEAD_BYTES + body_bytes
            record_end = at + size
            if magic != V1_MAGIC or flags & _RARE_FLAGS or not at < rest_start < record_end <= end:
                at += self._unusual(view, at, physical_offset + at, found)
                continue
            rest = bytes(view[rest_start:record_end])  # topic and properties, with their lengths
            start = rest[0] + 3
            if start > len(rest) or (rest[start - 2] << 8 | rest[start - 1]) != len(rest) - start:
                at += self._unusual(view, at, physical_offset + at, found)
                continue
            add_keys(rest[: start - 2], rest[start:], physical_offset + at, timestamp, found)
            at = record_end
        return at

    def _add_keys(
        self,
        topic_piece: bytes,
        properties: bytes,
        physical_offset: int,
        timestamp: int,
        found: list[NewEntry],
    ) -> None:
        hash_of = self._hash
        place = properties.rfind(_UNIQUE)
        if place >= 0 and (place == 0 or properties[place - 1] == 2) and _KEYS not in properties:
            # What most records have, one UNIQ_KEY and no KEYS, without a search for more.
            stop = properties.find(2, place)
            key = properties[place + 9 : stop] if stop >= 0 else properties[place + 9 :]
            if key:
                found.append((hash_of(topic_piece, key), physical_offset, timestamp))
                return
        found += [
            (hash_of(topic_piece, key), physical_offset, timestamp) for key in keys_of(properties)
        ]

    def _unusual(
        self, view: memoryview, at: int, physical_offset: int, found: list[NewEntry]
    ) -> int:
        """Take what is no plain record with IPv4 hosts; return how many bytes it has."""
        record = read_record(view, at, physical_offset, check_crc=False)
        if isinstance(record, Record):
            if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                topic_piece = bytes((len(record.topic),)) + record.topic
                self._add_keys(
                    topic_piece, record.properties, physical_offset, record.store_timestamp, found
                )
            return record.size
        announced = announced_size(view, at)
        if record is Problem.BLANK or announced <= 0:
            return len(view) - at
        # Dispatch went over it in the same way, and has told.
        return min(announced, len(view) - at)
