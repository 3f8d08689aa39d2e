"""How far groups have consumed: 303, 317 and 321.

A long answer is computed in slices, so that other requests are answered in between.
Source: AdminBrokerProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from failback.broker.clients.client_manager import ConsumerManager
from failback.broker.config.identity import BrokerIdentity
from failback.broker.filters.consumer_filters import ConsumerFilterManager
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import MOST_LISTED_QUEUES, TopicConfigManager
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.broker.store.message_store import MessageStore
from failback.protocol.body import Body, MessageQueue
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError
from failback.protocol.headers import (
    GetBrokerConsumeStatsRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
)
from failback.protocol.stats import (
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)

QUEUES_AT_ONCE: Final = 64
MOST_QUEUES: Final = 100_000
"""Of one answer: more would not fit into a frame of 16 MiB."""
MOST_ENTRIES: Final = 10_000
"""Of a queue in one answer; it tells where the queue ends, so the next ones can be asked for."""


class Walk:
    """The queues that one request makes the broker look at."""

    def __init__(self) -> None:
        self._walked = 0

    async def step(self) -> None:
        """Count a queue; between slices of them, other requests are answered.

        Raises:
            ProtocolError: They are more than an answer holds.
        """
        self._walked += 1
        if self._walked > MOST_QUEUES:
            raise ProtocolError(
                f"the answer would tell of more than {MOST_QUEUES} queues: ask for one group and"
                " one topic"
            )
        if self._walked % QUEUES_AT_ONCE == 0:
            await asyncio.sleep(0)

    async def written(self, body: Body) -> bytes:
        """Write the answer, a long one beside the loop."""
        if self._walked < QUEUES_AT_ONCE:
            return body.to_json()
        return await asyncio.to_thread(body.to_json)


@dataclass(slots=True)
class GroupProgress:
    """Compares committed offsets with the ends of the queues."""

    identity: BrokerIdentity
    store: MessageStore
    offsets: ConsumerOffsetManager

    async def of(
        self, group: str, topic: str, queues: int, walk: Walk
    ) -> dict[MessageQueue, OffsetWrapper]:
        """Return both offsets of queues 0 to ``queues`` - 1, and how old the consumed end is.

        Raises:
            ProtocolError: As :meth:`Walk.step`.
        """
        table = {}
        for queue_id in range(min(queues, MOST_LISTED_QUEUES)):
            await walk.step()
            broker_offset = max(0, self.store.max_queue_offset(topic, queue_id))
            consumer_offset = max(0, self.offsets.query(group, topic, queue_id))
            last = 0
            if consumer_offset > 0:
                last = max(0, self.store.store_time_of(topic, queue_id, consumer_offset - 1))
            queue = MessageQueue(topic, self.identity.broker_name, queue_id)
            table[queue] = OffsetWrapper(broker_offset, consumer_offset, last)
        return table


@dataclass(slots=True)
class ConsumptionProcessor:
    """Answers questions and changes nothing."""

    identity: BrokerIdentity
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[BrokerConnection]
    filters: ConsumerFilterManager
    statistics: BrokerStatistics
    clock_ms: Callable[[], int]
    progress: GroupProgress

    @handles(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader)
    async def time_spans(
        self, header: QueryConsumeTimeSpanRequestHeader, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer how old the messages of a topic are, and how late a group is with each queue."""
        config = self.topics.get(header.topic)
        if config is None:
            remark = f"topic[{header.topic}] not exist"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        spans, walk = [], Walk()
        for queue_id in range(min(config.write_queue_nums, MOST_LISTED_QUEUES)):
            await walk.step()
            spans.append(self._time_span(header.topic, header.group, queue_id))
        body = await walk.written(QueryConsumeTimeSpanBody(spans))
        return request.response(ResponseCode.SUCCESS, body=body)

    def _time_span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        store = self.store
        end = store.max_queue_offset(topic, queue_id)
        first = store.earliest_store_time(topic, queue_id)
        last = store.store_time_of(topic, queue_id, end - 1)
        offset = self.offsets.query(group, topic, queue_id)
        consumed = store.store_time_of(topic, queue_id, offset - 1) if offset > 0 else first
        waiting = store.store_time_of(topic, queue_id, offset) if 0 <= offset < end else -1
        delay = self.clock_ms() - waiting if waiting >= 0 else 0
        return QueueTimeSpan(
            MessageQueue(topic, self.identity.broker_name, queue_id),
            first,
            last,
            consumed,
            delay,
            _date(first),
            _date(last),
            _date(consumed),
        )

    @handles(RequestCode.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader)
    async def all_consume_stats(
        self, header: GetBrokerConsumeStatsRequestHeader, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer the progress of all groups of this broker, or only that on ordered topics."""
        listed: list[dict[str, list[ConsumeStats]]] = []
        total, walk = 0, Walk()
        for group in sorted(self.groups.table):
            stats = await self._consume_stats(group, walk, only_ordered=header.is_order)
            listed.append({group: stats})
            total += sum(
                queue.broker_offset - queue.consumer_offset
                for of_topic in stats
                for queue in of_topic.offset_table.values()
            )
        body = await walk.written(ConsumeStatsList(listed, self.identity.address, total))
        return request.response(ResponseCode.SUCCESS, body=body)

    async def _consume_stats(
        self, group: str, walk: Walk, *, only_ordered: bool
    ) -> list[ConsumeStats]:
        stats = []
        for topic in sorted(self.offsets.topics_of(group)):
            config = self.topics.get(topic)
            if config is None or (only_ordered and not config.order):
                continue
            if self.consumers.subscribes_elsewhere(group, topic):
                continue
            table = await self.progress.of(group, topic, config.write_queue_nums, walk)
            stats.append(ConsumeStats(table, self.statistics.group_rate(topic, group)))
        return stats

    @handles(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader)
    def consume_queue(
        self, header: QueryConsumeQueueRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Answer entries of a queue as its files hold them, at most MOST_ENTRIES."""
        topic, queue_id = header.topic, header.queue_id
        if not self.store.has_queue(topic, queue_id):
            remark = f"{queue_id}@{topic} is not exist!"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        entries = self.store.entries(
            topic, queue_id, header.index, min(max(0, header.count), MOST_ENTRIES)
        )
        if not entries and not self._holds(topic, queue_id, header.index):
            remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return request.response(ResponseCode.SUCCESS, remark)
        answer = QueryConsumeQueueResponseBody(
            [ConsumeQueueData(*entry) for entry in entries],
            self.store.max_queue_offset(topic, queue_id),
            self.store.min_queue_offset(topic, queue_id),
        )
        if header.consumer_group:
            self._add_subscription(answer, header.consumer_group, topic)
        return request.response(ResponseCode.SUCCESS, body=answer.to_json())

    def _holds(self, topic: str, queue_id: int, index: int) -> bool:
        low = self.store.min_queue_offset(topic, queue_id)
        return low <= index < self.store.max_queue_offset(topic, queue_id)

    def _add_subscription(
        self, answer: QueryConsumeQueueResponseBody, group: str, topic: str
    ) -> None:
        online = self.consumers.groups.get(group)
        subscription = online.subscriptions.get(topic) if online is not None else None
        if subscription is None:
            answer.filter_data = f"{group}@{topic} is not online!"
        else:
            answer.subscription_data = subscription.data
            known = self.filters.get(topic, group)
            answer.filter_data = known.to_json(pretty=True).decode() if known else "null"


def _date(timestamp_ms: int) -> str:
    """Return local time as tools print it; before 1970 for a message that is not there."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(seconds)) + f":{millis:03}"
