"""The keys under which a record is indexed, and their hashes.

A record is found by its UNIQ_KEY and by each of its KEYS, which are separated by spaces. What is
hashed is ``topic#key``, as String.hashCode does, and then without its sign. Source:
IndexService.buildIndex and IndexFile.indexKeyHashMethod, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from operator import mul
from sys import byteorder
from typing import Final

from failback.broker.native import kernels
from failback.broker.store.log.record import (
    HEAD_BYTES,
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


RecordParts = tuple[int, int, bytes, bytes]
"""Of a record: physical offset, store timestamp, the topic behind its length, the properties.

Also a plain tuple: storing and dispatching make one for each record with keys.
"""


PackedKeys = bytes
"""The same as NewEntry tuples, one behind the other, as kernels make and take them: each three
native int64."""
PACKED: Final = struct.Struct("=qqq")

pack_keys: Callable[[list[RecordParts] | list[RecordParts | PackedKeys]], PackedKeys] | None = (
    kernels.pack_keys if kernels is not None else None
)
"""The kernel of :meth:`KeyScan.stored`."""
_scan_keys: Callable[[memoryview, int, int, int], tuple[PackedKeys, int, int]] | None = (
    kernels.scan_keys if kernels is not None else None
)


def packed_run(view: memoryview, physical_offset: int, most_records: int) -> tuple[PackedKeys, int]:
    """Do what :meth:`KeyScan.run` does by kernels; return the keys and the bytes read."""
    assert _scan_keys is not None
    assert pack_keys is not None
    pieces: list[RecordParts | PackedKeys] = []
    at, left = 0, most_records
    while True:
        keys, at, left = _scan_keys(view, at, physical_offset, left)
        pieces.append(keys)
        if not left or at >= len(view):
            return pack_keys(pieces), at
        unusual: list[RecordParts] = []
        at += _unusual(view, at, physical_offset + at, unusual)
        pieces += unusual
        left -= 1


def split_packed(keys: PackedKeys, most: int) -> tuple[PackedKeys, PackedKeys]:
    """Divide ``keys`` behind ``most`` of them, or somewhat later: not within those of a record."""
    cut = most * PACKED.size
    while cut < len(keys) and _offset_at(keys, cut) == _offset_at(keys, cut - PACKED.size):
        cut += PACKED.size
    return keys[:cut], keys[cut:]


def first_offset(keys: PackedKeys) -> int:
    """Return the physical offset of the first record of ``keys``, which has one."""
    return _offset_at(keys, 0)


def _offset_at(keys: PackedKeys, at: int) -> int:
    _, physical_offset, _ = PACKED.unpack_from(keys, at)
    return int(physical_offset)


def without_sign(state: int) -> int:
    """Return the absolute value of an unsigned 32-bit ``state`` read as signed, 0 for -2^31."""
    if state > HIGHEST:
        state = (1 << 32) - state
    return state if state <= HIGHEST else 0


def key_hash(topic: str, key: str) -> int:
    """Return what an index file stores of a key."""
    return without_sign(java_hash_state(f"{topic}#{key}"))


def keys_of(properties: bytes) -> list[bytes]:
    """Return the keys of a record: UNIQ_KEY, then each of KEYS; none may be empty.

    Twin of ``native/index.c``, as are :class:`KeyHasher` and :class:`KeyScan`.
    """
    unique = property_value(properties, _UNIQUE)
    keys = [unique] if unique else []
    if several := property_value(properties, _KEYS):
        keys += [key for key in several.split(b" ") if key]
    return keys


Pattern = tuple[int, bytes, bytes, int]
"""What the records that a producer sends to a topic have in common: the length of the properties,
what of them lies before and behind the last 8 characters of UNIQ_KEY, which is the only key, and
KeyHasher.start."""
_MOST_PATTERNS: Final = 4096
_MISSES_PER_PATTERN: Final = 8
"""Where producers take turns, making a pattern for each record would cost more than it saves."""
_LEAST_LANES: Final = 12
"""From so many keys on, hashing them all at once is faster than one by one."""


def hash_tails(tails: Sequence[bytes], starts: Sequence[int]) -> list[int]:
    """Return what an index file stores of keys that end in ``tails``, ASCII, 8 characters each.

    ``starts`` are KeyHasher.start of what is before. All hashes are worked out in one number, in
    lanes of 64 bits: 31^8 times a character has 47, so that no lane runs over into the next.
    """
    if len(tails) < _LEAST_LANES:
        states = [
            (start + sum(map(mul, tail, TAIL_POWERS))) & MASK
            for tail, start in zip(tails, starts, strict=True)
        ]
    else:
        joined, size = b"".join(tails), 8 * len(tails)
        lanes, column, number = 0, bytearray(size), int.from_bytes
        for at in range(TAIL):
            column[0::8] = joined[at::TAIL]
            lanes = lanes * 31 + number(column, byteorder)
        hashes = memoryview(lanes.to_bytes(size, byteorder)).cast("Q")
        states = [(start + state) & MASK for start, state in zip(starts, hashes, strict=True)]
    return [state if state <= HIGHEST else without_sign(state) for state in states]


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
        self._patterns: dict[bytes, Pattern | None] = {}
        """By topic, behind its length; None where records have several keys."""
        self._misses = 0

    def stored(self, records: Sequence[RecordParts], found: list[NewEntry]) -> None:
        """Add the keys of ``records``, in their order."""
        patterns = self._patterns
        plain: list[RecordParts] = []
        tails: list[bytes] = []
        starts: list[int] = []
        for record in records:
            _, _, topic_piece, properties = record
            pattern = patterns.get(topic_piece)
            if pattern is not None:
                length, before, behind, start = pattern
                if (
                    len(properties) == length
                    and properties.startswith(before)
                    and properties.endswith(behind)
                ):
                    tail_at = len(before)
                    plain.append(record)
                    tails.append(properties[tail_at : tail_at + TAIL])
                    starts.append(start)
                    continue
            self._add_plain(plain, tails, starts, found)
            plain, tails, starts = [], [], []
            self._add_keys(record, found)
            self._learn(topic_piece, properties)
        self._add_plain(plain, tails, starts, found)

    def _add_plain(
        self,
        plain: Sequence[RecordParts],
        tails: Sequence[bytes],
        starts: Sequence[int],
        found: list[NewEntry],
    ) -> None:
        """Add records that match a pattern, unless their ends tell that they are not so plain."""
        if not plain:
            return
        joined = b"".join(tails)
        if not joined.isascii() or 2 in joined:
            for record in plain:
                self._add_keys(record, found)
            return
        hashes = hash_tails(tails, starts)
        found += [
            (hashed, record[0], record[1]) for hashed, record in zip(hashes, plain, strict=True)
        ]

    def _learn(self, topic_piece: bytes, properties: bytes) -> None:
        """Note what the records of this topic look like; not each time where they vary."""
        if topic_piece in self._patterns:
            self._misses += 1
            if self._misses % _MISSES_PER_PATTERN:
                return
        elif len(self._patterns) >= _MOST_PATTERNS:
            self._patterns.clear()
        self._patterns[topic_piece] = self._pattern_of(topic_piece, properties)

    def _pattern_of(self, topic_piece: bytes, properties: bytes) -> Pattern | None:
        """Return what records like this one share; None if it has several keys or a strange one."""
        keys = keys_of(properties)
        is_plain = len(keys) == 1 and properties.count(_UNIQUE) == 1 and _KEYS not in properties
        if not is_plain or len(keys[0]) < TAIL or not keys[0].isascii():
            return None
        tail_at = properties.index(_UNIQUE) + len(_UNIQUE) + len(keys[0]) - TAIL
        start = self._hash.start(topic_piece, keys[0])
        return len(properties), properties[:tail_at], properties[tail_at + TAIL :], start

    def run(
        self, view: memoryview, physical_offset: int, most_records: int, found: list[NewEntry]
    ) -> int:
        """Add the keys of at most ``most_records`` records to ``found``; return the bytes read.

        ``view`` begins with a record, at ``physical_offset`` of the log, and does not reach over
        the end of a mapped file. Its records are known to be whole.
        """
        records: list[RecordParts] = []
        read = self._read(view, physical_offset, most_records, records)
        self.stored(records, found)
        return read

    def _read(
        self, view: memoryview, physical_offset: int, most: int, records: list[RecordParts]
    ) -> int:
        at, end = 0, len(view)
        unpack = _HEAD.unpack_from
        for _ in range(most):
            if end - at < RECORD_FIXED_BYTES:
                return end  # no more than a blank record fits here
            size, magic, flags, timestamp, body_bytes = unpack(view, at)
            rest_start = at + HEAD_BYTES + body_bytes
            record_end = at + size
            is_rare = magic != V1_MAGIC or flags & _RARE_FLAGS or body_bytes < 0
            if is_rare or not rest_start < record_end <= end:
                at += _unusual(view, at, physical_offset + at, records)
                continue
            rest = bytes(view[rest_start:record_end])  # topic and properties, with their lengths
            start = rest[0] + 3
            if start > len(rest) or (rest[start - 2] << 8 | rest[start - 1]) != len(rest) - start:
                at += _unusual(view, at, physical_offset + at, records)
                continue
            records.append((physical_offset + at, timestamp, rest[: start - 2], rest[start:]))
            at = record_end
        return at

    def _add_keys(self, record: RecordParts, found: list[NewEntry]) -> None:
        physical_offset, timestamp, topic_piece, properties = record
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


def _unusual(view: memoryview, at: int, physical_offset: int, records: list[RecordParts]) -> int:
    """Take what is no plain record with IPv4 hosts; return how many bytes it has."""
    record = read_record(view, at, physical_offset, check_crc=False)
    if isinstance(record, Record):
        if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            topic_piece = bytes((len(record.topic),)) + record.topic
            records.append(
                (physical_offset, record.store_timestamp, topic_piece, record.properties)
            )
        return record.size
    announced = announced_size(view, at)
    if record is Problem.BLANK or announced <= 0:
        return len(view) - at
    # Dispatch met the same record, and has logged it.
    return min(announced, len(view) - at)
