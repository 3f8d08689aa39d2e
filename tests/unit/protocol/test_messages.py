"""Records, batches, properties and ids: round trips, damage, and other producers' habits."""

from __future__ import annotations

import calendar
import contextlib
import struct
import zlib
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.protocol.codes import BORN_HOST_V6, STORE_HOST_V6
from failback.protocol.errors import ProtocolError
from failback.protocol.message import (
    BatchElement,
    UniqKeyGenerator,
    decode_batch,
    decode_properties,
    decode_record,
    decode_records,
    deflate_body,
    encode_batch,
    encode_properties,
    encode_record,
    inflate,
    java_hash,
    java_hash_state,
    offset_msg_id,
    pack_host,
    parse_offset_msg_id,
    unpack_host,
)
from tests.support.common.protocol_golden import golden_bytes

plain = st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02")
names = st.text(plain, min_size=1, max_size=10)
properties = st.dictionaries(names, names, max_size=5)
ipv4 = st.ip_addresses(v=4).map(str)
hosts = st.tuples(st.ip_addresses().map(str), st.integers(0, 65535))
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)

V4 = pack_host("10.0.0.1", 54321)


def record(body: bytes = b"hello", sys_flag: int = 0, topic: str = "TopicTest") -> bytes:
    return encode_record(
        topic=topic,
        queue_id=1,
        body=body,
        properties={"TAGS": "TagA"},
        sys_flag=sys_flag,
        born_host=V4,
        store_host=V4,
    )


@given(
    topic=st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=127),
    queue_id=int32,
    flag=int32,
    offsets=st.tuples(int64, int64, int64),
    times=st.tuples(int64, int64),
    born=hosts,
    stored=hosts,
    reconsume_times=int32,
    body=st.binary(max_size=100),
    table=properties,
    sys_flag=st.sampled_from([0, 2, 4, 8, 12, BORN_HOST_V6, STORE_HOST_V6]),
)
def test_records_round_trip(
    topic: str,
    queue_id: int,
    flag: int,
    offsets: tuple[int, int, int],
    times: tuple[int, int],
    born: tuple[str, int],
    stored: tuple[str, int],
    reconsume_times: int,
    body: bytes,
    table: dict[str, str],
    sys_flag: int,
) -> None:
    encoded = encode_record(
        topic=topic,
        queue_id=queue_id,
        flag=flag,
        body=body,
        properties=table,
        queue_offset=offsets[0],
        physical_offset=offsets[1],
        prepared_transaction_offset=offsets[2],
        born_timestamp=times[0],
        store_timestamp=times[1],
        born_host=pack_host(*born),
        store_host=pack_host(*stored),
        reconsume_times=reconsume_times,
        sys_flag=sys_flag,
    )
    message, end = decode_record(b"??" + encoded, 2)
    assert end == 2 + len(encoded) == 2 + message.store_size
    assert (message.topic, message.queue_id, message.flag) == (topic, queue_id, flag)
    assert (message.queue_offset, message.physical_offset) == offsets[:2]
    assert message.prepared_transaction_offset == offsets[2]
    assert (message.born_timestamp, message.store_timestamp) == times
    assert message.born_host == (born[0], born[1])
    assert message.store_host == (stored[0], stored[1])
    assert (message.body, message.properties) == (body, table)
    assert message.reconsume_times == reconsume_times
    assert message.sys_flag & 0xF == sys_flag & 0xF
    assert bool(message.sys_flag & BORN_HOST_V6) == (":" in born[0])
    assert bool(message.sys_flag & STORE_HOST_V6) == (":" in stored[0])


def test_records_lie_one_behind_the_other() -> None:
    bodies = [b"", b"one", b"two"]
    data = b"".join(map(record, bodies))
    assert [message.body for message in decode_records(data)] == bodies
    assert [message.body for message in decode_records(memoryview(data))] == bodies


