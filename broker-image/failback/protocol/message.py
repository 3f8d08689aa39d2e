"""Messages: stored records, batch elements, properties, ids and the tag hash. Pure.

One record (V1), as it lies in the commit log and in the body of a pull answer, big-endian:

      0 totalSize i32   4 magic DAA320A7    8 bodyCRC i32      12 queueId i32     16 flag i32
     20 queueOffset i64                    28 physicalOffset i64                  36 sysFlag i32
     40 bornTimestamp i64                  48 bornHost 8 or 20 bytes
     56 storeTimestamp i64                 64 storeHost 8 or 20 bytes
     72 reconsumeTimes i32                 76 preparedTransactionOffset i64
     84 bodyLength i32, body   topicLength u8, topic   propertiesLength i16, properties

Offsets hold for two IPv4 hosts; a host is ip and i32 port, 20 bytes for IPv6, which sysFlag
0x10 (born) and 0x20 (store) say. V2 (magic DAA320AB, 5.x) has a u16 topicLength. The CRC is
that of the stored body with the top bit cleared. Source: MessageDecoder and
MessageExtEncoder of apache/rocketmq 4.9.8, MessageVersion of 5.3.3.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec

from failback.protocol.codes import (
    BORN_HOST_V6,
    COMPRESSED,
    COMPRESSION_LZ4,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    STORE_HOST_V6,
)
from failback.protocol.errors import ProtocolError

V1_MAGIC: Final = 0xDAA320A7
V2_MAGIC: Final = 0xDAA320AB
BLANK_MAGIC: Final = 0xCBD43194
"""Begins the unused rest of a commit-log file: size of the rest, then this. Never sent."""

RECORD_FIXED_BYTES: Final = 91  # a V1 record with IPv4 hosts and nothing of variable length
MAX_TOPIC_BYTES: Final = 127
MAX_PROPERTIES_BYTES: Final = 32767
_GZIP_BITS: Final = 16 + zlib.MAX_WBITS
MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
"""A compressed body that grows beyond this is refused: 16 times the broker's own limit."""

NAME_END: Final = "\x01"
PROPERTY_END: Final = "\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
UNIQ_KEY: Final = "UNIQ_KEY"
CLUSTER: Final = "CLUSTER"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
INSTANCE_ID: Final = "INSTANCE_ID"

PUT_ASIDE_REASON: Final = "PUT_ASIDE_REASON"
"""Why a message was parked; the next two say which one it was."""
PUT_ASIDE_OFFSET: Final = "PUT_ASIDE_OFFSET"
"""The physical offset of the record that could not be delivered."""
PUT_ASIDE_FOR: Final = "PUT_ASIDE_FOR"
"""The topic that it was for."""

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"

RECORD_HEADS: Final = {
    (born, store): struct.Struct(f">iIIiiqqiq{born}sq{store}siqi")
    for born in (8, 20)
    for store in (8, 20)
}
"""The fixed part of a record, up to its body, by the lengths of born and store host."""
RECORD_HEAD_V4: Final = RECORD_HEADS[8, 8]
_U16: Final = struct.Struct(">H")
_PORT: Final = struct.Struct(">i")
_ID_V4: Final = struct.Struct(">4siq")
_ID_V6: Final = struct.Struct(">16siq")
_ELEMENT: Final = struct.Struct(">iIIii")  # totalSize, magic, crc, flag, bodyLength


