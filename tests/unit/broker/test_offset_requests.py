"""Consumer offsets and queue metadata through a whole broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from failback.protocol.message import decode_records
from failback.protocol.route import TopicConfig, parse_offset_table
from failback.protocol.stats import ResetOffsetBody
from tests.support.brokers.broker_lab import LabClient, broker_lab


async def query(client: LabClient, queue_id: int = 0, topic: str = "TopicTest") -> RemotingCommand:
    header = QueryConsumerOffsetRequestHeader("CG", topic, queue_id)
    return await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)


async def update(client: LabClient, offset: int, queue_id: int = 0) -> RemotingCommand:
    header = UpdateConsumerOffsetRequestHeader("CG", "TopicTest", queue_id, offset)
    return await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def offset_of(answer: RemotingCommand) -> int:
    assert answer.code == 0, answer
    return int((answer.ext_fields or {})["offset"])


async def test_what_is_stored_is_answered(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for offset in (7, 3, 0):
            answer = await update(client, offset)
            assert (answer.code, answer.ext_fields) == (0, {})
            assert offset_of(await query(client)) == offset


async def test_a_negative_offset_is_stored_and_counts_as_none(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        await update(client, 7)
        await update(client, -1)
        assert lab.controller.offsets.query("CG", "TopicTest", 0) == -1
        assert offset_of(await query(client)) == 0


async def test_a_one_way_commit_is_stored_and_not_answered(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        header = UpdateConsumerOffsetRequestHeader("CG", "TopicTest", 0, 12)
        request = client.make(RequestCode.UPDATE_CONSUMER_OFFSET, header, oneway=True)
        client.feed(request.encode())
        await client.turn()
        assert client.received == []
        assert lab.controller.offsets.query("CG", "TopicTest", 0) == 12


async def test_a_group_without_offset_starts_a_young_queue_at_0(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        assert offset_of(await query(client, topic="Unknown")) == 0
        for _ in range(3):
            await client.send()
        assert offset_of(await query(client)) == 0
        assert offset_of(await query(client, queue_id=3)) == 0


async def test_a_queue_whose_first_message_is_on_disk_has_no_offset(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, accessMessageInMemoryMaxRatio=0) as lab:
        client = lab.connect()
        await client.send()
        await client.send()
        answer = await query(client)
        assert answer.code == 22
        assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        assert offset_of(await query(client, queue_id=3)) == 0, "an empty queue has no first one"


async def test_the_whole_table_is_what_is_in_memory(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        empty = await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        await update(client, 5)
        await update(client, 6, queue_id=1)
        full = await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        delay = await client.ask(RequestCode.GET_ALL_DELAY_OFFSET)
    assert empty.body == b'{"offsetTable":{}}'
    assert parse_offset_table(full.body) == {"TopicTest@CG": {0: 5, 1: 6}}
    assert delay.body == b'{"offsetTable":{}}'


@pytest.mark.parametrize(
    "code", [RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET]
)
async def test_a_missing_field_is_named(tmp_path: Path, code: RequestCode) -> None:
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().ask(code, ext={"consumerGroup": "CG", "queueId": "0"})
    assert answer.code == 1
    assert "topic" in (answer.remark or "")


# --- metadata ---------------------------------------------------------------------------------


async def test_the_ends_of_a_queue(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for _ in range(3):
            await client.send()
        for topic, ends in (("TopicTest", (0, 3)), ("Unknown", (0, 0))):
            low = await client.ask(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic, 0))
            high = await client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic, 0))
            assert (offset_of(low), offset_of(high)) == ends


async def test_the_age_of_a_queue(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        first = lab.controller.store.store_time_of("TopicTest", 0, 0)
        for topic, timestamp in (("TopicTest", first), ("Unknown", -1)):
            answer = await client.ask(
                RequestCode.GET_EARLIEST_MSG_STORETIME,
                GetEarliestMsgStoretimeRequestHeader(topic, 0),
            )
            assert (answer.ext_fields or {})["timestamp"] == str(timestamp)


async def test_a_time_after_all_finds_the_last_message(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for _ in range(3):
            await client.send()
        for topic, timestamp, offset in (
            ("TopicTest", 2**62, 2),
            ("TopicTest", 0, 0),
            ("Unknown", 5, 0),
        ):
            header = SearchOffsetRequestHeader(topic, 0, timestamp)
            answer = await client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
            assert offset_of(answer) == offset


async def test_a_record_is_found_by_its_place(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send(b"a")
        await client.send(b"b")
        second = lab.controller.store.physical_offset_of("TopicTest", 0, 1)
        found = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(second))
        nothing = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(3))
    assert [message.body for message in decode_records(found.body)] == [b"b"]
    assert nothing.code == 1
    assert nothing.remark == "can not find message by the offset, 3"


# --- reset ------------------------------------------------------------------------------------

RESET = int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)


async def reset(client: LabClient, timestamp: int, is_force: bool = True) -> RemotingCommand:
    header = ResetOffsetRequestHeader("TopicTest", "CG", timestamp, is_force)
    return await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


async def test_a_reset_is_told_to_the_members_and_changes_nothing_here(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        lab.controller.topics.update(TopicConfig("TopicTest", 1, 1))
        for _ in range(4):
            await client.send()
        assert (await reset(client, -1)).code == 1, "no offset stored"
        await update(client, 2)
        assert (await reset(client, -1)).code == 206, "nobody is online"
        subscription = SubscriptionData("TopicTest", "*", sub_version=1)
        consumer = ConsumerData("CG", subscription_data_set=[subscription])
        await client.ask(
            RequestCode.HEART_BEAT, None, HeartbeatData("id", [], [consumer]).to_json()
        )
        queue = MessageQueue("TopicTest", "broker-a", 0)
        for timestamp, force, value in ((-1, True, 4), (-1, False, 2), (0, False, 0)):
            answer = await reset(client, timestamp, force)
            assert answer.code == 0
            assert ResetOffsetBody.from_json(answer.body).offset_table == {queue: value}
            pushed = next(each for each in reversed(client.received) if each.code == RESET)
            assert pushed.is_oneway
            assert ResetOffsetBody.from_json(pushed.body).offset_table == {queue: value}
        assert lab.controller.offsets.query("CG", "TopicTest", 0) == 2
