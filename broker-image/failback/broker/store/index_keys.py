"""The keys under which a record is indexed, and their hashes.

A record is found by its UNIQ_KEY and by each of its KEYS, which are separated by spaces. What is
hashed is ``topic#key``, as String.hashCode does, and then without its sign. Source:
IndexService.buildIndex and IndexFile.indexKeyHashMethod, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import struct
from operator import mul
from typing import Final, NamedTuple

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
    TRANSACTION_ROLLBACK,
)
from failback.protocol.message import RECORD_FIXED_BYTES, V1_MAGIC, java_hash_state

logger = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">iI28xi16xq20xi")
"""Of a record with IPv4 hosts: size, magic, sysFlag, store timestamp, body length."""
_HEAD_BYTES: Final = 88
_V6_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
_MASK: Final = 0xFFFFFFFF
_HIGHEST: Final = 0x7FFFFFFF

_TAIL: Final = 8
_TAIL_POWERS: Final = tuple(pow(31, _TAIL - 1 - at, 1 << 32) for at in range(_TAIL))
_HEAD_FACTOR: Final = pow(31, _TAIL, 1 << 32)
_MOST_HEADS: Final = 4096


class NewEntry(NamedTuple):
    """A key of a record, ready for an index file."""

    key_hash: int
    physical_offset: int
    store_timestamp: int


def without_sign(state: int) -> int:
    """Return the absolute value of an unsigned 32-bit ``state`` read as signed, 0 for -2^31."""
    if state > _HIGHEST:
        state = (1 << 32) - state
    return state if state <= _HIGHEST else 0


def key_hash(topic: str, key: str) -> int:
    """Return what an index file stores of a key."""
    return without_sign(java_hash_state(f"{topic}#{key}"))


def keys_of(properties: bytes) -> list[bytes]:
    """Return the keys of a record: UNIQ_KEY, then each of KEYS; none may be empty."""
    unique = property_value(properties, b"UNIQ_KEY\x01")
    keys = [unique] if unique else []
    if several := property_value(properties, b"KEYS\x01"):
        keys += [key for key in several.split(b" ") if key]
    return keys


class KeyHasher:
    """Hashes keys as bytes. Neighbours share all but the last characters: that part is kept."""

    def __init__(self) -> None:
        self._heads: dict[tuple[bytes, bytes], int] = {}
        """Of topic and a key without its last 8 characters: the hash so far, times 31^8."""

    def __call__(self, topic: bytes, key: bytes) -> int:
        """Return what an index file stores of a key."""
        if len(key) < _TAIL or not key.isascii():
            return key_hash(topic.decode(errors="replace"), key.decode(errors="replace"))
        head = topic, key[:-_TAIL]
        start = self._heads.get(head)
        if start is None:
            start = self._keep(head)
        state = (start + sum(map(mul, key[-_TAIL:], _TAIL_POWERS))) & _MASK
        return state if state <= _HIGHEST else without_sign(state)

    def _keep(self, head: tuple[bytes, bytes]) -> int:
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        topic, key = head
        text = f"{topic.decode(errors='replace')}#{key.decode()}"
        start = self._heads[head] = java_hash_state(text) * _HEAD_FACTOR & _MASK
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
        unpack, hash_of = _HEAD.unpack_from, self._hash
        for _ in range(most_records):
            if end - at < RECORD_FIXED_BYTES:
                return end  # no more than a blank record fits here
            size, magic, flags, timestamp, body_bytes = unpack(view, at)
            topic_start = at + _HEAD_BYTES + 1 + body_bytes
            record_end = at + size
            if (
                magic != V1_MAGIC
                or flags & _V6_BITS
                or not at < topic_start < record_end <= end
                or (topic_end := topic_start + view[topic_start - 1]) + 2 > record_end
                or topic_end + 2 + (view[topic_end] << 8 | view[topic_end + 1]) != record_end
            ):
                at += self._unusual(view, at, physical_offset + at, found)
                if at >= end:
                    return end
                continue
            if flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                topic = bytes(view[topic_start:topic_end])
                for key in keys_of(bytes(view[topic_end + 2 : record_end])):
                    entry = NewEntry(hash_of(topic, key), physical_offset + at, timestamp)
                    found.append(entry)
            at = record_end
        return at

    def _unusual(
        self, view: memoryview, at: int, physical_offset: int, found: list[NewEntry]
    ) -> int:
        """Take what is no plain IPv4 record; return how many bytes it has."""
        record = read_record(view, at, physical_offset, check_crc=False)
        if isinstance(record, Record):
            if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                for key in keys_of(record.properties):
                    code = self._hash(record.topic, key)
                    found.append(NewEntry(code, physical_offset, record.store_timestamp))
            return record.size
        announced = announced_size(view, at)
        if record is Problem.BLANK or announced <= 0:
            return len(view) - at
        # Dispatch went over it in the same way, and has told.
        return min(announced, len(view) - at)