class MessageExt(msgspec.Struct):
    """A message as it was stored, its body inflated if decoding was to do that."""

    topic: str
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: dict[str, str]
    store_size: int
    body_crc: int

    @property
    def msg_id(self) -> str:
        """The id users see: UNIQ_KEY, or the offset id of messages without one."""
        return self.properties.get(UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        return offset_msg_id(pack_host(*self.store_host), self.physical_offset)

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        return self.properties.get(KEYS)


# --- records ------------------------------------------------------------------------------


def encode_record(
    *,
    topic: str | bytes,
    queue_id: int,
    body: bytes,
    properties: Mapping[str, str] | str | bytes = b"",
    queue_offset: int = 0,
    physical_offset: int = 0,
    born_timestamp: int = 0,
    born_host: bytes,
    store_timestamp: int = 0,
    store_host: bytes,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
) -> bytes:
    """Return one V1 record. Hosts are packed (:func:`pack_host`).

    The IPv6 bits of ``sys_flag`` are set from the hosts' lengths.

    Raises:
        ProtocolError: Topic or properties are too long, or a number does not fit its field.
    """
    topic_bytes = topic.encode() if isinstance(topic, str) else bytes(topic)
    if isinstance(properties, Mapping):
        properties = encode_properties(properties)
    property_bytes = properties.encode() if isinstance(properties, str) else bytes(properties)
    if len(topic_bytes) > MAX_TOPIC_BYTES or len(property_bytes) > MAX_PROPERTIES_BYTES:
        raise ProtocolError(
            f"topic of {len(topic_bytes)} and properties of {len(property_bytes)} bytes; the limits"
            f" are {MAX_TOPIC_BYTES} and {MAX_PROPERTIES_BYTES}"
        )
    sys_flag = _with_host_bits(sys_flag, born_host, store_host)
    size = RECORD_FIXED_BYTES - 16 + len(born_host) + len(store_host)
    size += len(body) + len(topic_bytes) + len(property_bytes)
    try:
        head = RECORD_HEADS[len(born_host), len(store_host)].pack(
            size,
            V1_MAGIC,
            zlib.crc32(body) & 0x7FFFFFFF,
            queue_id,
            flag,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            len(body),
        )
        topic_length, property_length = bytes((len(topic_bytes),)), _U16.pack(len(property_bytes))
        return b"".join((head, body, topic_length, topic_bytes, property_length, property_bytes))
    except struct.error as error:
        raise ProtocolError(f"a number of the record does not fit its field: {error}") from error


def _with_host_bits(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if len(born_host) == 20:
        sys_flag |= BORN_HOST_V6
    if len(store_host) == 20:
        sys_flag |= STORE_HOST_V6
    return sys_flag


def record_head(sys_flag: int) -> struct.Struct:
    """Return the layout of the fixed part of a record whose sysFlag is ``sys_flag``."""
    if not sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        return RECORD_HEAD_V4
    return RECORD_HEADS[20 if sys_flag & BORN_HOST_V6 else 8, 20 if sys_flag & STORE_HOST_V6 else 8]


def decode_records(data: bytes | memoryview, *, decompress: bool = True) -> list[MessageExt]:
    """Decode the body of a pull answer: records one behind the other.

    Raises:
        ProtocolError: A length overruns, a magic is unknown, or a body cannot be inflated.
    """
    data = bytes(data)
    messages = []
    position = 0
    while position < len(data):
        message, position = decode_record(data, position, decompress=decompress)
        messages.append(message)
    return messages


def decode_record(
    data: bytes | memoryview, position: int = 0, *, decompress: bool = True
) -> tuple[MessageExt, int]:
    """Decode the record at ``position``; return it and the position behind it.

    Raises:
        ProtocolError: As :func:`decode_records`.
    """
    try:
        return _decode_record(data, position, decompress)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"record at {position} is cut off: {error}") from error


def _decode_record(
    data: bytes | memoryview, start: int, decompress: bool
) -> tuple[MessageExt, int]:
    (
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_bytes,
    ) = RECORD_HEAD_V4.unpack_from(data, start)
    position = start + RECORD_HEAD_V4.size
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        layout = record_head(sys_flag)
        born_host, store_timestamp, store_host, *rest = layout.unpack_from(data, start)[9:]
        reconsume_times, prepared_transaction_offset, body_bytes = rest
        position = start + layout.size
    end = start + size
    if magic not in (V1_MAGIC, V2_MAGIC) or body_bytes < 0 or end > len(data):
        raise ProtocolError(
            f"record at {start}: magic {magic:08x}, size {size}, body {body_bytes},"
            f" {len(data) - start} bytes left"
        )
    body = bytes(data[position : position + body_bytes])
    position += body_bytes
    if magic == V1_MAGIC:
        topic_bytes = data[position]
        position += 1
    else:
        (topic_bytes,) = _U16.unpack_from(data, position)
        position += 2
    topic = bytes(data[position : position + topic_bytes]).decode(errors="replace")
    position += topic_bytes
    (property_bytes,) = _U16.unpack_from(data, position)
    position += 2
    properties = decode_properties(bytes(data[position : position + property_bytes]))
    if position + property_bytes != end:
        raise ProtocolError(
            f"record at {start}: parts end at {position + property_bytes}, not {end}"
        )
    if decompress and sys_flag & COMPRESSED:
        body = inflate_body(body, sys_flag)
    message = MessageExt(
        topic,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        unpack_host(born_host),
        store_timestamp,
        unpack_host(store_host),
        reconsume_times,
        prepared_transaction_offset,
        body,
        properties,
        size,
        crc,
    )
    return message, end


def inflate_body(body: bytes, sys_flag: int) -> bytes:
    """Inflate a body that ``sys_flag`` says is compressed with zlib.

    Raises:
        ProtocolError: LZ4 or ZSTD (5.x producers on request only), no zlib stream, or more
            than :data:`MAX_INFLATED_BYTES`.
    """
    kind = sys_flag & COMPRESSION_TYPE_MASK
    if kind not in (0, COMPRESSION_ZLIB):
        name = {COMPRESSION_LZ4: "LZ4", COMPRESSION_ZSTD: "ZSTD"}.get(kind, hex(kind))
        raise ProtocolError(f"body compressed with {name}; only zlib is read")
    return inflate(body)


def inflate(data: bytes, most_bytes: int = MAX_INFLATED_BYTES, *, is_gzip: bool = False) -> bytes:
    """Inflate a zlib or gzip stream to ``most_bytes`` at most.

    Raises:
        ProtocolError: It is none, it is cut off, or it is a bomb.
    """
    inflater = zlib.decompressobj(_GZIP_BITS if is_gzip else zlib.MAX_WBITS)
    try:
        inflated = inflater.decompress(data, most_bytes)
    except zlib.error as error:
        raise ProtocolError(f"not a zlib stream: {error}") from error
    if not inflater.eof:
        what = "is cut off" if len(inflated) < most_bytes else f"has more than {most_bytes} inside"
        raise ProtocolError(f"zlib stream of {len(data)} bytes {what}")
    return inflated


def deflate_body(body: bytes, sys_flag: int, level: int = 5) -> tuple[bytes, int]:
    """Compress as a 4.9.8 producer does; return the body and its sysFlag."""
    sys_flag = sys_flag & ~COMPRESSION_TYPE_MASK | COMPRESSED | COMPRESSION_ZLIB
    return zlib.compress(body, level), sys_flag


# --- batches ------------------------------------------------------------------------------


class BatchElement(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch; topic, queue and times come from the request's header."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    """Return the body of a batch send (code 320).

    Raises:
        ProtocolError: Properties are too long.
    """
    pieces: list[bytes] = []
    for element in elements:
        body, properties = element.body, element.properties
        if len(properties) > MAX_PROPERTIES_BYTES:
            raise ProtocolError(f"properties of {len(properties)} bytes in a batch")
        size = _ELEMENT.size + len(body) + _U16.size + len(properties)
        pieces += (
            _ELEMENT.pack(size, 0, 0, element.flag, len(body)),
            body,
            _U16.pack(len(properties)),
            properties,
        )
    return b"".join(pieces)


def decode_batch(body: bytes | memoryview) -> list[BatchElement]:
    """Split the body of a batch send into its elements; the size in an element is ignored.

    Twin of ``measure_batch`` in ``native/batch.c``.

    Raises:
        ProtocolError: The lengths contradict each other.
    """
    data = bytes(body)
    elements: list[BatchElement] = []
    unpack, element_bytes = _ELEMENT.unpack_from, _ELEMENT.size
    add, total = elements.append, len(data)
    position = 0
    try:
        while position < total:
            _, _, _, flag, body_bytes = unpack(data, position)
            body_start = position + element_bytes
            body_end = body_start + body_bytes
            if body_bytes < 0:
                raise ProtocolError(f"batch element at {position}: body of {body_bytes} bytes")
            property_start = body_end + 2
            end = property_start + (data[body_end] << 8 | data[body_end + 1])
            if end > total:
                raise ProtocolError(f"batch element at {position} ends {end - total} bytes behind")
            add(BatchElement(flag, data[body_start:body_end], data[property_start:end]))
            position = end
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"batch element at {position} is cut off: {error}") from error
    return elements


# --- properties ---------------------------------------------------------------------------


def encode_properties(properties: Mapping[str, str]) -> str:
    """Join properties as 4.9.8 does, without a separator at the end.

    Raises:
        ProtocolError: A name or value contains a separator.
    """
    text = PROPERTY_END.join([f"{name}{NAME_END}{value}" for name, value in properties.items()])
    count = len(properties)
    if text.count(NAME_END) != count or text.count(PROPERTY_END) != max(count - 1, 0):
        raise ProtocolError("a property's name or value contains U+0001 or U+0002")
    return text


def join_properties(properties: Mapping[str, str]) -> str:
    """As :func:`encode_properties`, of what :func:`decode_properties` took apart.

    A value may hold U+0001 there, and does so again; no other separator can be in it.
    """
    return PROPERTY_END.join([f"{name}{NAME_END}{value}" for name, value in properties.items()])


def decode_properties(properties: str | bytes) -> dict[str, str]:
    """Split a properties text; pieces without name or value are dropped, the last name wins."""
    if isinstance(properties, bytes):
        properties = properties.decode(errors="replace")
    table = {}
    for piece in properties.split(PROPERTY_END):
        name, _, value = piece.partition(NAME_END)
        if name and value:
            table[name] = value
    return table


# --- hosts, ids, hashes -------------------------------------------------------------------


@lru_cache(maxsize=4096)
def pack_host(ip: str, port: int) -> bytes:
    """Return 4 or 16 address bytes and the port: the host fields of a record.

    Raises:
        ProtocolError: ``ip`` is no address (names are not resolved here).
    """
    try:
        return ipaddress.ip_address(ip).packed + _PORT.pack(port)
    except (ValueError, struct.error) as error:
        raise ProtocolError(f"no packable host: {ip}:{port}") from error


@lru_cache(maxsize=4096)
def unpack_host(host: bytes) -> tuple[str, int]:
    """Reverse :func:`pack_host`.

    Raises:
        ProtocolError: ``host`` is neither 8 nor 20 bytes long.
    """
    if len(host) not in (8, 20):
        raise ProtocolError(f"host of {len(host)} bytes")
    (port,) = _PORT.unpack_from(host, len(host) - 4)
    if len(host) == 8:
        return "%d.%d.%d.%d" % tuple(host[:4]), port  # noqa: UP031 - four times faster
    return str(ipaddress.IPv6Address(host[:16])), port


def offset_msg_id(host: bytes, physical_offset: int) -> str:
    """Return the broker's id of a message: packed store host and physical offset in hex."""
    return (host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_msg_id(text: str) -> tuple[str, int, int]:
    """Return ip, port and physical offset of an offset message id.

    Raises:
        ProtocolError: It is none.
    """
    try:
        packed = bytes.fromhex(text) if len(text) in (32, 56) else b""
        layout = _ID_V4 if len(packed) == 16 else _ID_V6
        _, _, physical_offset = layout.unpack(packed)
    except (ValueError, struct.error) as error:
        raise ProtocolError(f"no offset message id: {text[:60]!r}") from error
    return (*unpack_host(packed[:-8]), physical_offset)


def java_hash(text: str) -> int:
    """Return ``String.hashCode()``: h = 31·h + unit over UTF-16 units, as a signed 32-bit."""
    state = java_hash_state(text)
    return state - (1 << 32) if state >> 31 else state


def java_hash_state(text: str, state: int = 0) -> int:
    """Continue a hash (unsigned 32-bit): keep the state after a prefix that many keys share."""
    if text.isascii():
        for unit in text.encode("ascii"):
            state = (31 * state + unit) & 0xFFFFFFFF
        return state
    units = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        state = (31 * state + unit) & 0xFFFFFFFF
    return state


@lru_cache(maxsize=8192)
def _cached_hash(text: str) -> int:
    return java_hash(text)


def tags_code(tag: str | None) -> int:
    """Return what a consume-queue entry stores for a tag; 0 for none."""
    return _cached_hash(tag) if tag else 0


class UniqKeyGenerator:
    """Makes UNIQ_KEY ids as MessageClientIDSetter does: unique per process, roughly dated.

    ip ‖ pid u16 ‖ ``clash`` i32 ‖ ms since the month began, local time, i32 ‖ counter u16; in
    hex. ``clash`` is Java's class-loader hash: any number, so that two processes with equal
    pids behind one address differ.
    """

    def __init__(self, ip: str, pid: int, clash: int, now_ms: Callable[[], int]) -> None:
        address = pack_host(ip, 0)[:-4]
        fixed = address + struct.pack(">HI", pid & 0xFFFF, clash & 0xFFFFFFFF)
        self._fixed = fixed.hex().upper()
        self._now_ms = now_ms
        self._month = (0, 0)  # start and end of the month last seen, ms
        self._counter = 0

    def next(self) -> str:
        now = self._now_ms()
        if now >= self._month[1]:
            self._month = _month_of(now)
        # A clock that steps back over the start of the month must not make a negative number.
        elapsed = max(now - self._month[0], 0)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._fixed}{elapsed & 0xFFFFFFFF:08X}{counter:04X}"


def _month_of(now_ms: int) -> tuple[int, int]:
    """Return start and end of the local month that holds ``now_ms``, in ms."""
    start = datetime.fromtimestamp(now_ms / 1000).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    year, month = (start.year + 1, 1) if start.month == 12 else (start.year, start.month + 1)
    end = start.replace(year=year, month=month)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
