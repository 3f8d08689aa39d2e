"""Requests of tools that change nothing: 28, 202, 203, 204, 208, 300, 305, 315, 328.

Source: AdminBrokerProcessor, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from failback.broker.clients.client_manager import ConsumerManager, Member, ProducerManager
from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import (
    MOST_LISTED_QUEUES,
    TopicConfigManager,
    system_topic_names,
)
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.monitoring.stats_items import StatsItems
from failback.broker.processors.consumers.consumption import GroupProgress, Walk
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.broker.store.message_store import MessageStore
from failback.protocol.body import MessageQueue
from failback.protocol.clients import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from failback.protocol.stats import (
    ConsumeStats,
    GroupList,
    KVTable,
    OffsetWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)


@dataclass(slots=True)
class InspectionProcessor:
    """Answers questions and changes nothing."""

    config: BrokerConfig
    identity: BrokerIdentity
    store: MessageStore
    topics: TopicConfigManager
    offsets: ConsumerOffsetManager
    consumers: ConsumerManager[BrokerConnection]
    producers: ProducerManager[BrokerConnection]
    statistics: BrokerStatistics
    stats_items: StatsItems
    runtime_table: Callable[[], dict[str, str]]
    progress: GroupProgress

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime_info(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        return request.response(ResponseCode.SUCCESS, body=KVTable(self.runtime_table()).to_json())

    @handles(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader)
    async def topic_stats(
        self, header: GetTopicStatsInfoRequestHeader, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer range and age of every queue of a topic."""
        topic = header.topic
        config = self.topics.get(topic)
        if config is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        table, walk = {}, Walk()
        for queue_id in range(min(config.write_queue_nums, MOST_LISTED_QUEUES)):
            await walk.step()
            table[self._queue(topic, queue_id)] = self._topic_offset(topic, queue_id)
        body = await walk.written(TopicStatsTable(table))
        return request.response(ResponseCode.SUCCESS, body=body)

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        low = max(0, self.store.min_queue_offset(topic, queue_id))
        high = max(0, self.store.max_queue_offset(topic, queue_id))
        last = self.store.store_time_of(topic, queue_id, high - 1) if high > 0 else 0
        return TopicOffset(low, high, max(0, last))

    @handles(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader)
    def consumer_connections(
        self, header: GetConsumerConnectionListRequestHeader, request: RemotingCommand
    ) -> Answer:
        name = header.consumer_group
        group = self.consumers.groups.get(name)
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

    @handles(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader)
    def producer_connections(
        self, header: GetProducerConnectionListRequestHeader, request: RemotingCommand
    ) -> Answer:
        name = header.producer_group
        members = self.producers.groups.get(name)
        if not members:
            remark = f"the producer group[{name}] not exist"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        answer = ProducerConnection([_connection_of(member) for member in members.values()])
        return request.response(ResponseCode.SUCCESS, body=answer.to_json())

    @handles(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader)
    async def consume_stats(
        self, header: GetConsumeStatsRequestHeader, request: RemotingCommand
    ) -> RemotingCommand:
        """Answer a group's offset and the end of every queue that it reads.

        Without a topic: all topics on which it has offsets, less those that its members, if any
        are online, do not subscribe to.
        """
        group = header.consumer_group
        topics = {header.topic} if header.topic else self.offsets.topics_of(group)
        online = self.consumers.groups.get(group)
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps, walk = 0.0, Walk()
        for topic in sorted(topics):
            config = self.topics.get(topic)
            if config is None or (online is not None and topic not in online.subscriptions):
                continue
            table.update(await self.progress.of(group, topic, config.read_queue_nums, walk))
            tps += self.statistics.group_rate(topic, group)
        body = await walk.written(ConsumeStats(table, tps))
        return request.response(ResponseCode.SUCCESS, body=body)

    @handles(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader)
    def groups_of_topic(
        self, header: QueryTopicConsumeByWhoRequestHeader, request: RemotingCommand
    ) -> Answer:
        topic = header.topic
        groups = self.consumers.groups_of_topic(topic) | self.offsets.groups_of(topic)
        return request.response(ResponseCode.SUCCESS, body=GroupList(sorted(groups)).to_json())

    @handles(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def system_topics(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        body = TopicList(sorted(system_topic_names(self.config))).to_json()
        return request.response(ResponseCode.SUCCESS, body=body)

    @handles(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader)
    def stats_data(
        self, header: ViewBrokerStatsDataRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Answer sum and rate of one counter over a minute, an hour and a day."""
        data = self.stats_items.get(header.stats_name, header.stats_key)
        if data is None:
            remark = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        return request.response(ResponseCode.SUCCESS, body=data.to_json())

    @handles(RequestCode.GET_ALL_PRODUCER_INFO)
    def all_producers(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        data = {
            group: [_producer_of(member) for member in members.values()]
            for group, members in self.producers.groups.items()
        }
        return request.response(ResponseCode.SUCCESS, body=ProducerTableInfo(data).to_json())

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self.identity.broker_name, queue_id)


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
