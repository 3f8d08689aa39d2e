"""Requests that reach into clients: 223, 307 and 309, and replies that are handed on (324, 325)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from failback.broker.clients.own_members import OwnMembers
from failback.carry.keeping import Order
from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from failback.protocol.message import decode_record, decode_records, parse_offset_msg_id
from failback.protocol.stats import (
    GetConsumerStatusBody,
    HeldQueues,
    ProcessQueueInfo,
)
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab, send_header
from tests.support.common.protocol_golden import ConsumeMessageDirectlyResult

QUICK = 0.001
"""A time scale at which 10 s are 10 ms."""
STATUS_FROM_CLIENT = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS


async def member(
    lab: BrokerLab, client_id: str, *, group: str = "CG", version: int = 409
) -> LabClient:
    """Return a client that consumes as ``group`` and produces as PG."""
    client = lab.connect(("10.0.0.9", 5000 + len(lab.clients)))
    subscription = SubscriptionData("TopicTest", "*", sub_version=1)
    consumer = ConsumerData(group, subscription_data_set=[subscription])
    body = HeartbeatData(client_id, [ProducerData("PG")], [consumer]).to_json()
    await client.ask(RequestCode.HEART_BEAT, None, body, version=version)
    return client


async def asked(client: LabClient, code: int) -> RemotingCommand:
    """Return the request that the broker sent to ``client``."""
    await client.turn()
    (request,) = [each for each in client.received if each.code == code and not each.is_response]
    return request


async def answer_of(client: LabClient, request: RemotingCommand) -> RemotingCommand:
    """Return the broker's answer, however many turns it takes."""
    for _ in range(10_000):
        await client.turn()
        found = client.find_answer(request)
        if found is not None:
            return found
    raise AssertionError("no answer")


def ask_status(client: LabClient, client_id: str | None = None) -> RemotingCommand:
    header = GetConsumerStatusRequestHeader("TopicTest", "CG", client_id)
    request = client.make(STATUS, header)
    client.feed(request.encode())
    return request


