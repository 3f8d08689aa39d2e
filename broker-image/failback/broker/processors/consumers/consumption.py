"""What tools look at of consumption: 303, 317 and 321.

Source: AdminBrokerProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from failback.broker.clients.client_manager import ConsumerManager
from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.topics import MOST_LISTED_QUEUES
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.processors.consumers.progress import GroupProgress
from failback.broker.remoting.connection import BrokerConnection
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetBrokerConsumeStatsRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    from_ext,
)
from failback.protocol.stats import (
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)

if TYPE_CHECKING:
    from failback.broker.filters.consumer_filters import ConsumerFilterManager
    from failback.broker.metadata.groups import SubscriptionGroupManager
    from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
    from failback.broker.metadata.topics import TopicConfigManager
    from failback.broker.remoting.server import RemotingServer
    from failback.broker.store.message_store import MessageStore


class ConsumptionProcessor:
    """Answers questions and changes nothing."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager[BrokerConnection],
        filters: ConsumerFilterManager,
        statistics: BrokerStatistics,
        clock_ms: Callable[[], int],
    ) -> None:
        self._identity = identity
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._filters = filters
        self._statistics = statistics
        self._clock_ms = clock_ms
        self._progress = GroupProgress(identity, store, offsets)

    def register(self, server: RemotingServer) -> None:
        server.handle(RequestCode.QUERY_CONSUME_TIME_SPAN, self.time_spans)
        server.handle(RequestCode.GET_BROKER_CONSUME_STATS, self.all_consume_stats)
        server.handle(RequestCode.QUERY_CONSUME_QUEUE, self.consume_queue)

    def time_spans(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer how old the messages of a topic are, and how late a group is with each queue."""
        header = from_ext(QueryConsumeTimeSpanRequestHeader, request.ext_fields)
        config = self._topics.get(header.topic)
        if config is None:
            remark = f"topic[{header.topic}] not exist"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        spans = [
            self._time_span(header.topic, header.group, queue_id)
            for queue_id in range(min(config.write_queue_nums, MOST_LISTED_QUEUES))
        ]
        body = QueryConsumeTimeSpanBody(spans).to_json()
        return request.response(ResponseCode.SUCCESS, body=body)

    def _time_span(self, topic: str, group: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        end = store.max_queue_offset(topic, queue_id)
        first = store.earliest_store_time(topic, queue_id)
        last = store.store_time_of(topic, queue_id, end - 1)
        offset = self._offsets.query(group, topic, queue_id)
        consumed = store.store_time_of(topic, queue_id, offset - 1) if offset > 0 else first
        waiting = store.store_time_of(topic, queue_id, offset) if 0 <= offset < end else -1
        delay = self._clock_ms() - waiting if waiting >= 0 else 0
        return QueueTimeSpan(
            MessageQueue(topic, self._identity.broker_name, queue_id),
            first,
            last,
            consumed,
            delay,
            _date(first),
            _date(last),
            _date(consumed),
        )

    def all_consume_stats(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer the progress of all groups of this broker, or only that on ordered topics."""
        header = from_ext(GetBrokerConsumeStatsRequestHeader, request.ext_fields)
        listed: list[dict[str, list[ConsumeStats]]] = []
        total = 0
        for group in sorted(self._groups.table):
            stats = self._consume_stats(group, only_ordered=header.is_order)
            listed.append({group: stats})
            total += sum(
                queue.broker_offset - queue.consumer_offset
                for of_topic in stats
                for queue in of_topic.offset_table.values()
            )
        body = ConsumeStatsList(listed, self._identity.address, total).to_json()
        return request.response(ResponseCode.SUCCESS, body=body)

    def _consume_stats(self, group: str, *, only_ordered: bool) -> list[ConsumeStats]:
        stats = []
        for topic in sorted(self._offsets.topics_of(group)):
            config = self._topics.get(topic)
            if config is None or (only_ordered and not config.order):
                continue
            if self._consumers.subscribes_elsewhere(group, topic):
                continue
            table = self._progress.of(group, topic, config.write_queue_nums)
            stats.append(ConsumeStats(table, self._statistics.group_rate(topic, group)))
        return stats

    def consume_queue(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer entries of a queue as they stand in its files."""
        header = from_ext(QueryConsumeQueueRequestHeader, request.ext_fields)
        topic, queue_id = header.topic, header.queue_id
        if not self._store.has_queue(topic, queue_id):
            remark = f"{queue_id}@{topic} is not exist!"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        entries = self._store.entries(topic, queue_id, header.index, max(0, header.count))
        if not entries and not self._holds(topic, queue_id, header.index):
            remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return request.response(ResponseCode.SUCCESS, remark)
        answer = QueryConsumeQueueResponseBody(
            [ConsumeQueueData(*entry) for entry in entries],
            self._store.max_queue_offset(topic, queue_id),
            self._store.min_queue_offset(topic, queue_id),
        )
        if header.consumer_group:
            self._add_subscription(answer, header.consumer_group, topic)
        return request.response(ResponseCode.SUCCESS, body=answer.to_json())

    def _holds(self, topic: str, queue_id: int, index: int) -> bool:
        low = self._store.min_queue_offset(topic, queue_id)
        return low <= index < self._store.max_queue_offset(topic, queue_id)

    def _add_subscription(
        self, answer: QueryConsumeQueueResponseBody, group: str, topic: str
    ) -> None:
        online = self._consumers.groups.get(group)
        subscription = online.subscriptions.get(topic) if online is not None else None
        if subscription is None:
            answer.filter_data = f"{group}@{topic} is not online!"
        else:
            answer.subscription_data = subscription.data
            known = self._filters.get(topic, group)
            answer.filter_data = known.to_json(pretty=True).decode() if known else "null"


def _date(timestamp_ms: int) -> str:
    """Return local time as tools print it; before 1970 for a message that is not there."""
    seconds, millis = divmod(timestamp_ms, 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(seconds)) + f":{millis:03}"