@given(data=st.data())
def test_damaged_records_raise_protocol_errors_only(data: st.DataObject) -> None:
    damaged = bytearray(golden_bytes("stored_record"))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    cut_at = data.draw(st.integers(0, len(damaged)))
    for view in (bytes(damaged), bytes(damaged[:cut_at])):
        with contextlib.suppress(ProtocolError):
            decode_records(view)


@pytest.mark.parametrize("cut_at", [1, 87, 100, 150, 200])
def test_a_record_that_is_cut_off_is_an_error(cut_at: int) -> None:
    with pytest.raises(ProtocolError):
        decode_records(golden_bytes("stored_record")[:cut_at])


def test_a_size_that_disagrees_with_the_parts_is_an_error() -> None:
    good = golden_bytes("stored_record")
    wrong = struct.pack(">i", 203) + good[4:] + b"\x00\x00"
    with pytest.raises(ProtocolError, match="parts end at 201, not 203"):
        decode_record(wrong)


def test_topics_and_properties_that_are_no_utf8_are_read_as_java_does() -> None:
    data = encode_record(
        topic=b"T\xff", queue_id=0, body=b"", properties=b"A\x01\xff", born_host=V4, store_host=V4
    )
    message, _ = decode_record(data)
    assert (message.topic, message.properties) == ("T\ufffd", {"A": "\ufffd"})


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
def test_zlib_bodies_are_inflated_on_request(sys_flag: int) -> None:
    data = record(zlib.compress(b"hello" * 1000), sys_flag)
    assert decode_record(data)[0].body == b"hello" * 1000
    assert decode_record(data, decompress=False)[0].body == zlib.compress(b"hello" * 1000)


def test_deflate_sets_the_flags_of_4_9_8() -> None:
    body, sys_flag = deflate_body(b"x" * 5000, 0)
    assert (sys_flag, inflate(body)) == (769, b"x" * 5000)


@pytest.mark.parametrize(
    ("body", "sys_flag", "problem"),
    [
        (b"no zlib", 0x1, "not a zlib stream"),
        (zlib.compress(b"hello" * 100)[:-3], 0x301, "cut off"),
        (b"", 0x1, "cut off"),
        (b"x", 0x101, "LZ4"),
        (b"x", 0x201, "ZSTD"),
    ],
)
def test_bodies_that_cannot_be_inflated_are_errors(
    body: bytes, sys_flag: int, problem: str
) -> None:
    with pytest.raises(ProtocolError, match=problem):
        decode_record(record(body, sys_flag))


def test_a_bomb_is_refused() -> None:
    squashed = zlib.compress(bytes(65 << 20), 9)
    with pytest.raises(ProtocolError, match="has more than"):
        inflate(squashed)


def test_what_does_not_fit_a_record_is_refused() -> None:
    with pytest.raises(ProtocolError, match="topic of 128"):
        record(topic="t" * 128)
    with pytest.raises(ProtocolError, match="does not fit"):
        encode_record(topic="T", queue_id=2**31, body=b"", born_host=V4, store_host=V4)
    with pytest.raises(ProtocolError, match="32768"):
        encode_record(
            topic="T", queue_id=0, body=b"", properties=bytes(32768), born_host=V4, store_host=V4
        )


elements = st.builds(BatchElement, int32, st.binary(max_size=60), st.binary(max_size=60))


