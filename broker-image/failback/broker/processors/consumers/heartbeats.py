"""Heartbeats, goodbyes, member lists (34, 35, 38, 46), notices of a change (40), silent clients.

Source: ClientManageProcessor, ConsumerManageProcessor, DefaultConsumerIdsChangeListener,
ClientHousekeepingService, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from failback.broker.clients.client_manager import ConsumerManager, Member, ProducerManager
from failback.broker.config.config import BrokerConfig
from failback.broker.filters.consumer_filters import ConsumerFilterManager
from failback.broker.filters.subscription import NO_FILTER, is_tag_type, with_filter
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.metadata.versioned_table import NewName, NewNames
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer
from failback.protocol.clients import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
)
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ProtocolError
from failback.protocol.headers import (
    GetConsumerListByGroupRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
    UnregisterClientRequestHeader,
    from_ext,
)
from failback.protocol.names import check_client_id, check_group, check_room, is_topic

logger = logging.getLogger(__name__)

CLIENT_EXPIRY_MS: Final = 120_000
ABSENT_MS: Final = 35_000
"""How long after its registration a broker may lack members of a group, under the guarded rules.

A client sends a heartbeat every ``heartbeatBrokerInterval`` (30 s), one second after it looked at
the route. The rest is for clients and name servers that are late.
"""
SCAN_PERIOD_MS: Final = 10_000


@dataclass(slots=True)
class ClientProcessor:
    """Keeps the client tables."""

    config: BrokerConfig
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    filters: ConsumerFilterManager
    steady_ms: Callable[[], int]
    consumers: ConsumerManager[BrokerConnection] = field(init=False)
    producers: ProducerManager[BrokerConnection] = field(init=False)
    _registered_ms: int | None = field(init=False, default=None)
    _groups_of: dict[BrokerConnection, set[str]] = field(init=False, default_factory=dict)
    """The last heartbeat of each connection."""
    _opaque: Iterator[int] = field(init=False, default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.consumers = ConsumerManager(self._notify)
        self.consumers.on_gone = self.filters.unregister
        self.producers = ProducerManager()

    def registered(self) -> None:
        """Note that name servers know this broker: from now on all clients can find it."""
        self._registered_ms = self.steady_ms()

    @handles(RequestCode.HEART_BEAT)
    def heartbeat(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Take a client's heartbeat; changes are announced before this one is answered.

        A group that cannot be, or for which there is no room, refuses all of it. A subscription to
        what cannot be a topic is left out: its client has none of its messages anyway.

        Raises:
            NewNames: New groups are to be stored before.
        """
        data = HeartbeatData.from_json(request.body)
        self._check_names(data)
        self._check_memberships(connection, data)
        self._ask_for(data.consumer_data_set)
        member = Member(
            connection, data.client_id, request.language, request.version, self.steady_ms()
        )
        for consumer in data.consumer_data_set:
            self._register_consumer(consumer, member)
        for producer in data.producer_data_set:
            self.producers.register(producer.group_name, member)
        return request.response(ResponseCode.SUCCESS)

    def _check_names(self, data: HeartbeatData) -> None:
        """Refuse, before anything is kept, what cannot be kept.

        Raises:
            NameRefused, TableFull: Says which name, or which table.
        """
        check_client_id(data.client_id)
        most = self.config.failback_max_groups
        for consumer in data.consumer_data_set:
            name = consumer.group_name
            if name not in self.consumers.groups and name not in self.groups.table:
                check_group(name)
                check_room("groups with members", len(self.consumers.groups), most)
            named = consumer.subscription_data_set
            consumer.subscription_data_set = [each for each in named if is_topic(each.topic)]
            for subscription in consumer.subscription_data_set:
                # Java makes it now where a client does not say when: it is newer than the last one.
                subscription.sub_version = subscription.sub_version or self.steady_ms()
        for producer in data.producer_data_set:
            # Clients that only consume send a producer group without a name.
            if producer.group_name and producer.group_name not in self.producers.groups:
                check_group(producer.group_name)
                check_room("producer groups", len(self.producers.groups), most)

    def _check_memberships(self, connection: BrokerConnection, data: HeartbeatData) -> None:
        """Refuse a client that would be a member of too many groups. Raises ``TableFull``."""
        names = {consumer.group_name for consumer in data.consumer_data_set}
        names |= {producer.group_name for producer in data.producer_data_set}
        names |= self._groups_of.get(connection, set())
        most = self.config.failback_max_groups_per_connection
        check_room("groups of one client", len(names) - 1, most)
        self._groups_of[connection] = names

    def _ask_for(self, consumers: list[ConsumerData]) -> None:
        """Have all groups stored that are new, and their retry topics. Raises ``NewNames``."""
        new: list[NewName] = []
        for consumer in consumers:
            try:
                group = self.groups.find(consumer.group_name)
            except NewNames as asked:
                new += asked.names
                group = asked.names[0].entry
            try:
                if group is not None:
                    self.topics.retry_topic(group, 1 if consumer.unit_mode else 0)
            except NewNames as asked:
                new += asked.names
        if new:
            raise NewNames(new)

    def _register_consumer(self, consumer: ConsumerData, member: Member[BrokerConnection]) -> None:
        group = self.groups.table.get(consumer.group_name)
        notify = group is None or group.notify_consumer_ids_changed_enable
        self.consumers.register(consumer, member, notify=notify)
        name = consumer.group_name
        self.filters.register(name, self.consumers.groups[name].subscriptions.values())

    @handles(RequestCode.UNREGISTER_CLIENT)
    def unregister(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        header = from_ext(UnregisterClientRequestHeader, request.ext_fields)
        group = self.groups.find(header.consumer_group) if header.consumer_group else None
        left = {header.producer_group or "", header.consumer_group or ""}
        self._groups_of[connection] = self._groups_of.get(connection, set()) - left
        if header.producer_group:
            self.producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            notify = group is None or group.notify_consumer_ids_changed_enable
            self.consumers.unregister(header.consumer_group, connection, notify=notify)
        return request.response(ResponseCode.SUCCESS, ext={})

    @handles(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader)
    def consumer_list(
        self, header: GetConsumerListByGroupRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Answer a group's members; never an empty list, which would stop its clients.

        While the list may be incomplete a client is told what it takes for "not known" and keeps
        its queues by: no answer in Go, which takes an error for "no members" and drops them;
        success without a body in all others, of which ali-ons ends at an error.
        """
        if self._is_incomplete(header.consumer_group):
            is_go = request.language == "GO"
            return None if is_go else request.response(ResponseCode.SUCCESS, ext={})
        group = self.consumers.groups.get(header.consumer_group)
        if group is None or not group.members:
            remark = f"no consumer for this group, {header.consumer_group}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark, ext={})
        body = ConsumerIdList(group.client_ids()).to_json()
        return request.response(ResponseCode.SUCCESS, ext={}, body=body)

    def _is_incomplete(self, group: str) -> bool:
        """Whether a group that consumed here before may have members without a heartbeat so far.

        One that gets a list without the others takes theirs.
        """
        if not self.config.failback_guard_consumer_list:
            return False
        if not self.offsets.topics_of(group):
            return False
        if self._registered_ms is None:
            return True
        age_ms = self.steady_ms() - self._registered_ms
        return age_ms < self.config.time_scale.ms(ABSENT_MS)

    @handles(RequestCode.CHECK_CLIENT_CONFIG)
    def check_client_config(
        self, _connection: BrokerConnection, request: RemotingCommand
    ) -> Answer:
        """Accept tag subscriptions, refuse expressions that this broker doesn't evaluate."""
        data = CheckClientRequestBody.from_json(request.body).subscription_data
        if is_tag_type(data.expression_type):
            return request.response(ResponseCode.SUCCESS)
        if not self.config.enable_property_filter:
            remark = NO_FILTER + data.expression_type
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        try:
            with_filter(data)
        except ProtocolError as error:
            return request.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.response(ResponseCode.SUCCESS)

    # --- connections that go ----------------------------------------------------------------

    def closed(self, connection: BrokerConnection) -> None:
        """Take a closed connection out of every group."""
        self._groups_of.pop(connection, None)
        self.producers.closed(connection)
        self.consumers.closed(connection)

    def close_expired(self) -> None:
        """Close connections whose client has not sent a heartbeat for 120 s (scaled)."""
        horizon = self.steady_ms() - self.config.time_scale.ms(CLIENT_EXPIRY_MS)
        for connection in self.consumers.expired(horizon) | self.producers.expired(horizon):
            logger.warning("client at %s closed: no heartbeat", connection.address)
            connection.abort()

    def _notify(self, group: str, connections: list[BrokerConnection]) -> None:
        """Ask every member of ``group`` to rebalance."""
        if not self.config.notify_consumer_ids_changed_enable:
            return
        request = RemotingCommand.request(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            NotifyConsumerIdsChangedRequestHeader(group),
            oneway=True,
        )
        request.opaque = next(self._opaque) & 0x7FFFFFFF
        frame = request.encode()
        for connection in connections:
            connection.push(frame)
