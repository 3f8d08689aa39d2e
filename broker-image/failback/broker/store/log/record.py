"""Records as the store sees them: laying out the fixed part, and checking one in the log.

``failback.protocol.message`` is the codec of all other packages and draws the layout. The store
needs two more things: writing a record as pieces of a larger run, with no copy of the body, and
checking a record in place, without decoding it.

    |              88 bytes              | body | topic length u8, topic | length i16, properties |

Source: CommitLog.checkMessageAndReturnSize and MessageExtEncoder, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import struct
import zlib
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from failback.protocol import message
from failback.protocol.codes import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
)
from failback.protocol.message import (
    BLANK_MAGIC,
    RECORD_FIXED_BYTES,
    RECORD_HEAD_V4,
    V1_MAGIC,
    record_head,
)

HEAD_BYTES: Final = RECORD_HEAD_V4.size
BLANK_BYTES: Final = 8
MAX_TOPIC_BYTES: Final = message.MAX_TOPIC_BYTES
MAX_PROPERTIES_BYTES: Final = message.MAX_PROPERTIES_BYTES

V1_MAGIC_BYTES: Final = V1_MAGIC.to_bytes(4, "big")
MAGIC_POSITION: Final = 4
TAGS: Final = b"TAGS\x01"

_PREFIX: Final = struct.Struct(">iI")
_I16: Final = struct.Struct(">h")
PROPERTY_LENGTHS: Final = tuple(_I16.pack(length) for length in range(1024))
"""The common lengths ready packed; longer ones are packed when met."""


def pack_blank(free_bytes: int) -> bytes:
    """Return the blank record that closes a file with ``free_bytes`` left."""
    return _PREFIX.pack(free_bytes, BLANK_MAGIC)


def pack_property_length(length: int) -> bytes:
    return PROPERTY_LENGTHS[length] if length < 1024 else _I16.pack(length)


def has_queue_entry(sys_flag: int) -> bool:
    """Whether a record of this type takes a queue offset: all but prepared and rolled back."""
    return sys_flag & TRANSACTION_MASK in (TRANSACTION_NONE, TRANSACTION_COMMIT)


class Record(NamedTuple):
    """A record that was found good, as far as dispatch needs it."""

    size: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    topic: bytes
    properties: bytes


class Problem(Enum):
    """Why there is no record at a position."""

    BLANK = "blank record: the file ends here"
    CUT_OFF = "the record ends behind the data"
    BAD_MAGIC = "no record begins here"
    BAD_LENGTHS = "the lengths inside the record do not add up"
    BAD_POSITION = "the record was written for another place"
    BAD_CRC = "the body does not match its CRC"


def read_record(
    view: memoryview, at: int, physical_offset: int, *, check_crc: bool
) -> Record | Problem:
    """Look at the record at byte ``at`` of ``view``, which is ``physical_offset`` of the log.

    ``view`` must not reach over the end of a mapped file.
    """
    available = len(view) - at
    if available < HEAD_BYTES:
        return _short(view, at, available)
    fields = RECORD_HEAD_V4.unpack_from(view, at)
    size, magic, crc, queue_id, _, queue_offset, own_offset, sys_flag = fields[:8]
    if magic != V1_MAGIC:
        return Problem.BLANK if magic == BLANK_MAGIC else Problem.BAD_MAGIC
    body_start = at + HEAD_BYTES
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        layout = record_head(sys_flag)
        if available < layout.size:
            return Problem.CUT_OFF
        fields = layout.unpack_from(view, at)
        body_start = at + layout.size
    store_timestamp, body_bytes = fields[10], fields[14]
    end = at + size
    if size < RECORD_FIXED_BYTES or body_bytes < 0:
        return Problem.BAD_LENGTHS
    if end > len(view):
        return Problem.CUT_OFF
    topic_start = body_start + body_bytes + 1
    if topic_start > end:
        return Problem.BAD_LENGTHS
    topic_end = topic_start + view[topic_start - 1]
    if topic_end + 2 > end:
        return Problem.BAD_LENGTHS
    properties_start = topic_end + 2
    if properties_start + (view[topic_end] << 8 | view[topic_end + 1]) != end:
        return Problem.BAD_LENGTHS
    if own_offset != physical_offset:
        return Problem.BAD_POSITION
    if check_crc and zlib.crc32(view[body_start : topic_start - 1]) & 0x7FFFFFFF != crc:
        return Problem.BAD_CRC
    return Record(
        size,
        queue_id,
        queue_offset,
        sys_flag,
        store_timestamp,
        bytes(view[topic_start:topic_end]),
        bytes(view[properties_start:end]),
    )


def _short(view: memoryview, at: int, available: int) -> Problem:
    """Judge fewer bytes than the smallest record has."""
    if available < _PREFIX.size:
        return Problem.CUT_OFF
    _, magic = _PREFIX.unpack_from(view, at)
    if magic == BLANK_MAGIC:
        return Problem.BLANK
    return Problem.CUT_OFF if magic == V1_MAGIC else Problem.BAD_MAGIC


def announced_size(view: memoryview, at: int) -> int:
    """Return the size that the record at ``at`` claims to have."""
    size: int = _PREFIX.unpack_from(view, at)[0]
    return size


# --- what a queue entry says of a record's properties ---------------------------------------


def tags_code_of(properties: bytes) -> int:
    """Return the hash of the TAGS property, 0 without one."""
    value = property_value(properties, TAGS)
    return _tags_code(value) if value else 0


def delay_level_of(properties: bytes) -> int:
    """Return the DELAY property, 0 if there is none or it is no number."""
    try:
        return int(property_value(properties, b"DELAY\x01"))
    except ValueError:
        return 0


def property_value(properties: bytes, name: bytes) -> bytes:
    """Return the value of the last property ``name`` (given with its 0x01) that has one."""
    at = properties.rfind(name)
    while at >= 0:
        if at == 0 or properties[at - 1] == 2:
            end = properties.find(b"\x02", at)
            value = properties[at + len(name) : end if end >= 0 else None]
            if value:
                return value
        at = properties.rfind(name, 0, at)
    return b""


@lru_cache(maxsize=8192)
def _tags_code(tag: bytes) -> int:
    return message.tags_code(tag.decode(errors="replace"))
