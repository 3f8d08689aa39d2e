"""Sends through a whole broker: what is stored, what is answered, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.messaging.send_rules import property_of, with_cluster, without_wait
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import SendMessageRequestHeader
from failback.protocol.message import (
    BatchElement,
    MessageExt,
    decode_properties,
    decode_records,
    encode_batch,
    encode_properties,
    parse_offset_msg_id,
    tags_code,
)
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import BrokerLab, broker_lab, send_header

CLUSTER = "DefaultCluster"


def stored(lab: BrokerLab, topic: str = "TopicTest", queue_id: int = 0) -> list[MessageExt]:
    result = lab.controller.store.get_message("G", topic, queue_id, 0, 1000)
    return decode_records(b"".join(result.chunks), decompress=False)


async def test_a_message_is_stored_as_4_9_8_stores_it(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect(("10.0.0.1", 54321))
        answer = await client.send(
            b"hello",
            properties="TAGS\x01TagA\x02UNIQ_KEY\x010A00\x02WAIT\x01true",
            sys_flag=0x301,
            flag=7,
            queue_id=2,
            reconsume_times=1,
        )
        (message,) = stored(lab, queue_id=2)
    assert answer.code == 0
    assert message.properties == {"TAGS": "TagA", "UNIQ_KEY": "0A00", "CLUSTER": CLUSTER}
    assert (message.flag, message.sys_flag, message.queue_id) == (7, 0x301, 2)
    assert message.reconsume_times == 1
    assert message.born_host == ("10.0.0.1", 54321)
    assert message.store_host == ("127.0.0.1", 10911)
    assert message.born_timestamp == 1_700_000_000_000


async def test_the_answer_names_id_queue_and_offset(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        answer = await client.send()
        second = stored(lab)[1]
    assert answer.ext_fields == {
        "msgId": second.offset_msg_id,
        "queueId": "0",
        "queueOffset": "1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert parse_offset_msg_id(second.offset_msg_id)[:2] == ("127.0.0.1", 10911)


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_v1_names_and_binary_headers_get_the_same_answer(
    tmp_path: Path, serialize_type: int
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        v2 = await client.send(serialize_type=serialize_type)
        v1_header = SendMessageRequestHeader.from_v2(send_header())
        v1 = await client.ask(
            RequestCode.SEND_MESSAGE, v1_header, b"hello", serialize_type=serialize_type
        )
        assert len(stored(lab)) == 2
    for answer, offset in ((v2, "0"), (v1, "1")):
        assert answer.code == 0
        assert answer.serialize_type == serialize_type
        assert answer.ext_fields is not None
        assert answer.ext_fields["queueOffset"] == offset


async def test_raw_numbers_in_the_header_are_read(tmp_path: Path) -> None:
    header = (
        b'{"flag":0,"code":310,"opaque":5,"version":121,"language":"JAVA","extFields":{'
        b'"a":"PG","b":"TopicTest","c":"TBW102","d":4,"e":0,"f":0,"g":1700000000000,"h":0,'
        b'"i":"WAIT\\u0001true","j":0,"k":false,"m":false}}'
    )
    frame = (len(header) + 6).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + b"hi"
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        client.feed(frame)
        await client.turn()
        assert [message.body for message in stored(lab)] == [b"hi"]
        assert client.received[0].opaque == 5
        assert client.received[0].code == 0


async def test_a_one_way_send_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        request = client.make(RequestCode.SEND_MESSAGE_V2, send_header(), b"x", oneway=True)
        client.feed(request.encode())
        await client.turn()
        assert client.received == []
        assert len(stored(lab)) == 1


async def test_a_batch_becomes_records_with_joined_properties(tmp_path: Path) -> None:
    elements = [
        BatchElement(1, b"one", b"UNIQ_KEY\x01A\x02WAIT\x01true"),
        BatchElement(2, b"two", b"TAGS\x01TagB"),
    ]
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        answer = await client.ask(
            RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), encode_batch(elements)
        )
        messages = stored(lab)
        raw = lab.controller.store.record_at(0)
    assert [message.body for message in messages] == [b"one", b"two"]
    assert [message.flag for message in messages] == [1, 2]
    assert raw is not None
    # Real 4.9.8 keeps the WAITs of a batch: the element's own and, after CLUSTER, the batch's.
    assert raw.endswith(
        b"UNIQ_KEY\x01A\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02WAIT\x01true"
    )
    assert messages[1].properties["TAGS"] == "TagB"
    assert answer.ext_fields is not None
    assert answer.ext_fields["msgId"].split(",") == [each.offset_msg_id for each in messages]
    assert answer.ext_fields["queueOffset"] == "0"


async def test_the_batch_flag_decides_not_the_code(tmp_path: Path) -> None:
    body = encode_batch([BatchElement(0, b"one", b"")])
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.ask(RequestCode.SEND_MESSAGE_V2, send_header(batch=True), body)
        await client.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=False), b"plain")
        assert [message.body for message in stored(lab)] == [b"one", b"plain"]


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1", b"\xff" * 40])
async def test_a_malformed_batch_is_refused_and_stores_nothing(tmp_path: Path, body: bytes) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(b"before")
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), body)
        assert answer.code in (1, 13)
        assert answer.remark
        assert len(stored(lab)) == 1
        assert (await client.send(b"after")).code == 0


async def test_an_unknown_topic_is_created_after_its_template(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(topic="New", default_topic_queue_nums=16)
        created = lab.controller.topics.get("New")
    assert created is not None
    assert (created.read_queue_nums, created.write_queue_nums, created.perm) == (8, 8, 6)


async def test_a_negative_queue_id_means_any_queue(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        seen = set()
        for _ in range(60):
            answer = await client.send(queue_id=-1)
            assert answer.ext_fields is not None
            seen.add(answer.ext_fields["queueId"])
    assert seen == {"0", "1", "2", "3"}


REFUSALS = [
    ({"topic": " "}, 1, "blank"),
    ({"topic": "a b"}, 1, "illegal characters"),
    ({"topic": "t" * 128}, 1, "longer than"),
    ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX]"),
    ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "is forbidden"),
    ({"topic": "SELF_TEST_TOPIC"}, 16, "is forbidden"),
    ({"topic": "Nowhere", "default_topic": "NoTemplate"}, 17, "not exist"),
    ({"queue_id": 4}, 1, "queueId[4] is illegal"),
    ({"sys_flag": 8}, 13, "transactions"),
]


@pytest.mark.parametrize(("fields", "code", "remark"), REFUSALS)
@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_a_refusal_has_code_and_reason_and_stores_nothing(
    tmp_path: Path, fields: dict[str, Any], code: int, remark: str, serialize_type: int
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        end = lab.controller.store.max_physical_offset
        answer = await client.send(serialize_type=serialize_type, **fields)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert lab.controller.store.max_physical_offset == end
        assert (await client.send()).code == 0


async def test_a_topic_without_write_permission_takes_a_send_that_names_its_queue(
    tmp_path: Path,
) -> None:
    async with broker_lab(tmp_path) as lab:
        lab.controller.topics.update(TopicConfig("ReadOnly", 1, 1, perm=4))
        assert (await lab.connect().send(topic="ReadOnly")).code == 0


async def test_without_auto_creation_an_unknown_topic_is_refused(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, autoCreateTopicEnable="false") as lab:
        assert (await lab.connect().send(topic="New")).code == 17


async def test_a_changed_topic_counts_at_once(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        assert (await client.send(queue_id=3)).code == 0
        lab.controller.topics.update(TopicConfig("TopicTest", 1, 1))
        assert (await client.send(queue_id=3)).code == 1
        lab.controller.topics.take_back("TopicTest", None)
        assert (await client.send(default_topic="None")).code == 17


async def test_an_ordered_topic_is_closed_while_the_broker_may_not_write(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        assert (await client.send()).code == 0
        lab.controller.config.broker_permission = 4
        assert (await client.send()).code == 0
        lab.controller.admission.order_topics = frozenset({"TopicTest"})
        assert (await client.send()).code == 16


async def test_sends_wait_for_the_configured_start(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, startAcceptSendRequestTimeStamp=2**52) as lab:
        answer = await lab.connect().send()
    assert answer.code == 1
    assert "unable to service, until" in (answer.remark or "")


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_the_trace_switch_of_now_stands_in_every_answer(
    tmp_path: Path, serialize_type: int
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for value in ("false", "true"):
            text = f"traceOn={value}\n".encode()
            assert (await client.ask(RequestCode.UPDATE_BROKER_CONFIG, None, text)).code == 0
            answer = await client.send(serialize_type=serialize_type)
            assert (answer.ext_fields or {})["TRACE_ON"] == value


async def test_a_body_above_the_limit_is_illegal(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, maxMessageSize=100) as lab:
        client = lab.connect()
        assert (await client.send(b"x" * 101)).code == 13
        assert (await client.send(b"x" * 100)).code == 0
        batch = encode_batch([BatchElement(0, b"x" * 60, b"")] * 2)
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), batch)
        assert answer.code == 13


async def test_a_slave_takes_no_messages(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        assert (await lab.connect().send(topic="BenchmarkTest")).code == 14


async def test_a_stopping_broker_takes_no_messages(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        lab.controller.phase.is_draining = True
        assert (await lab.connect().send()).code == 14


# --- retries ----------------------------------------------------------------------------------


async def send_retry(lab: BrokerLab, times: int, **fields: Any) -> RemotingCommand:
    return await lab.connect().send(topic="%RETRY%CG", reconsume_times=times, **fields)


async def test_a_retried_message_stays_below_the_limit(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        assert (await send_retry(lab, 15)).code == 0
        assert len(stored(lab, "%RETRY%CG")) == 1


async def test_a_message_retried_too_often_is_a_dead_letter(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        answer = await send_retry(lab, 16, properties="DELAY\x013\x02WAIT\x01true")
        (dead,) = stored(lab, "%DLQ%CG")
        assert lab.controller.topics.get("%DLQ%CG") is not None
    assert answer.code == 0
    assert dead.properties["DELAY"] == "3"


async def test_the_client_may_set_the_limit(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        await send_retry(lab, 3, max_reconsume_times=3)
        assert len(stored(lab, "%DLQ%CG")) == 1
        await send_retry(lab, 3, max_reconsume_times=3, version=120)
        assert len(stored(lab, "%RETRY%CG")) == 1, "clients before 3.4.9 may not"


async def test_the_groups_own_limit_counts(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        lab.controller.groups.update(SubscriptionGroupConfig("CG", retry_max_times=2))
        await send_retry(lab, 2)
        assert len(stored(lab, "%DLQ%CG")) == 1


async def test_a_retry_of_a_group_that_may_not_be_created_is_refused(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, autoCreateSubscriptionGroup="false") as lab:
        assert (await send_retry(lab, 0)).code == 26


async def test_a_batch_to_a_retry_topic_is_illegal(tmp_path: Path) -> None:
    batch = encode_batch([BatchElement(0, b"x", b"")])
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().ask(
            RequestCode.SEND_BATCH_MESSAGE, send_header(topic="%RETRY%CG", batch=True), batch
        )
    assert answer.code == 13


# --- properties -------------------------------------------------------------------------------

names = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=8)
tables = st.dictionaries(names | st.sampled_from(["WAIT", "AWAIT", "TAGS", "MYTAGS"]), names)


@given(tables, st.booleans())
def test_only_wait_goes_and_only_cluster_comes(table: dict[str, str], closed: bool) -> None:
    text = encode_properties(table) + ("\x02" if closed and table else "")
    rest, wait = without_wait(text)
    assert wait == (table.get("WAIT", "true").lower() == "true")
    expected = {name: value for name, value in table.items() if name not in ("WAIT", "CLUSTER")}
    assert decode_properties(with_cluster(rest, "CLUSTER\x01c")) == expected | {"CLUSTER": "c"}
    assert property_of(text, "TAGS\x01") == table.get("TAGS")


async def test_the_tag_hash_reaches_the_queue(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(b"a", properties="XTAGS\x01no\x02TAGS\x01TagA")
        await client.send(b"b", properties="XTAGS\x01TagA")
        wanted = frozenset({tags_code("TagA")})
        result = lab.controller.store.get_message("G", "TopicTest", 0, 0, 32, wanted)
        assert [each.body for each in decode_records(b"".join(result.chunks))] == [b"a"]
