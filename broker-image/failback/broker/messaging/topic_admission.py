"""Which topic a message goes to: checks in the original's order, creation, dead letters.

Whether a topic is created, and with which queues and rights, is decided by ``create_in_send`` in
``metadata/topics.py``.

Source: AbstractSendMessageProcessor.msgCheck, SendMessageProcessor.handleRetryAndDLQ,
apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from failback.broker.config.config import BrokerConfig
from failback.broker.messaging.send_rules import FORBIDDEN_TOPICS, SendRefused, check_topic_name
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.remoting.connection import BrokerConnection
from failback.protocol.codes import MULTI_TAGS, PERM_READ, PERM_WRITE, ResponseCode
from failback.protocol.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.route import TopicConfig

SendHeader = SendMessageRequestHeader | SendMessageRequestHeaderV2

_VERSION_WITH_MAX_RECONSUME: Final = 121  # V3_4_9
_MAX_TARGETS: Final = 10_000


class Target:
    """A topic that passed the checks, with what every record of it shares."""

    __slots__ = ("bytes_in", "config", "group", "messages_in", "queue_limit", "sys_flag", "topic")

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        """Compared by identity: the topic manager replaces what it changes."""
        self.topic = config.topic_name.encode()
        self.queue_limit = max(config.read_queue_nums, config.write_queue_nums)
        self.sys_flag = MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0
        is_retry = config.topic_name.startswith(RETRY_PREFIX)
        self.group = config.topic_name[len(RETRY_PREFIX) :] if is_retry else None
        """The consumer group of a retry topic."""
        self.messages_in = 0
        self.bytes_in = 0


@dataclass(slots=True)
class TopicAdmission:
    """Finds the target of a send; topics that passed once are remembered until they change."""

    config: BrokerConfig
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    clock_ms: Callable[[], int]
    targets: dict[str, Target] = field(init=False, default_factory=dict)
    order_topics: frozenset[str] = field(init=False, default=frozenset())
    """Topics of the name server's ORDER_TOPIC_CONFIG."""

    def target_of(self, connection: BrokerConnection, header: SendHeader) -> Target:
        """Return the topic of a send, created when that is allowed.

        Raises:
            SendRefused: A check failed.
        """
        config = self.config
        if config.start_accept_send_request_time_stamp:
            self._check_started()
        if not config.broker_permission & PERM_WRITE:
            self._check_order_topic(header.topic)
        target = self.targets.get(header.topic)
        if target is None or self.topics.table.get(header.topic) is not target.config:
            target = self._admit(connection, header)
        if header.queue_id >= target.queue_limit:
            raise SendRefused(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.queue_id}] is illegal, {target.config} producer: "
                + connection.address,
            )
        return target

    @property
    def is_unconditional(self) -> bool:
        """Whether all that a message has to pass is the check of its topic and queue."""
        config = self.config
        may_write = config.broker_permission & PERM_WRITE
        return bool(may_write) and not config.start_accept_send_request_time_stamp

    def known(self, topic: str, queue_id: int) -> Target | None:
        """Return what :meth:`target_of` would for an ordinary topic met before; else None."""
        target = self.targets.get(topic)
        if target is None or self.topics.table.get(topic) is not target.config:
            return None
        is_ordinary = target.group is None and queue_id < target.queue_limit
        return target if is_ordinary else None

    def _admit(self, connection: BrokerConnection, header: SendHeader) -> Target:
        """Check a topic that is new here or has changed; create it when that is allowed."""
        topic = header.topic
        check_topic_name(topic)
        if topic in FORBIDDEN_TOPICS:
            remark = f"Sending message to topic[{topic}] is forbidden."
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        config = self.topics.get(topic) or self._create(connection, header)
        if config is None:
            remark = f"topic[{topic}] not exist, apply first please!"
            raise SendRefused(ResponseCode.TOPIC_NOT_EXIST, remark)
        return self._remember(config)

    def _remember(self, config: TopicConfig) -> Target:
        known = self.targets.get(config.topic_name)
        target = Target(config)
        if known is not None:
            target.messages_in, target.bytes_in = known.messages_in, known.bytes_in
        elif len(self.targets) >= _MAX_TARGETS:
            self.targets.clear()
        self.targets[config.topic_name] = target
        return target

    def _create(self, connection: BrokerConnection, header: SendHeader) -> TopicConfig | None:
        created = self.topics.create_in_send(
            header.topic,
            header.default_topic,
            connection.address,
            header.default_topic_queue_nums,
            1 if header.unit_mode else 0,
        )
        if created is None and header.topic.startswith(RETRY_PREFIX):
            created = self.topics.create_in_send_back(header.topic, 1, PERM_READ | PERM_WRITE)
        return created

    def _check_started(self) -> None:
        start_ms = self.config.start_accept_send_request_time_stamp
        if self.clock_ms() < start_ms:
            remark = f"broker unable to service, until {start_ms}"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)

    def _check_order_topic(self, topic: str) -> None:
        if topic in self.order_topics:
            remark = f"the broker[{self.config.broker_ip1}] sending message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)

    def retry_target(
        self, target: Target, queue_id: int, header: SendHeader, version: int
    ) -> tuple[Target, int, bool]:
        """Send a message that was retried too often to the group's dead letters.

        Returns target, queue id, and whether it is a dead letter.
        """
        assert target.group is not None
        group = self.groups.find(target.group)
        if group is None:
            remark = f"subscription group not exist, {target.group}"
            raise SendRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        most = group.retry_max_times
        if version >= _VERSION_WITH_MAX_RECONSUME and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        if (header.reconsume_times or 0) < most:
            return target, queue_id, False
        config = self.topics.create_in_send_back(
            DLQ_PREFIX + target.group, 1, PERM_READ | PERM_WRITE
        )
        known = self.targets.get(config.topic_name)
        dlq = known if known is not None and known.config is config else self._remember(config)
        return dlq, 0, True
