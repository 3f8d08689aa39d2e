"""Topics, groups and configuration: 17, 21, 25, 26, 200, 201, 207, 215.

Source: AdminBrokerProcessor, Configuration, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from failback.broker.config.config import BrokerConfig
from failback.broker.config.config_keys import needs_admin
from failback.broker.config.identity import BrokerIdentity
from failback.broker.ha.service import HaService
from failback.broker.messaging.send_rules import SendRefused, check_topic_name
from failback.broker.metadata.groups import RetryQueues, SubscriptionGroupManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import TopicConfigManager, system_topic_names
from failback.broker.processors.registry import handles
from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.server import Answer, RemotingServer
from failback.broker.store.log.deletion import Deleted
from failback.broker.store.log.results import MessageIllegal
from failback.broker.store.message_store import MessageStore
from failback.common.replacing import rewrite_file
from failback.common.text import why
from failback.protocol.codes import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    RequestCode,
    ResponseCode,
)
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError, StoreError
from failback.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)
from failback.protocol.message import RETRY_PREFIX
from failback.protocol.names import MOST_QUEUES, check_number, check_setting
from failback.protocol.properties import listed, properties_of
from failback.protocol.route import (
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    filter_type_of,
)

logger = logging.getLogger(__name__)

_SYSTEM_PREFIX: Final = "rmq_sys_"
_LOOK_SECONDS: Final = 0.005
"""How often a deletion that waits for the slave looks whether that has it."""

MOST_SETTINGS_BYTES: Final = 65_536
"""Most bytes of a request that changes settings: all of them together are a tenth of it."""


class Registrar(Protocol):
    """What this processor needs of the registration."""

    async def register_topic(self, topic: TopicConfig, /) -> None: ...

    async def register_all(self, *, oneway: bool = False) -> None: ...


@dataclass(slots=True)
class AdminProcessor:
    """Changes what the broker has and how it is set."""

    config: BrokerConfig
    identity: BrokerIdentity
    server: RemotingServer
    ha: HaService
    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    registrar: Registrar
    check_config_change: Callable[[BrokerConfig], None]
    on_config_change: Callable[[set[str]], None]
    clock_ms: Callable[[], int]
    config_version: DataVersion = field(init=False)
    system_topics: set[str] = field(init=False)
    retry_queues: RetryQueues = field(init=False)

    def __post_init__(self) -> None:
        self.config_version = DataVersion(self.clock_ms(), 0)
        self.system_topics = system_topic_names(self.config)
        self.retry_queues = RetryQueues(self.topics, self.groups, self.store.queues)

    # --- topics ----------------------------------------------------------------------------

    @handles(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader)
    async def update_topic(
        self, header: CreateTopicRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Create or change a topic; name servers know it before this is answered."""
        refusal = self._refuse_change(header.topic)
        if refusal is not None:
            return request.response(ResponseCode.SYSTEM_ERROR, refusal)
        check_number("readQueueNums", header.read_queue_nums, MOST_QUEUES)
        check_number("writeQueueNums", header.write_queue_nums, MOST_QUEUES)
        check_number("perm", header.perm, PERM_READ | PERM_WRITE | PERM_INHERIT)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=filter_type_of(header.topic_filter_type or "SINGLE_TAG"),
            topic_sys_flag=header.topic_sys_flag or 0,
        )
        group = None
        if topic.topic_name.startswith(RETRY_PREFIX):
            topic, group = self.retry_queues.of_new_topic(topic)
        await self.retry_queues.store(topic, group)
        return await self._registered(request, topic)

    async def _registered(self, request: RemotingCommand, topic: TopicConfig) -> RemotingCommand:
        await self.registrar.register_topic(topic)
        return request.response(ResponseCode.SUCCESS)

    def _refuse_change(self, topic: str) -> str | None:
        if self.identity.is_slave:
            return "a slave takes its topics from its master: change them there"
        try:
            check_topic_name(topic)
        except SendRefused as refused:
            return refused.remark
        if topic in self.system_topics or topic.startswith(_SYSTEM_PREFIX):
            return f"The topic[{topic}] is conflict with system topic."
        return None

    @handles(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader)
    async def delete_topic(
        self, header: DeleteTopicRequestHeader, request: RemotingCommand
    ) -> Answer:
        """Delete a topic with its messages and the offsets on it; a SYNC_MASTER's slave knows."""
        refusal = self._refuse_change(header.topic)
        if refusal is not None:
            return request.response(ResponseCode.SYSTEM_ERROR, refusal)
        config = self.topics.get(header.topic)
        if config is not None:
            await self.topics.order(header.topic, None)
            self.server.commit()
        if config is None and not self.store.has_topic(header.topic):
            return request.response(ResponseCode.SUCCESS)
        try:
            said = self.store.delete_topic(header.topic)
        except StoreError:  # the log does not take it: nothing is deleted
            if config is not None:
                self.topics.take_back(header.topic, config)
            raise
        if said is not None:
            self.offsets.remove_topic(header.topic, said.at_ms)
            self.offsets.persist()
        return await self._replicated(request)

    @handles(RequestCode.GET_ALL_TOPIC_CONFIG)
    def all_topics(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        body = self.topics.to_json()
        return request.response(ResponseCode.SUCCESS, ext={}, body=body)

    # --- groups ----------------------------------------------------------------------------

    @handles(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    async def update_group(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Create or change a group; its retry topic gets as many queues."""
        if self.identity.is_slave:
            remark = "a slave takes its groups from its master: change them there"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        logger.info("group configuration from %s", connection.address)
        group = SubscriptionGroupConfig.from_json(request.body)
        check_number("retryQueueNums", group.retry_queue_nums, MOST_QUEUES)
        topic = self.retry_queues.of_new_group(group)
        await self.retry_queues.store(topic, group)
        if topic is None:
            return request.response(ResponseCode.SUCCESS)
        return await self._registered(request, topic)

    @handles(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader)
    async def delete_group(
        self, header: DeleteSubscriptionGroupRequestHeader, request: RemotingCommand
    ) -> Answer:
        if self.identity.is_slave:
            remark = "a slave takes its groups from its master: change them there"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        group, with_offsets = header.group_name, header.wants_offsets_removed()
        config = self.groups.table.get(group)
        if config is not None:
            await self.groups.order(group, None)
            self.server.commit()
        if config is None and not (with_offsets and self.offsets.topics_of(group)):
            return request.response(ResponseCode.SUCCESS)
        try:
            at_ms = self._say_deleted(group, with_offsets=with_offsets)
        except StoreError:  # the log does not take it: nothing is deleted
            if config is not None:
                self.groups.take_back(config.group_name, config)
            raise
        if with_offsets:
            self.offsets.remove_group(group, at_ms)
            self.offsets.persist()
        return await self._replicated(request)

    async def _replicated(self, request: RemotingCommand) -> Answer:
        """Answer success; on a SYNC_MASTER when a connected slave has the log, or is too slow."""
        end = self.store.max_physical_offset
        if self.config.broker_role != "SYNC_MASTER" or not self.ha.is_slave_ok(end):
            return request.response(ResponseCode.SUCCESS)
        seconds = self.config.time_scale.seconds(self.config.slave_timeout)
        for _ in range(round(seconds / _LOOK_SECONDS)):
            if self.ha.push2slave_max_offset >= end:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        return request.response(ResponseCode.SUCCESS)

    def _say_deleted(self, group: str, *, with_offsets: bool) -> int:
        """Let slaves know by the log that a group goes; return when, ms.

        Raises:
            StoreError: The log does not take it.
        """
        kind = Deleted.GROUP_AND_OFFSETS if with_offsets else Deleted.GROUP
        try:
            return self.store.deletions.say(kind, group).at_ms
        except MessageIllegal:  # a name as no record can have; slaves learn of it when they ask
            return self.clock_ms()

    @handles(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    def all_groups(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        body = self.groups.to_json()
        return request.response(ResponseCode.SUCCESS, body=body)

    # --- configuration ---------------------------------------------------------------------

    @handles(RequestCode.UPDATE_BROKER_CONFIG)
    def update_config(
        self, connection: BrokerConnection, request: RemotingCommand
    ) -> Answer | Awaitable[Answer]:
        """Write settings to the file, apply them, announce them; or nothing of it."""
        try:
            if len(request.body) > MOST_SETTINGS_BYTES:
                raise ConfigError("settings", f"are more than {MOST_SETTINGS_BYTES} bytes")
            wanted = properties_of(request.body).values
            for key, value in wanted.items():
                check_setting(key, value)
            black_list = set(self.config.config_black_list.split(";"))
            refused = sorted(black_list & wanted.keys())
            if refused:
                remark = f"Can not update config in black list: {', '.join(refused)}."
                return request.response(ResponseCode.NO_PERMISSION, remark)
            guarded = self.config.failback_rules == "guarded"
            kept = sorted(key for key in wanted if needs_admin(key, guarded=guarded))
            if kept and not self.config.may_administer(connection.host):
                remark = (
                    f"{', '.join(kept)} can be set from this machine and from addresses of"
                    f" failbackAdminFrom, not from {connection.host}; nothing was changed"
                )
                return request.response(ResponseCode.NO_PERMISSION, remark)
            changed = self.change(wanted, connection.address)
        except ConfigError as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        except OSError as error:
            remark = f"{self.config.file} can't be written: {why(error)}; nothing was changed"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        if "brokerPermission" in changed:
            # Name servers ignore a registration under a version they know.
            self.topics.data_version = self.topics.data_version.next(self.clock_ms())
            return self._reregistered(request)
        return request.response(ResponseCode.SUCCESS)

    def change(self, wanted: Mapping[str, str], source: str) -> set[str]:
        """Write settings to the file and apply them; return the keys that changed.

        Raises:
            ConfigError: As :meth:`BrokerConfig.planned`, or a part of the broker can't take it up;
            nothing was changed.
            OSError: The file can't be written; nothing was changed.
        """
        planned, changed = self.config.planned(wanted)
        self.check_config_change(planned)
        if changed and self.config.file is not None:
            rewrite_file(self.config.file, planned.to_file())
        self.config.take(planned)
        logger.info("settings from %s: changed %s", source, sorted(changed))
        self.config_version = self.config_version.next(self.clock_ms())
        self.on_config_change(changed)
        return changed

    async def _reregistered(self, request: RemotingCommand) -> RemotingCommand:
        await self.registrar.register_all()
        return request.response(ResponseCode.SUCCESS)

    @handles(RequestCode.GET_BROKER_CONFIG)
    def get_config(self, _connection: BrokerConnection, request: RemotingCommand) -> Answer:
        ext = {"version": self.config_version.to_json().decode()}
        body = listed(self.config.to_properties()).encode()
        return request.response(ResponseCode.SUCCESS, ext=ext, body=body)


@dataclass(slots=True)
class CleaningProcessor:
    """Cleaning on request: 306, 316 and 329."""

    config: BrokerConfig
    store: MessageStore
    topics: TopicConfigManager

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_queues(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Delete the queues all of whose messages have expired; such a queue begins again at 0."""
        logger.warning("expired queues are cleaned for %s", connection.address)
        self.store.clean_expired_queues()
        return request.response(ResponseCode.SUCCESS)

    @handles(RequestCode.CLEAN_UNUSED_TOPIC)
    def clean_topics(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Delete the queues of topics that this broker does not have."""
        logger.warning("unused topics are cleaned for %s", connection.address)
        kept = self.topics.table.keys() | system_topic_names(self.config)
        for topic in {topic for topic, _ in self.store.queues()} - kept:
            logger.warning("topic %s is not here: its queues are deleted", topic)
            self.store.delete_topic(topic)
        return request.response(ResponseCode.SUCCESS)

    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def delete_log_files(self, connection: BrokerConnection, request: RemotingCommand) -> Answer:
        """Let the next rounds of expiry delete files that are old enough, at any hour."""
        logger.warning("expired files are deleted for %s", connection.address)
        self.store.expire_by_hand()
        return request.response(ResponseCode.SUCCESS)
