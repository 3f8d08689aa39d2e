"""The keys under which a record is indexed, and their hashes.

A record is found by its UNIQ_KEY and by each of its KEYS, which are separated by spaces. What is
hashed is ``topic#key``, as String.hashCode does, and then without its sign. Source:
IndexService.buildIndex and IndexFile.indexKeyHashMethod, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import struct
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


class KeyHasher:
    """Hashes keys as bytes. Neighbours share all but the last characters: that part is kept."""

    def __init__(self) -> None:
        self.heads: dict[tuple[bytes, bytes], int] = {}
        """Of topic and an ASCII key without its last 8 characters: the hash so far, times 31^8."""

    def __call__(self, topic: bytes, key: bytes) -> int:
        """Return what an index file stores of a key."""
        if len(key) < TAIL or not key.isascii():
            return key_hash(topic.decode(errors="replace"), key.decode(errors="replace"))
        head = topic, key[:-TAIL]
        start = self.heads.get(head)
        if start is None:
            start = self._keep(head)
        return without_sign((start + sum(map(mul, key[-TAIL:], TAIL_POWERS))) & MASK)

    def _keep(self, head: tuple[bytes, bytes]) -> int:
        if len(self.heads) >= _MOST_HEADS:
            self.heads.clear()
        topic, key = head
        text = f"{topic.decode(errors='replace')}#{key.decode()}"
        start = self.heads[head] = java_hash_state(text) * _HEAD_FACTOR & MASK
        return start


class KeyScan:
    """Reads keys out of a run of the log, whose records are known to be whole."""

    def __init__(self) -> None:
        self._hash = KeyHasher()

    def run(
        self, view: memoryview, physical_offset: int, most_records: int, found: list[NewEntry]
    ) -> int:
        """Add the keys of at most ``most_records`` records to ``found``; return the bytes read.

        ``view`` begins with a record, at ``physical_offset`` of the log, and does not reach over
        the end of a mapped file.
        """
        at, end = 0, len(view)
        unpack, hash_of, add = _HEAD.unpack_from, self._hash, found.append
        heads = hash_of.heads
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
            topic = rest[1 : start - 2]
            place = rest.rfind(_UNIQUE, start)
            if _KEYS in rest or (place > start and rest[place - 1] != 2):
                for each in keys_of(rest[start:]):
                    add((hash_of(topic, each), physical_offset + at, timestamp))
            elif place >= 0:
                # What nearly every record has: hashed here, since a call costs as much as that.
                stop = rest.find(2, place)
                key = rest[place + 9 : stop] if stop >= 0 else rest[place + 9 :]
                known = heads.get((topic, key[:-TAIL])) if len(key) >= TAIL else None
                if known is not None and key.isascii():
                    state = (known + sum(map(mul, key[-TAIL:], TAIL_POWERS))) & MASK
                    if state > HIGHEST:
                        state = without_sign(state)
                    add((state, physical_offset + at, timestamp))
                else:
                    for each in keys_of(rest[start:]):
                        add((hash_of(topic, each), physical_offset + at, timestamp))
            at = record_end
        return at

    def _unusual(
        self, view: memoryview, at: int, physical_offset: int, found: list[NewEntry]
    ) -> int:
        """Take what is no plain record with IPv4 hosts; return how many bytes it has."""
        record = read_record(view, at, physical_offset, check_crc=False)
        if isinstance(record, Record):
            if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                for key in keys_of(record.properties):
                    code = self._hash(record.topic, key)
                    found.append((code, physical_offset, record.store_timestamp))
            return record.size
        announced = announced_size(view, at)
        if record is Problem.BLANK or announced <= 0:
            return len(view) - at
        # Dispatch went over it in the same way, and has told.
        return min(announced, len(view) - at)
