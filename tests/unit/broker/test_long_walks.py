"""What one request may make a broker do is bounded, and long work lets others be answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from failback.broker.processors.consumers import consumption
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetBrokerConsumeStatsRequestHeader,
    GetConsumeStatsRequestHeader,
    GetMaxOffsetRequestHeader,
    GetTopicStatsInfoRequestHeader,
    Header,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from failback.protocol.stats import QueryConsumeQueueResponseBody
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab

pytestmark = pytest.mark.foreign

WALKS: dict[str, tuple[int, Header]] = {
    "all groups": (
        RequestCode.GET_BROKER_CONSUME_STATS,
        GetBrokerConsumeStatsRequestHeader(False),
    ),
    "a group": (RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader("CG", None)),
    "a topic": (RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader("Wide")),
    "times": (
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        QueryConsumeTimeSpanRequestHeader("Wide", "CG"),
    ),
}


def widen(lab: BrokerLab, queues: int) -> None:
    """A topic of that many queues, which a group consumes."""
    lab.controller.topics.update(TopicConfig("Wide", queues, queues))
    lab.controller.groups.update(SubscriptionGroupConfig("CG"))
    lab.controller.offsets.commit("CG", "Wide", 0, 0)


async def answered(client: LabClient, request: RemotingCommand) -> None:
    while client.find_answer(request) is None:
        await asyncio.sleep(0.001)
        await client.turn()


@pytest.mark.parametrize("walk", WALKS)
async def test_others_are_answered_before_a_long_walk_ends(tmp_path: Path, walk: str) -> None:
    code, header = WALKS[walk]
    async with broker_lab(tmp_path) as lab:
        walker, other = lab.connect(), lab.connect()
        widen(lab, 4000)
        request = walker.make(code, header)
        walker.feed(request.encode())
        answer = await other.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("Wide", 0))
        assert answer.code == 0
        assert walker.find_answer(request) is None, "it walks in one piece"
        await answered(walker, request)
        assert walker.answer_to(request).code == 0


@pytest.mark.parametrize("walk", WALKS)
async def test_a_walk_that_no_answer_holds_is_refused(
    tmp_path: Path, walk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "MOST_QUEUES", 100)
    code, header = WALKS[walk]
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        widen(lab, 101)
        request = client.make(code, header)
        client.feed(request.encode())
        await answered(client, request)
        answer = client.answer_to(request)
    assert (answer.code, answer.body) == (1, b"")
    assert "more than 100 queues" in (answer.remark or "")


@pytest.mark.parametrize("count", [3, 2**31 - 1])
async def test_entries_of_a_queue_are_bounded(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "MOST_ENTRIES", 3)
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        for _ in range(5):
            await client.send()
        header = QueryConsumeQueueRequestHeader("TopicTest", 0, 0, count, None)
        answer = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, header)
    body = QueryConsumeQueueResponseBody.from_json(answer.body)
    assert (len(body.queue_data), body.max_queue_index) == (3, 5)


async def test_a_count_of_more_than_32_bits_is_refused(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        await client.send()
        header = QueryConsumeQueueRequestHeader("TopicTest", 0, 0, 2**31, None)
        answer = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, header)
    assert answer.code == 1
    assert "count" in (answer.remark or "")
