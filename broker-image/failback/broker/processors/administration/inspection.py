"""What tools look at: 28, 202, 203, 204, 208, 300, 305, 315, 328.

Source: AdminBrokerProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from failback.broker.clients.client_manager import ConsumerManager, Member, ProducerManager
from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.topics import MOST_LISTED_QUEUES
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.monitoring.stats_items import StatsItems
from failback.broker.processors.consumers.progress import GroupProgress
from failback.broker.remoting.connection import BrokerConnection
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
    from_ext,
)
from failback.protocol.route import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    KVTable,
    MessageQueue,
    OffsetWrapper,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)

if TYPE_CHECKING:
    from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
    from failback.broker.metadata.topics import TopicConfigManager
    from failback.broker.remoting.server import RemotingServer
    from failback.broker.store.message_store import MessageStore


class InspectionProcessor:
    """Answers questions and changes nothing."""

    def __init__(
        self,
        *,
        identity: BrokerIdentity,
        store: MessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager[BrokerConnection],
        producers: ProducerManager[BrokerConnection],
        statistics: BrokerStatistics,
        stats_items: StatsItems,
        runtime_info: Callable[[], dict[str, str]],
        system_topics: Callable[[], set[str]],
    ) -> None:
        self._identity = identity
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._producers = producers
        self._statistics = statistics
        self._stats_items = stats_items
        self._progress = GroupProgress(identity, store, offsets)
        self._runtime_info = runtime_info
        self._system_topics = system_topics

    def register(self, server: RemotingServer) -> None:
        server.handle(RequestCode.GET_BROKER_RUNTIME_INFO, self.runtime_info)
        server.handle(RequestCode.GET_TOPIC_STATS_INFO, self.topic_stats)
        server.handle(RequestCode.GET_CONSUMER_CONNECTION_LIST, self.consumer_connections)
        server.handle(RequestCode.GET_PRODUCER_CONNECTION_LIST, self.producer_connections)
        server.handle(RequestCode.GET_CONSUME_STATS, self.consume_stats)
        server.handle(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self.groups_of_topic)
        server.handle(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.system_topics)
        server.handle(RequestCode.VIEW_BROKER_STATS_DATA, self.stats_data)
        server.handle(RequestCode.GET_ALL_PRODUCER_INFO, self.all_producers)

    def runtime_info(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        return request.response(ResponseCode.SUCCESS, body=KVTable(self._runtime_info()).to_json())

    def topic_stats(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer range and age of every queue of a topic."""
        topic = from_ext(GetTopicStatsInfoRequestHeader, request.ext_fields).topic
        config = self._topics.get(topic)
        if config is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        table = {
            self._queue(topic, queue_id): self._topic_offset(topic, queue_id)
            for queue_id in range(min(config.write_queue_nums, MOST_LISTED_QUEUES))
        }
        return request.response(ResponseCode.SUCCESS, body=TopicStatsTable(table).to_json())

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        low = max(0, self._store.min_queue_offset(topic, queue_id))
        high = max(0, self._store.max_queue_offset(topic, queue_id))
        last = self._store.store_time_of(topic, queue_id, high - 1) if high > 0 else 0
        return TopicOffset(low, high, max(0, last))

    def consumer_connections(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        name = from_ext(GetConsumerConnectionListRequestHeader, request.ext_fields).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            remark = f"the consumer group[{name}] not online"
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        answer = ConsumerConnection(
            connection_set=[_connection_of(member) for member in group.members.values()],
            subscription_table={
                topic: subscription.data for topic, subscription in group.subscriptions.items()
            },
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return request.response(ResponseCode.SUCCESS, body=answer.to_json())

    def producer_connections(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        name = from_ext(GetProducerConnectionListRequestHeader, request.ext_fields).producer_group
        members = self._producers.groups.get(name)
        if not members:
            remark = f"the producer group[{name}] not exist"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        answer = ProducerConnection([_connection_of(member) for member in members.values()])
        return request.response(ResponseCode.SUCCESS, body=answer.to_json())

    def consume_stats(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer where a group stands on every queue it reads.

        Without a topic: all topics on which it has offsets, less those that its members, if any
        are online, do not subscribe to.
        """
        header = from_ext(GetConsumeStatsRequestHeader, request.ext_fields)
        group = header.consumer_group
        topics = {header.topic} if header.topic else self._offsets.topics_of(group)
        online = self._consumers.groups.get(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        for topic in sorted(topics):
            config = self._topics.get(topic)
            if config is None or (online is not None and topic not in online.subscriptions):
                continue
            table.update(self._progress.of(group, topic, config.read_queue_nums))
            tps += self._statistics.group_rate(topic, group)
        return request.response(ResponseCode.SUCCESS, body=ConsumeStats(table, tps).to_json())

    def groups_of_topic(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        topic = from_ext(QueryTopicConsumeByWhoRequestHeader, request.ext_fields).topic
        groups = self._consumers.groups_of_topic(topic) | self._offsets.groups_of(topic)
        return request.response(ResponseCode.SUCCESS, body=GroupList(sorted(groups)).to_json())

    def system_topics(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        body = TopicList(sorted(self._system_topics())).to_json()
        return request.response(ResponseCode.SUCCESS, body=body)

    def stats_data(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer sum and rate of one counter over a minute, an hour and a day."""
        header = from_ext(ViewBrokerStatsDataRequestHeader, request.ext_fields)
        data = self._stats_items.get(header.stats_name, header.stats_key)
        if data is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(ResponseCode.SUCCESS, body=data.to_json())

    def all_producers(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        data = {
            group: [_producer_of(member) for member in members.values()]
            for group, members in self._producers.groups.items()
        }
        return request.response(ResponseCode.SUCCESS, body=ProducerTableInfo(data).to_json())

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._identity.broker_name, queue_id)


def _connection_of(member: Member[BrokerConnection]) -> Connection:
    return Connection(
        member.client_id, member.connection.address, member.language or "OTHER", member.version
    )


def _producer_of(member: Member[BrokerConnection]) -> ProducerInfo:
    return ProducerInfo(
        member.client_id,
        f"/{member.connection.address}",
        member.language or "OTHER",
        member.version,
        member.last_update_ms,
    )