def ask_info(client: LabClient, client_id: str = "one") -> RemotingCommand:
    header = GetConsumerRunningInfoRequestHeader("CG", client_id, True)
    request = client.make(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    client.feed(request.encode())
    return request


async def test_every_member_is_asked_for_its_offsets(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        first, second = await member(lab, "one"), await member(lab, "two")
        tool = lab.connect()
        request = ask_status(tool)
        queue = MessageQueue("TopicTest", "broker-a", 3)
        for client, offset in ((first, 5), (second, 7)):
            question = await asked(client, STATUS_FROM_CLIENT)
            assert not question.is_oneway
            assert question.ext_fields == {"topic": "TopicTest", "group": "CG"}
            body = GetConsumerStatusBody({queue: offset}).to_json()
            client.feed(question.response(0, body=body).encode())
        answer = await answer_of(tool, request)
    assert answer.code == 0
    table = GetConsumerStatusBody.from_json(answer.body).consumer_table
    assert table == {"one": {queue: 5}, "two": {queue: 7}}
    assert len(lab.controller.calls) == 0


async def test_one_member_alone_can_be_asked(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        first, second = await member(lab, "one"), await member(lab, "two")
        tool = lab.connect()
        request = ask_status(tool, "two")
        question = await asked(second, STATUS_FROM_CLIENT)
        second.feed(question.response(0, body=GetConsumerStatusBody().to_json()).encode())
        answer = await answer_of(tool, request)
        await first.turn()
        assert not [each for each in first.received if each.code == STATUS_FROM_CLIENT]
    assert answer.body == b'{"consumerTable":{"two":{}},"messageQueueTable":{}}'


async def test_who_does_not_answer_is_left_out(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, failbackTimeScale=QUICK) as lab:
        await member(lab, "silent")
        refusing, rubbish = await member(lab, "refusing"), await member(lab, "rubbish")
        tool = lab.connect()
        request = ask_status(tool)
        question = await asked(refusing, STATUS_FROM_CLIENT)
        refusing.feed(question.response(3, "not supported").encode())
        question = await asked(rubbish, STATUS_FROM_CLIENT)
        rubbish.feed(question.response(0, body=b"{").encode())
        answer = await answer_of(tool, request)
    assert (answer.code, answer.body) == (0, b'{"consumerTable":{},"messageQueueTable":{}}')


async def test_a_group_without_members_has_no_status(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        tool = lab.connect()
        answer = await answer_of(tool, ask_status(tool))
        assert answer.code == 206
        await member(lab, "old", version=27)
        answer = await answer_of(tool, ask_status(tool))
    assert (answer.code, "version=27" in (answer.remark or "")) == (1, True)


async def test_what_a_member_says_of_itself_is_handed_on_unchanged(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, tool = await member(lab, "one"), lab.connect()
        request = ask_info(tool)
        question = await asked(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        assert question.ext_fields == {
            "consumerGroup": "CG",
            "clientId": "one",
            "jstackEnable": "true",
        }
        reply = question.response(0, "fine", ext={"x": "y"}, body=b'{"jstack":"main"}')
        client.feed(reply.encode())
        answer = await answer_of(tool, request)
    assert (answer.code, answer.remark, answer.opaque) == (0, "fine", request.opaque)
    assert (answer.ext_fields, answer.body) == ({"x": "y"}, b'{"jstack":"main"}')


@pytest.mark.parametrize(
    ("version", "client_id", "remark"),
    [(409, "other", "<CG> <other> not online"), (61, "one", "Version <61> too low")],
)
async def test_who_can_not_be_asked_is_said(
    tmp_path: Path, version: int, client_id: str, remark: str
) -> None:
    async with broker_lab(tmp_path) as lab:
        await member(lab, "one", version=version)
        tool = lab.connect()
        answer = await answer_of(tool, ask_info(tool, client_id))
    assert answer.code == 1
    assert remark in (answer.remark or "")


async def test_a_member_that_stays_silent_ends_with_207(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, failbackTimeScale=QUICK) as lab:
        client, tool = await member(lab, "one"), lab.connect()
        request = ask_info(tool)
        question = await asked(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        answer = await answer_of(tool, request)
        assert answer.code == 207
        client.feed(question.response(0).encode())  # nobody waits for it any more
        await client.turn()
        assert len(lab.controller.calls) == 0


async def test_a_member_that_goes_ends_the_wait(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, tool = await member(lab, "one"), lab.connect()
        request = ask_info(tool)
        await asked(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        client.disconnect()
        answer = await answer_of(tool, request)
    assert answer.code == 1
    assert "closed its connection" in (answer.remark or "")


async def test_one_stored_message_is_consumed_out_of_turn(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, tool = await member(lab, "one"), lab.connect()
        sent = await client.send(b"once more")
        message_id = (sent.ext_fields or {})["msgId"]
        header = ConsumeMessageDirectlyResultRequestHeader("CG", "one", message_id)
        request = tool.make(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        tool.feed(request.encode())
        question = await asked(client, RequestCode.CONSUME_MESSAGE_DIRECTLY)
        assert (question.ext_fields or {})["brokerName"] == "broker-a"
        assert decode_record(question.body)[0].body == b"once more"
        body = ConsumeMessageDirectlyResult(consume_result="CR_LATER").to_json()
        client.feed(question.response(0, body=body).encode())
        answer = await answer_of(tool, request)
        missing = ConsumeMessageDirectlyResultRequestHeader("CG", "one", message_id[:-2] + "07")
        nothing = tool.make(RequestCode.CONSUME_MESSAGE_DIRECTLY, missing)
        tool.feed(nothing.encode())
        refused = await answer_of(tool, nothing)
    assert ConsumeMessageDirectlyResult.from_json(answer.body).consume_result == "CR_LATER"
    assert (refused.code, refused.remark) == (1, "can not find message by the offset, 7")


# --- replies ----------------------------------------------------------------------------------

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000\x02MSG_TYPE\x01reply"


def send_reply(
    client: LabClient, properties: str = PROPERTIES, *, code: int = 325
) -> RemotingCommand:
    header = send_header(topic=REPLY_TOPIC, properties=properties, producer_group="answering")
    request = client.make(code, header, b"the answer")
    if code == 324:
        names = "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag"
        names += " bornTimestamp flag properties reconsumeTimes unitMode maxReconsumeTimes batch"
        letters = dict(zip("abcdefghijklm", names.split(), strict=True))
        request.ext_fields = {letters[key]: it for key, it in (request.ext_fields or {}).items()}
    client.feed(request.encode())
    return request


@pytest.mark.parametrize("code", [324, 325])
@pytest.mark.parametrize("stores", [True, False])
async def test_a_reply_goes_to_the_client_that_asked(
    tmp_path: Path, code: int, stores: bool
) -> None:
    async with broker_lab(tmp_path, storeReplyMessageEnable=str(stores).lower()) as lab:
        asker, answering = await member(lab, "asker"), lab.connect(("10.0.0.7", 777))
        request = send_reply(answering, code=code)
        push = await asked(asker, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        ext = push.ext_fields or {}
        assert push.body == b"the answer"
        assert ext["topic"] == REPLY_TOPIC
        assert ext["bornHost"] == "10.0.0.7:777"
        assert ext["storeHost"] == "127.0.0.1:10911"
        assert ext["properties"].startswith(PROPERTIES + "\x02PUSH_REPLY_TIME\x01")
        asker.feed(push.response(0).encode())
        answer = await answer_of(answering, request)
        told = answer.ext_fields or {}
        kept = lab.controller.store.max_queue_offset(REPLY_TOPIC, 0)
        where = parse_offset_msg_id(told["msgId"])[2] if stores else -1
        record = lab.controller.store.record_at(max(where, 0))
    assert (answer.code, told["queueId"], told["queueOffset"]) == (0, "0", "0")
    assert told["MSG_REGION"] == "DefaultRegion"
    assert kept == stores
    if stores:
        (message,) = decode_records(record or b"")
        assert (message.topic, message.body) == (REPLY_TOPIC, b"the answer")
        assert message.properties["CORRELATION_ID"] == "c1"
    else:
        assert told["msgId"] == "0"


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("CORRELATION_ID\x01c1", "reply message properties[REPLY_TO_CLIENT] is null"),
        ("REPLY_TO_CLIENT\x01nobody", "push reply message fail, channel of <nobody> not found."),
        (PROPERTIES, "push reply message to asker fail."),
    ],
)
async def test_a_reply_that_nobody_takes_is_stored_all_the_same(
    tmp_path: Path, properties: str, remark: str
) -> None:
    async with broker_lab(tmp_path, failbackTimeScale=QUICK) as lab:
        await member(lab, "asker")
        answering = lab.connect()
        answer = await answer_of(answering, send_reply(answering, properties))
        kept = lab.controller.store.max_queue_offset(REPLY_TOPIC, 0)
    assert (answer.code, answer.remark) == (1, remark)
    assert kept == 1
    assert len((answer.ext_fields or {})["msgId"]) == 32


async def test_a_refused_reply_is_not_pushed(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        asker, answering = await member(lab, "asker"), lab.connect()
        header = send_header(topic="SCHEDULE_TOPIC_XXXX", properties=PROPERTIES)
        request = answering.make(325, header, b"x")
        answering.feed(request.encode())
        answer = await answer_of(answering, request)
        await asker.turn()
        pushed = [each for each in asker.received if each.code == 326]
    assert (answer.code, pushed) == (16, [])


async def test_a_slave_hands_replies_on_and_stores_nothing(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        asker, answering = await member(lab, "asker"), lab.connect()
        request = send_reply(answering)
        push = await asked(asker, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        asker.feed(push.response(0).encode())
        answer = await answer_of(answering, request)
    assert (answer.code, (answer.ext_fields or {})["msgId"]) == (0, "0")


async def test_a_guarded_slave_asks_its_own_members_and_keeps_what_is_more(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        controller, client = lab.controller, await member(lab, "go")
        own = controller.parts.build(OwnMembers, broker_name="broker-a", scaled=lambda at: at)
        assert await own.members("CG") == ["go"]
        asking = asyncio.ensure_future(own.held("CG", "go"))
        question = await asked(client, RequestCode.GET_CONSUMER_RUNNING_INFO)
        assert question.ext_fields == {
            "consumerGroup": "CG",
            "clientId": "go",
            "jstackEnable": "false",
        }
        queue = MessageQueue("TopicTest", "broker-a", 3)
        body = HeldQueues({queue: ProcessQueueInfo(commit_offset=12)}).to_json()
        client.feed(question.response(0, body=body).encode())
        assert (await asking)[queue].commit_offset == 12
        assert await own.tell(Order("CG", "TopicTest", 3, 12))
        assert not await own.tell(Order("CG", "TopicTest", 3, 11)), "never lower"
        assert (await own.table())["TopicTest@CG"] == {3: 12}
        controller.clients.consumers.groups["CG"].message_model = "BROADCASTING"
        assert await own.members("CG") == ()
