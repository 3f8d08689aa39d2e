"""Frames and records byte for byte as Apache's classes decode them."""

from __future__ import annotations

import struct
import zlib

import pytest

from failback.protocol.clients import HeartbeatData, ProducerData
from failback.protocol.command import (
    RemotingCommand,
    encode_pull_response_head,
)
from failback.protocol.frames import SERIALIZE_ROCKETMQ, FrameReader
from failback.protocol.headers import (
    PullMessageResponseHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    from_ext,
)
from failback.protocol.message import (
    BLANK_MAGIC,
    V1_MAGIC,
    BatchElement,
    decode_batch,
    decode_record,
    decode_records,
    encode_batch,
    encode_properties,
    encode_record,
    java_hash,
    offset_msg_id,
    pack_host,
    parse_offset_msg_id,
    tags_code,
)
from failback.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from tests.support.common.protocol_golden import golden_bytes

SEND_HEADER = SendMessageRequestHeader(
    producer_group="PG",
    topic="TopicTest",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=0,
    sys_flag=0,
    born_timestamp=1_700_000_000_000,
    flag=0,
    properties="TAGS\x01TagA\x02WAIT\x01true",
    reconsume_times=0,
)


def decode(data: bytes) -> RemotingCommand:
    reader = FrameReader()
    reader.receive_data(data)
    frame = reader.next_frame()
    assert frame is not None
    assert reader.buffered_bytes == 0
    return RemotingCommand.from_frame(frame)


def test_heartbeat_request() -> None:
    body = HeartbeatData("10.0.0.1@4242", [ProducerData("PG")], [])
    command = RemotingCommand.request(34, body=body.to_json())
    command.opaque = 1

    assert command.encode() == golden_bytes("heartbeat_request")
    assert decode(golden_bytes("heartbeat_request")) == command
    assert HeartbeatData.from_json(command.body) == body


def test_send_request_with_json_header() -> None:
    command = RemotingCommand.request(310, SEND_HEADER.to_v2(), b"hello")
    command.opaque = 2

    golden = golden_bytes("send_v2_request_json")
    # fastjson writes the extFields in the order of a hash map; letters come out sorted.
    assert command.encode() == golden
    decoded = decode(golden)
    assert decoded == command
    header = from_ext(SendMessageRequestHeaderV2, decoded.ext_fields)
    assert SendMessageRequestHeader.from_v2(header) == SEND_HEADER


def test_send_request_with_binary_header() -> None:
    command = RemotingCommand.request(310, SEND_HEADER.to_v2(), b"hello")
    command.opaque = 2
    command.serialize_type = SERIALIZE_ROCKETMQ

    assert command.encode() == golden_bytes("send_v2_request_binary")
    assert decode(golden_bytes("send_v2_request_binary")) == command


def test_pull_response_with_one_message() -> None:
    golden = golden_bytes("pull_response_found")
    response = decode(golden)
    record = encode_record(
        topic="TopicTest",
        queue_id=0,
        body=b"hello",
        properties="TAGS\x01TagA\x02UNIQ_KEY\x010A0000011092251A69D70A7A0B1C0000"
        "\x02CLUSTER\x01DefaultCluster",
        queue_offset=7,
        physical_offset=4096,
        born_timestamp=1_700_000_000_000,
        born_host=pack_host("10.0.0.1", 54321),
        store_timestamp=1_700_000_000_005,
        store_host=pack_host("10.0.0.9", 10911),
    )

    assert (response.code, response.remark, response.opaque) == (0, "FOUND", 3)
    header = from_ext(PullMessageResponseHeader, response.ext_fields)
    assert header == PullMessageResponseHeader(0, 8, 0, 8)
    assert response.body == record
    (message,) = decode_records(response.body)
    assert message.body == b"hello"
    assert message.body_crc == 0x3610A686
    assert message.msg_id == "0A0000011092251A69D70A7A0B1C0000"
    assert message.offset_msg_id == "0A00000900002A9F0000000000001000"
    assert message.born_host == ("10.0.0.1", 54321)
    assert (message.tags, message.keys) == ("TagA", None)


def test_the_pull_template_writes_the_same_bytes() -> None:
    golden = golden_bytes("pull_response_found")
    record = golden[-179:]
    answer = encode_pull_response_head(
        3,
        0,
        b"FOUND",
        suggest_which_broker_id=0,
        next_begin_offset=8,
        min_offset=0,
        max_offset=8,
        body_bytes=len(record),
    )
    assert answer + record == golden


