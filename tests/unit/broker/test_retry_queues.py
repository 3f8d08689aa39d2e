"""A group and its retry topic have the same number of queues, whoever changes one first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from failback.protocol.clients import ConsumerData, HeartbeatData
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
)
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab
from tests.support.brokers.deliveries import Deliveries, stored

pytestmark = pytest.mark.foreign

RETRY = "%RETRY%billing"


async def heartbeat(client: LabClient) -> None:
    body = HeartbeatData("c", consumer_data_set=[ConsumerData("billing")]).to_json()
    assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS


async def later(client: LabClient, code: int, header: object = None, body: bytes = b"") -> None:
    """Ask what waits for the name servers; there is none here."""
    request = client.make(code, header, body)  # type: ignore[arg-type]
    client.feed(request.encode())
    for _ in range(5):
        await client.turn()
    assert client.answer_to(request).code == ResponseCode.SUCCESS


async def group_gets(client: LabClient, queues: int) -> None:
    body = SubscriptionGroupConfig("billing", retry_queue_nums=queues).to_json()
    await later(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def topic_gets(client: LabClient, reads: int, writes: int) -> None:
    header = CreateTopicRequestHeader(RETRY, "TBW102", reads, writes, 6, "SINGLE_TAG")
    await later(client, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def numbers(lab: BrokerLab) -> tuple[int, int, int]:
    """Return how many queues are read and written, and how many the group says."""
    topic, group = lab.controller.topics.table[RETRY], lab.controller.groups.table["billing"]
    return topic.read_queue_nums, topic.write_queue_nums, group.retry_queue_nums


async def readable_retries(lab: BrokerLab, client: LabClient, count: int = 24) -> Counter[int]:
    """Send messages back; return how many are re-consumed in each queue that is read."""
    await client.send(b"retry")
    (offset, *_) = (message.physical_offset for message in stored(lab))
    for _ in range(count):
        header = ConsumerSendMsgBackRequestHeader(offset, "billing", 1, "x", "TopicTest")
        answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    await Deliveries(lab).after(1_000)
    reads = lab.controller.topics.table[RETRY].read_queue_nums
    end = lab.controller.store.max_queue_offset
    return Counter({queue: end(RETRY, queue) for queue in range(reads)})


async def test_the_group_gets_more_queues_after_its_first_heartbeat(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await heartbeat(client)
        await group_gets(client, 4)
        assert numbers(lab) == (4, 4, 4)
        found = await readable_retries(lab, client)
        assert found.total() == 24
        assert len(+found) > 1
        await group_gets(client, 2)
        assert numbers(lab) == (4, 2, 2), "what waits in the others is read"
        assert (await readable_retries(lab, client)).total() == 48


async def test_the_group_is_first_and_the_topic_of_an_old_store_is_smaller(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        lab.controller.topics.update(TopicConfig(RETRY, 1, 1))
        lab.controller.groups.update(SubscriptionGroupConfig("billing", retry_queue_nums=4))
        assert (await readable_retries(lab, client)).total() == 24
        assert numbers(lab) == (4, 4, 4)
        lab.controller.topics.update(TopicConfig(RETRY, 1, 1))
        await heartbeat(client)
        assert numbers(lab) == (4, 4, 4)


async def test_the_topic_is_changed_first(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await topic_gets(client, 3, 3)
        await heartbeat(client)
        assert (await readable_retries(lab, client)).total() == 24
        await topic_gets(client, 2, 2)
        assert numbers(lab)[1:] == (2, 2)
        assert (await readable_retries(lab, client)).total() == 48
        await topic_gets(client, 1, 4)
        assert numbers(lab) == (4, 4, 4)
        assert (await readable_retries(lab, client)).total() == 72


async def test_queues_without_messages_are_not_kept(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await topic_gets(client, 8, 8)
        await topic_gets(client, 2, 2)
        assert lab.controller.topics.table[RETRY] == TopicConfig(RETRY, 2, 2)


async def test_a_group_without_retries_keeps_that(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await heartbeat(client)
        await group_gets(client, 0)
        assert numbers(lab) == (1, 1, 0)
        await topic_gets(client, 2, 2)
        assert numbers(lab) == (2, 2, 0)
