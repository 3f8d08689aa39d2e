"""Offsets moved by tools while a consumer runs: told, reset, cloned, and kept over a kill."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.protocol.codes import RequestCode
from failback.protocol.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from failback.protocol.message import MessageExt
from failback.protocol.route import TopicConfig
from failback.protocol.stats import ConsumerRunningInfo, GetConsumerStatusBody
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import until

TOPIC, GROUP, CLONE = "orders", "billing", "billing-clone"
QUEUES, MESSAGES = 2, 40


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        yield cluster


async def send_all(cluster: ClusterProcesses) -> None:
    async with Producer("shop", cluster.settings()) as producer:
        for number in range(MESSAGES):
            await producer.send(Message(TOPIC, b"%d" % number))


async def test_tools_move_the_offsets_of_a_running_group(cluster: ClusterProcesses) -> None:
    copies: Counter[bytes] = Counter()

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        copies.update(message.body for message in messages)
        return ConsumeResult.SUCCESS

    async with AdminClient([cluster.namesrv_addr]) as admin:
        address = cluster.broker_addr
        await admin.create_topic(address, TopicConfig(TOPIC, QUEUES, QUEUES))
        await send_all(cluster)
        member = PushConsumer(
            GROUP, cluster.settings(), handle, consume_from=ConsumeFrom.FIRST_OFFSET
        )
        member.subscribe(TOPIC)
        async with member:
            await until(lambda: len(copies) == MESSAGES, "all messages", 60)
            await until_stored(admin, address)
            await the_member_tells(admin, address)
            told = await admin.reset_offset(address, GROUP, TOPIC, 0)
            assert sorted(told.values()) == [0] * QUEUES
            await until(lambda: copies.total() == 2 * MESSAGES, "all messages again", 120)
        assert set(copies.values()) == {2}
        await until_stored(admin, address)
        header = CloneGroupOffsetRequestHeader(GROUP, CLONE, TOPIC)
        await admin.ask(address, RequestCode.CLONE_GROUP_OFFSET, header)
        table = cluster.broker_root / "config" / "consumerOffset.json"
        await until(lambda: table.exists() and CLONE in table.read_text(), "the clone on disk", 60)
        cluster.broker.kill()
    await asyncio.to_thread(cluster.start_broker)
    async with AdminClient([cluster.namesrv_addr]) as admin:
        offsets = await admin.all_offsets(cluster.broker_addr)
    assert sum(offsets[f"{TOPIC}@{CLONE}"].values()) == MESSAGES
    assert offsets[f"{TOPIC}@{CLONE}"] == offsets[f"{TOPIC}@{GROUP}"]


async def until_stored(admin: AdminClient, address: str) -> None:
    """Wait until the broker holds the offset behind every message."""
    for _ in range(600):
        table = (await admin.all_offsets(address)).get(f"{TOPIC}@{GROUP}", {})
        if len(table) == QUEUES and sum(table.values()) == MESSAGES:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"the group's offsets never reached the end: {table}")


async def the_member_tells(admin: AdminClient, address: str) -> None:
    """What it holds in memory (223), and how it runs (307)."""
    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    answer = await admin.ask(address, code, GetConsumerStatusRequestHeader(TOPIC, GROUP))
    ((client_id, table),) = GetConsumerStatusBody.from_json(answer.body).consumer_table.items()
    assert sum(table.values()) == MESSAGES
    header = GetConsumerRunningInfoRequestHeader(GROUP, client_id, True)
    answer = await admin.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = ConsumerRunningInfo.from_json(answer.body)
    assert {queue.topic for queue in info.mq_table} >= {TOPIC}
    assert info.jstack