STORED = {
    "TAGS": "TagA",
    "KEYS": "order-1",
    "UNIQ_KEY": "C0A8010A00010000000000000000002A",
    "CLUSTER": "DefaultCluster",
}


def test_stored_record() -> None:
    record = encode_record(
        topic="TopicTest",
        queue_id=3,
        body=b"Hello RocketMQ",
        properties=STORED,
        queue_offset=42,
        physical_offset=1 << 30,
        born_timestamp=1_700_000_000_000,
        born_host=pack_host("192.168.1.10", 50000),
        store_timestamp=1_700_000_000_123,
        store_host=pack_host("192.168.1.20", 10911),
    )
    assert record == golden_bytes("stored_record")
    message, end = decode_record(record)
    assert end == len(record) == 201
    assert message.properties == STORED
    assert message.offset_msg_id == "C0A8011400002A9F0000000040000000"
    assert message.body_crc == zlib.crc32(b"Hello RocketMQ") & 0x7FFFFFFF


def test_version_2_of_the_stored_record_is_read() -> None:
    v1 = golden_bytes("stored_record")
    v2 = struct.pack(">iI", 202, 0xDAA320AB) + v1[8:102] + b"\x00\x09" + v1[103:]
    assert decode_record(v2)[0].topic == "TopicTest"
    assert decode_record(v2)[1] == 202


def test_magic_numbers() -> None:
    assert struct.pack(">I", V1_MAGIC) == bytes.fromhex("daa320a7")
    assert struct.pack(">iI", 300, BLANK_MAGIC) == bytes.fromhex("0000012ccbd43194")


def test_the_crc_of_a_body_has_its_top_bit_cleared() -> None:
    assert zlib.crc32(b"a") == 0xE8B7BE43
    host = pack_host("1.2.3.4", 1)
    record = encode_record(topic="T", queue_id=0, body=b"a", born_host=host, store_host=host)
    assert record[8:12] == bytes.fromhex("68b7be43")


def test_batch_body() -> None:
    batch = bytes.fromhex(
        "000000210000000000000000000000000000000262310009544147530154616741"
        "000000210000000000000000000000000000000262320009544147530154616742"
    )
    elements = [
        BatchElement(0, b"b1", encode_properties({"TAGS": "TagA"}).encode()),
        BatchElement(0, b"b2", encode_properties({"TAGS": "TagB"}).encode()),
    ]
    assert encode_batch(elements) == batch
    assert decode_batch(batch) == elements


def test_offset_message_id() -> None:
    text = offset_msg_id(pack_host("10.0.0.9", 10911), 4096)
    assert text == "0A00000900002A9F0000000000001000"
    assert parse_offset_msg_id(text) == ("10.0.0.9", 10911, 4096)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("TopicTest#order-1", -1829193424),
        ("größe", 98762257),
        ("😀", 1772899),
    ],
)
def test_java_hash(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_tags_code() -> None:
    assert tags_code("TagA") == 2598919
    assert tags_code(None) == tags_code("") == 0


REGISTRATION = RegisterBrokerBody(
    TopicConfigSerializeWrapper(
        {"TopicTest": TopicConfig("TopicTest", 8, 8)}, DataVersion(1_700_000_000_000, 4)
    )
)
REGISTRATION_PLAIN = (
    "000000277b22636f756e746572223a342c2274696d657374616d70223a313730303030303030303030307d"
    "000000010000001a546f706963546573742038203820362053494e474c455f544147000000025b5d"
)
REGISTRATION_BY_JAVA = (
    "78da63606050af564ace2fcd2b492d52b232d1512ac9cc4d2d2e49cc2d50b232343740805a0606064620960a"
    "c92fc84c0e01aa51b000423385604f3f771fd7f8104777a02c53742c00812b145f"
)


def test_compressed_registration() -> None:
    assert zlib.decompress(REGISTRATION.to_compressed()).hex() == REGISTRATION_PLAIN
    assert RegisterBrokerBody.from_compressed(bytes.fromhex(REGISTRATION_BY_JAVA)) == REGISTRATION


def test_the_tail_of_a_5x_registration_is_ignored() -> None:
    plain = (
        bytes.fromhex(REGISTRATION_PLAIN).replace(
            b"\x00\x00\x00\x1aTopicTest 8 8 6 SINGLE_TAG",
            b'\x00\x00\x00\x22TopicTest 8 8 6 SINGLE_TAG {"a":1}',
        )
        + struct.pack(">ii", 1, 2)
        + b"{}"
    )
    assert RegisterBrokerBody.from_compressed(zlib.compress(plain)) == REGISTRATION
