"""Questions about single topics and groups beyond their offsets, a few hundred at most."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from failback.analytics.live.queues import lag
from failback.client.admin.queue_offsets import Table
from failback.client.admin.survey import BrokerSurvey
from failback.protocol import calls
from failback.protocol.body import MessageQueue
from failback.protocol.clients import ConsumerConnection
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.metric_families import MAX_SERIES
from failback.protocol.route import split_offset_key
from failback.protocol.stats import TopicOffset

PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GET_SIZE: Final = "GROUP_GET_SIZE"
SENT_BACK: Final = "SNDBCK_PUT_NUMS"
GET_LATENCY: Final = "GROUP_GET_LATENCY"
LATELY_MS: Final = 120_000
"""A topic without a message for so long has no rate over the last minute."""

QUEUES: Final = 16
"""Queues of a group on a topic that are asked at most."""
Place = tuple[str, str]
Ends = Mapping[str, Mapping[int, int]]
"""Topic to queue id to an offset."""


class Details:
    """Asks one broker; at most :data:`MAX_SERIES` of each kind."""

    def __init__(self, asked: BrokerSurvey) -> None:
        self._ask, self._admin, self._address = asked.ask, asked.admin, asked.address

    async def latencies_ms(self, offsets: Table, ends: Ends, begins: Ends) -> dict[Place, float]:
        """Return how long the oldest message waits, of the groups that are furthest behind."""
        wanted = furthest_behind(offsets, ends, begins)
        ages = await asyncio.gather(
            *(self._latency_ms(*place, begins.get(place[0], {})) for place in wanted)
        )
        return {place: age for place, age in zip(wanted, ages, strict=True) if age is not None}

    async def _latency_ms(self, topic: str, group: str, begins: Mapping[int, int]) -> float | None:
        """Ask when the oldest message that waits was stored.

        The broker says of each queue when its last consumed message was stored. No message behind
        that one is older. So most queues need not be asked.
        """
        stats = await self._ask(lambda: self._admin.consume_stats(self._address, group, topic))
        if stats is None:
            return None
        waiting = sorted(
            (each.last_timestamp, queue.queue_id, each.consumer_offset)
            for queue, each in stats.offset_table.items()
            if each.consumer_offset < each.broker_offset
        )
        oldest: int | None = None
        for bound, queue_id, offset in waiting[:QUEUES]:
            if oldest is not None and bound >= oldest:
                break
            stored = await self._stored_ms(topic, queue_id, max(offset, begins.get(queue_id, 0)))
            if stored is not None:
                oldest = stored if oldest is None else min(oldest, stored)
        return None if oldest is None else max(0.0, time.time() * 1000 - oldest)

    async def _stored_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return when the broker stored a message; ``None`` without an answer."""
        call = calls.pull_by_tools(topic, queue_id, offset, 1, decompress=False)
        found = await self._ask(lambda: self._admin.call(self._address, call))
        return found.messages[0].store_timestamp if found is not None and found.messages else None

    async def rates(
        self,
        topics: Mapping[str, Mapping[MessageQueue, TopicOffset]],
        connected: Mapping[str, ConsumerConnection],
    ) -> dict[Place, float]:
        """Return the broker's counters of topics with new messages and of groups with members.

        By name and key of its counters: a rate per second over the last minute, and of
        ``GROUP_GET_LATENCY`` the mean in ms.
        """
        wanted = wanted_counters(topics, connected, after_ms=time.time() * 1000 - LATELY_MS)
        found = await asyncio.gather(*(self._rate(*each) for each in wanted))
        return {each: rate for each, rate in zip(wanted, found, strict=True) if rate is not None}

    async def _rate(self, name: str, key: str) -> float | None:
        found = await self._ask(lambda: self._admin.broker_stats(self._address, name, key))
        if found is None:
            return None
        minute = found.stats_minute
        return minute.avgpt if name == GET_LATENCY else minute.tps


def wanted_counters(
    topics: Mapping[str, Mapping[MessageQueue, TopicOffset]],
    connected: Mapping[str, ConsumerConnection],
    *,
    after_ms: float,
) -> list[Place]:
    """Return name and key of the counters to ask for, at most :data:`MAX_SERIES` of each name.

    Args:
        topics: Topic to its queues.
        connected: Group to its members and subscriptions.
        after_ms: A topic whose last message is older has no rate any more.
    """
    busy = [
        topic
        for topic, queues in topics.items()
        if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        and any(each.last_update_timestamp >= after_ms for each in queues.values())
    ]
    read = [
        (topic, f"{topic}@{group}")
        for group, connection in connected.items()
        for topic in sorted(connection.subscription_table)
        if topic in topics
    ]
    places = [key for _, key in read[:MAX_SERIES]]
    queues = [f"{queue.queue_id}@{key}" for topic, key in read for queue in topics[topic]]
    return [
        *((PUT_SIZE, topic) for topic in busy[:MAX_SERIES]),
        *((GET_SIZE, key) for key in places),
        *((SENT_BACK, key) for key in places),
        *((GET_LATENCY, key) for key in queues[:MAX_SERIES]),
    ]


def furthest_behind(offsets: Table, ends: Ends, begins: Ends) -> list[Place]:
    """Return topics and groups with messages to consume, those with most first."""
    found: list[tuple[int, Place]] = []
    for key, queues in offsets.items():
        topic, group = split_offset_key(key)
        behind = lag(ends.get(topic, {}), queues, begins.get(topic, {}))
        if behind:
            found.append((behind, (topic, group)))
    found.sort(key=lambda each: (-each[0], each[1]))
    return [place for _, place in found[:MAX_SERIES]]
