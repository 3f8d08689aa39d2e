"""Pulls through a whole broker: order of checks, filter, commit, holding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failback.broker.startup.controller import BrokerController
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from failback.protocol.codes import (
    PULL_COMMIT,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    RequestCode,
)
from failback.protocol.command import RemotingCommand
from failback.protocol.message import decode_records
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import LabClient, broker_lab, pull_header, send_header

FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
HOLD = PULL_SUBSCRIPTION | PULL_SUSPEND


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


def offsets_in(answer: RemotingCommand) -> tuple[int, int, int, int]:
    """suggestWhichBrokerId, nextBeginOffset, minOffset, maxOffset."""
    ext = answer.ext_fields
    assert ext is not None
    names = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
    suggested, following, low, high = (int(ext[name]) for name in names)
    return suggested, following, low, high


async def heartbeat(client: LabClient, *subscriptions: SubscriptionData, **model: Any) -> None:
    data = ConsumerData("CG", subscription_data_set=list(subscriptions), **model)
    body = HeartbeatData("id-1", [], [data]).to_json()
    assert (await client.ask(RequestCode.HEART_BEAT, None, body)).code == 0


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_messages_are_handed_out_from_the_wanted_offset(
    tmp_path: Path, serialize_type: int
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for body in (b"a", b"b", b"c"):
            await client.send(body)
        answer = await client.pull(queue_offset=1, serialize_type=serialize_type)
    assert answer.code == FOUND
    assert answer.remark == "FOUND"
    assert answer.serialize_type == serialize_type
    assert bodies(answer) == [b"b", b"c"]
    assert offsets_in(answer) == (0, 3, 0, 3)


async def test_at_most_the_wanted_number_is_handed_out(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for number in range(40):
            await client.send(b"%d" % number)
        assert len(bodies(await client.pull(max_msg_nums=5))) == 5
        assert len(bodies(await client.pull(max_msg_nums=100))) == 32, "the broker's own limit"


async def test_a_lite_pull_of_5_x_is_answered_as_a_pull(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(b"a")
        answer = await client.ask(RequestCode.LITE_PULL_MESSAGE, pull_header())
    assert bodies(answer) == [b"a"]


async def test_the_fast_port_serves_everything_but_pulls(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect(fast=True)
        assert (await client.send()).code == 0
        answer = await client.pull()
        assert answer.code == 3
        assert "request type 11 not supported" in (answer.remark or "")
        assert (await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).code == 0


# --- states of the queue ----------------------------------------------------------------------

STATES = [
    (0, "Empty", NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0),
    (4, "Empty", MOVED, "NO_MESSAGE_IN_QUEUE", 0),
    (3, "TopicTest", NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
    (9, "TopicTest", MOVED, "OFFSET_OVERFLOW_BADLY", 3),
    (-1, "TopicTest", MOVED, "OFFSET_TOO_SMALL", 0),
]


@pytest.mark.parametrize(("offset", "topic", "code", "status", "following"), STATES)
async def test_every_state_of_the_queue_has_its_code(
    tmp_path: Path, offset: int, topic: str, code: int, status: str, following: int
) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        lab.controller.topics.update(TopicConfig("Empty", 1, 1))
        for _ in range(3):
            await client.send()
        answer = await client.pull(queue_offset=offset, topic=topic)
        events = lab.controller.store.max_queue_offset("OFFSET_MOVED_EVENT", 0)
    assert (answer.code, answer.remark) == (code, status)
    assert offsets_in(answer)[1] == following
    assert answer.body == b""
    assert events == (1 if code == MOVED else 0)


async def test_a_slave_does_not_move_a_consumer_that_is_ahead_of_it(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        lab.controller.topics.update(TopicConfig("TopicTest", 1, 1))
        answer = await lab.connect().pull(queue_offset=7)
        assert lab.controller.store.max_physical_offset == 0
    assert answer.code == RETRY
    assert offsets_in(answer)[:2] == (0, 7)


async def test_a_filter_that_stops_everything_moves_on(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(properties="TAGS\x01TagA")
        answer = await client.pull(subscription="TagB || TagC")
        assert (answer.code, answer.remark) == (RETRY, "NO_MATCHED_MESSAGE")
        assert offsets_in(answer)[1] == 1
        answer = await client.pull(subscription="TagB || TagA")
        assert answer.code == FOUND


# --- refusals, in order -----------------------------------------------------------------------


async def refused(client: LabClient, code: int, **fields: Any) -> None:
    answer = await client.pull(**fields)
    assert answer.code == code, answer
    assert answer.remark


async def test_the_checks_come_in_the_order_of_4_9_8(tmp_path: Path) -> None:
    """Everything is wrong at first; each repair uncovers the next check."""
    async with broker_lab(tmp_path, autoCreateSubscriptionGroup="false") as lab:
        client, controller = lab.connect(), lab.controller
        controller.config.broker_permission = 2
        wrong = {"queue_id": 9, "sys_flag": 0, "sub_version": 5, "topic": "Hidden"}
        await refused(client, 16, **wrong)
        controller.config.broker_permission = 6
        await refused(client, 26, **wrong)
        controller.groups.update(SubscriptionGroupConfig("CG", consume_enable=False))
        await refused(client, 16, **wrong)
        controller.groups.update(SubscriptionGroupConfig("CG", consume_broadcast_enable=False))
        await refused(client, 17, **wrong)
        controller.topics.update(TopicConfig("Hidden", 1, 1, perm=2))
        await refused(client, 16, **wrong)
        controller.topics.update(TopicConfig("Hidden", 1, 1))
        await refused(client, 1, **wrong)
        wrong["queue_id"] = 0
        await refused(client, 24, **wrong)
        other = SubscriptionData("Other", "*", sub_version=9)
        await heartbeat(client, other, message_model="BROADCASTING")
        await refused(client, 16, **wrong)
        await heartbeat(client, other)
        await refused(client, 24, **wrong)
        await heartbeat(client, SubscriptionData("Hidden", "*", sub_version=4))
        await refused(client, 25, **wrong)
        sql = SubscriptionData("Hidden", "a > 1", sub_version=5, expression_type="SQL92")
        await heartbeat(client, sql)
        await refused(client, 1, **wrong)
        await heartbeat(client, SubscriptionData("Hidden", "*", sub_version=6))
        assert (await client.pull(**wrong)).code == NOT_FOUND


async def test_a_carried_expression_is_checked(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        await refused(client, 23, subscription="||")
        await refused(client, 1, subscription="a > 1", expression_type="SQL92")
        assert (await client.pull(subscription="*", expression_type="TAG")).code == FOUND


async def test_the_registered_subscription_filters(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(b"a", properties="TAGS\x01TagA")
        await client.send(b"b", properties="TAGS\x01TagB")
        tagged = SubscriptionData("TopicTest", "TagB", ["TagB"], [2598920], sub_version=1)
        await heartbeat(client, tagged)
        assert bodies(await client.pull(sys_flag=0, sub_version=1)) == [b"b"]


# --- commits ----------------------------------------------------------------------------------


def committed(controller: BrokerController) -> int:
    return controller.offsets.query("CG", "TopicTest", 0)


@pytest.mark.parametrize("offset", [0, 1, 7])
async def test_a_pull_carries_a_commit_whatever_it_finds(tmp_path: Path, offset: int) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        flags = PULL_COMMIT | PULL_SUBSCRIPTION
        await client.pull(queue_offset=offset, sys_flag=flags, commit_offset=5)
        assert committed(lab.controller) == 5
        await client.pull(queue_offset=offset, sys_flag=flags, commit_offset=3)
        assert committed(lab.controller) == 3, "smaller values are taken too"
        await client.pull(queue_offset=offset, commit_offset=9)
        assert committed(lab.controller) == 3, "without the flag nothing is committed"


async def test_a_refused_pull_commits_nothing(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        flags = PULL_COMMIT | PULL_SUBSCRIPTION
        await refused(client, 23, sys_flag=flags, commit_offset=5, subscription="||")
        assert committed(lab.controller) == -1


async def test_a_slave_commits_nothing_by_pull(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        lab.controller.topics.update(TopicConfig("TopicTest", 1, 1))
        flags = PULL_COMMIT | PULL_SUBSCRIPTION
        await lab.connect().pull(sys_flag=flags, commit_offset=5)
        assert committed(lab.controller) == -1


async def test_a_held_pull_commits_once_when_it_is_held(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        flags = PULL_COMMIT | HOLD
        header = pull_header(
            queue_offset=1, sys_flag=flags, commit_offset=1, suspend_timeout_millis=15_000
        )
        request = client.make(RequestCode.PULL_MESSAGE, header)
        client.feed(request.encode())
        await client.turn()
        assert committed(lab.controller) == 1
        lab.controller.offsets.commit("CG", "TopicTest", 0, 42)
        await client.send(b"new")
        assert bodies(client.answer_to(request)) == [b"new"]
        assert committed(lab.controller) == 42, "a woken pull does not commit again"


# --- holding ----------------------------------------------------------------------------------


async def hold(client: LabClient, **fields: Any) -> RemotingCommand:
    usual = {"sys_flag": HOLD, "suspend_timeout_millis": 15_000}
    request = client.make(RequestCode.PULL_MESSAGE, pull_header(**usual | fields))
    client.feed(request.encode())
    await client.turn()
    return request


async def test_a_pull_that_finds_nothing_is_held_until_a_message_comes(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        producer, consumer = lab.connect(), lab.connect()
        await producer.send()
        request = await hold(consumer, queue_offset=1)
        assert consumer.find_answer(request) is None
        await producer.send(b"new")
        await consumer.turn()
        assert bodies(consumer.answer_to(request)) == [b"new"]


async def test_without_the_suspend_flag_it_is_answered_at_once(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        assert (await client.pull(queue_offset=1)).code == NOT_FOUND


async def test_only_an_empty_end_is_held(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(properties="TAGS\x01TagA")
        for fields, code in (({"queue_offset": 9}, MOVED), ({"subscription": "TagB"}, RETRY)):
            request = await hold(client, **fields)
            assert client.answer_to(request).code == code


async def test_the_pass_ends_a_hold_at_its_deadline(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        short = await hold(client, queue_offset=1, suspend_timeout_millis=0)
        long = await hold(client, queue_offset=1, suspend_timeout_millis=60_000)
        lab.controller.pull.hold_pass()
        await client.turn()
        assert client.answer_to(short).code == NOT_FOUND
        assert client.find_answer(long) is None


async def test_a_slave_holds_until_the_pass(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        lab.controller.topics.update(TopicConfig("TopicTest", 1, 1))
        assert lab.controller.store.on_arrive is None
        client = lab.connect()
        request = await hold(client)
        assert client.find_answer(request) is None


async def test_the_holds_of_a_closed_connection_are_dropped(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        await hold(client, queue_offset=1)
        client.disconnect()
        assert len(lab.controller.pull.hold) == 0
        await lab.connect().send()


async def test_a_message_sent_before_a_pull_in_the_same_read_is_found(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        send = client.make(RequestCode.SEND_MESSAGE_V2, send_header(), b"second")
        pull = client.make(RequestCode.PULL_MESSAGE, pull_header(queue_offset=1))
        client.feed(send.encode() + pull.encode())
        await client.turn()
        assert bodies(client.answer_to(pull)) == [b"second"]


# --- slow readers -----------------------------------------------------------------------------


async def test_a_consumer_that_does_not_read_gets_no_more_until_it_does(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        producer, consumer = lab.connect(), lab.connect()
        await producer.send(b"x")
        consumer.connection.pause_writing()
        request = consumer.make(RequestCode.PULL_MESSAGE, pull_header())
        consumer.feed(request.encode())
        await consumer.turn()
        assert consumer.find_answer(request) is None
        heartbeat_answer = await consumer.ask(
            RequestCode.HEART_BEAT, None, HeartbeatData("id").to_json()
        )
        assert heartbeat_answer.code == 0, "other requests are served meanwhile"
        consumer.connection.resume_writing()
        await consumer.turn()
        assert bodies(consumer.answer_to(request)) == [b"x"]


async def test_requests_of_a_peer_that_never_reads_are_no_longer_read(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        client.connection.pause_writing()
        for _ in range(300):
            client.feed(client.make(RequestCode.PULL_MESSAGE, pull_header()).encode())
        assert not client.transport.reading
        client.connection.resume_writing()
        assert client.transport.reading
