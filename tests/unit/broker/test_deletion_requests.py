"""Deleting topics and groups (215, 207): as a whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab
from tests.support.brokers.deliveries import stored

pytestmark = pytest.mark.foreign

TOPIC, GROUP = "orders", "billing"


def set_up(lab: BrokerLab) -> None:
    lab.controller.topics.update(TopicConfig(TOPIC, 1, 1))
    lab.controller.groups.update(SubscriptionGroupConfig(GROUP, retry_max_times=3))
    for topic in (TOPIC, "paid"):
        lab.controller.offsets.commit(GROUP, topic, 0, 1)


async def delete_topic(client: LabClient) -> RemotingCommand:
    return await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(TOPIC))


async def delete_group(client: LabClient) -> RemotingCommand:
    header = DeleteSubscriptionGroupRequestHeader(GROUP, True, True)
    return await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


async def test_a_deleted_topic_takes_its_messages_and_offsets_along(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        set_up(lab)
        client = lab.connect()
        await client.send(b"old", topic=TOPIC)
        assert (await delete_topic(client)).code == ResponseCode.SUCCESS
        assert TOPIC not in lab.controller.topics.table
        assert stored(lab, TOPIC) == []
        assert lab.controller.offsets.table == {f"paid@{GROUP}": {0: 1}}
        assert f"{TOPIC}@" in lab.controller.offsets.deletions.table


async def test_a_deleted_group_takes_its_offsets_along_and_is_not_back_after_a_kill(
    tmp_path: Path,
) -> None:
    async with broker_lab(tmp_path) as lab:
        set_up(lab)
        lab.controller.offsets.persist()
        assert (await delete_group(lab.connect())).code == ResponseCode.SUCCESS
        lab.controller.offsets.load()  # what a kill leaves
        assert lab.controller.offsets.table == {}
        assert GROUP not in lab.controller.groups.table


async def test_a_broker_that_takes_no_writes_deletes_nothing(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        set_up(lab)
        client = lab.connect()
        await client.send(b"old", topic=TOPIC)
        lab.controller.store.appender.refusal = "the broker's disk is full"
        for answer in (await delete_topic(client), await delete_group(client)):
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "disk is full" in (answer.remark or "")
        assert lab.controller.topics.table[TOPIC] == TopicConfig(TOPIC, 1, 1)
        assert lab.controller.groups.table[GROUP].retry_max_times == 3
        assert [message.body for message in stored(lab, TOPIC)] == [b"old"]
        assert len(lab.controller.offsets.table) == 2


async def test_what_is_not_there_costs_the_log_nothing(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, end = lab.connect(), lab.controller.store.max_physical_offset
        for answer in (await delete_topic(client), await delete_group(client)):
            assert answer.code == ResponseCode.SUCCESS
        assert lab.controller.store.max_physical_offset == end