@given(batch=st.lists(elements, max_size=6))
def test_batches_round_trip(batch: list[BatchElement]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(batch=st.lists(elements, min_size=1, max_size=3), data=st.data())
def test_damaged_batches_raise_protocol_errors_only(
    batch: list[BatchElement], data: st.DataObject
) -> None:
    damaged = bytearray(encode_batch(batch))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        decode_batch(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


def test_a_cut_batch_is_an_error() -> None:
    with pytest.raises(ProtocolError):
        decode_batch(encode_batch([BatchElement(0, b"b1", b"")])[:-1])


@pytest.mark.foreign
@pytest.mark.parametrize("size", [0, -1, 25, 27, 2**31 - 1])
def test_the_size_that_a_batch_element_says_it_has_is_not_looked_at(size: int) -> None:
    """Apache 4.9.7 passes over it, so nobody notices a client that counts it in another way."""
    batch = [BatchElement(0, b"b1", b"pp"), BatchElement(3, b"", b"")]
    good = encode_batch(batch)
    assert good[26:30] == struct.pack(">i", 22)
    written = struct.pack(">i", size) + good[4:26] + struct.pack(">i", size) + good[30:]
    assert decode_batch(written) == batch


def test_a_negative_body_length_in_a_batch_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="body of -2 bytes"):
        decode_batch(struct.pack(">iIIiih", 20, 0, 0, 0, -2, 0))


@given(table=properties)
def test_properties_round_trip(table: dict[str, str]) -> None:
    text = encode_properties(table)
    assert decode_properties(text) == table
    assert decode_properties(text.encode() + b"\x02") == table


def test_other_producers_properties() -> None:
    text = "A\x011\x02\x02nothing\x02\x01x\x02B\x01\x02A\x012\x02C\x01x\x01y\x02"
    assert decode_properties(text) == {"A": "2", "C": "x\x01y"}


@pytest.mark.parametrize("table", [{"a\x01": "b"}, {"a": "b\x02"}, {"a": "b", "c\x02": "\x01"}])
def test_separators_in_properties_are_refused(table: dict[str, str]) -> None:
    with pytest.raises(ProtocolError, match="U\\+0001"):
        encode_properties(table)


@given(host=hosts, physical_offset=int64)
def test_offset_message_ids_round_trip(host: tuple[str, int], physical_offset: int) -> None:
    text = offset_msg_id(pack_host(*host), physical_offset)
    assert len(text) == (56 if ":" in host[0] else 32)
    assert parse_offset_msg_id(text) == (*host, physical_offset)


@pytest.mark.parametrize("text", ["", "0A", "Z" * 32, "0A00000900002A9F00000000000010", "00" * 20])
def test_what_is_no_offset_message_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_offset_msg_id(text)


def test_names_are_no_hosts() -> None:
    with pytest.raises(ProtocolError, match="localhost"):
        pack_host("localhost", 1)
    with pytest.raises(ProtocolError):
        unpack_host(b"123")


@given(prefix=st.text(max_size=8), rest=st.text(max_size=8))
def test_a_hash_continues_from_its_prefix(prefix: str, rest: str) -> None:
    whole = java_hash_state(rest, java_hash_state(prefix))
    assert whole == java_hash(prefix + rest) & 0xFFFFFFFF


def test_unique_keys_have_the_layout_of_java() -> None:
    now = datetime(2026, 2, 3, 4, 5, 6).timestamp() * 1000
    generator = UniqKeyGenerator("10.0.0.1", 4242, 0x251A69D7, lambda: int(now))
    elapsed = ((2 * 24 + 4) * 3600 + 5 * 60 + 6) * 1000
    assert generator.next() == f"0A0000011092251A69D7{elapsed:08X}0000"
    assert generator.next() == f"0A0000011092251A69D7{elapsed:08X}0001"
    assert len(UniqKeyGenerator("fd00::1", 1, 2, lambda: int(now)).next()) == 56


def test_unique_keys_follow_the_month_and_never_go_negative() -> None:
    clock = [int(datetime(2026, 12, 31, 23, 59, 59).timestamp() * 1000)]
    generator = UniqKeyGenerator("10.0.0.1", 1, 2, lambda: clock[0])
    month_ms = calendar.monthrange(2026, 12)[1] * 86_400_000
    assert int(generator.next()[20:28], 16) == month_ms - 1000
    clock[0] += 1000
    assert int(generator.next()[20:28], 16) == 0
    clock[0] -= 500
    assert int(generator.next()[20:28], 16) == 0


def test_the_counter_of_unique_keys_wraps() -> None:
    generator = UniqKeyGenerator("10.0.0.1", 1, 2, lambda: 1_700_000_000_000)
    keys = [generator.next() for _ in range(65_537)]
    assert len(set(keys)) == 65_536
    assert keys[65_536] == keys[0]
