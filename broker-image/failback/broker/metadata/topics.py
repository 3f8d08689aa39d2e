"""The broker's topics: ``config/topics.json``, the system topics, and creation on first use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.versioned_table import VersionedTable, now_ms
from failback.protocol.codes import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    PUT_ASIDE_TOPIC,
    SCHEDULE_TOPIC,
)
from failback.protocol.message import RETRY_PREFIX
from failback.protocol.names import check_room, check_topic
from failback.protocol.route import (
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

logger = logging.getLogger(__name__)

AUTO_CREATE_TOPIC: Final = "TBW102"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

MOST_LISTED_QUEUES: Final = 16_384
"""How many queues of a topic an answer lists: a topic may claim to have 2^31 of them, and listing
those would delay all requests."""

_SCHEDULE_QUEUES: Final = 18
_READ_WRITE: Final = PERM_READ | PERM_WRITE


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Return the topics of a broker before a client creates one."""
    cluster_perm = PERM_INHERIT | (_READ_WRITE if config.cluster_topic_enable else 0)
    broker_perm = PERM_INHERIT | (_READ_WRITE if config.broker_topic_enable else 0)
    topics = [_topic(SELF_TEST_TOPIC, 1)]
    if config.auto_create_topic_enable:
        queues = config.default_topic_queue_nums
        topics.append(_topic(AUTO_CREATE_TOPIC, queues, PERM_INHERIT | _READ_WRITE))
    topics += [
        _topic(BENCHMARK_TOPIC, 1024),
        _topic(config.broker_cluster_name, 16, cluster_perm),
        _topic(config.broker_name, 1, broker_perm),
        _topic(OFFSET_MOVED_TOPIC, 1),
        _topic(SCHEDULE_TOPIC, _SCHEDULE_QUEUES),
    ]
    if config.trace_topic_enable:
        topics.append(_topic(config.msg_trace_topic_name, 1))
    topics.append(_topic(f"{config.broker_cluster_name}_REPLY_TOPIC", 1))
    return topics


def system_topic_names(config: BrokerConfig) -> set[str]:
    """Return the names that clients may not create, delete or, mostly, send to."""
    return {topic.topic_name for topic in system_topics(config)} | {
        AUTO_CREATE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        PUT_ASIDE_TOPIC,
        config.msg_trace_topic_name,
    }


def _topic(name: str, queues: int, perm: int = _READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


class TopicConfigManager(VersionedTable[TopicConfig, TopicConfigSerializeWrapper]):
    """The topic table with its version. TopicConfigManager of apache/rocketmq 4.9.8.

    A name server that sees the same version ignores a registration. After a topic was created by
    use the controller registers the full table, one-way.
    """

    kind = "topic"
    _wrapper = TopicConfigSerializeWrapper

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        *,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        super().__init__(path, config, system_topics(config), clock_ms=clock_ms)

    def name_of(self, entry: TopicConfig) -> str:
        return entry.topic_name

    def get(self, name: str) -> TopicConfig | None:
        """Return the topic's configuration, ``None`` when this broker does not have it."""
        return self.table.get(name)

    def create_in_send(
        self,
        topic: str,
        default_topic: str,
        client_addr: str,
        default_queue_nums: int,
        topic_sys_flag: int = 0,
    ) -> TopicConfig | None:
        """Return ``topic``, created after ``default_topic`` when that may be inherited.

        While ``autoCreateTopicEnable`` is off, asking for TBW102's inheritance takes its inherit
        bit away for good. Switching it on again does not bring auto-creation back. The next persist
        makes that outlast a restart. So does 4.9.8; ``failbackGuardAutoCreate`` refuses without
        that.

        Raises as :meth:`check_new`, and:
            NewNames: It is to be created. A message in it would be in no known topic after the next
                start, if that came before the file has it.
            NotStored: The disk does not take it; there is no such topic then.
        """
        existing = self.table.get(topic)
        if existing is not None:
            return existing
        template = self.table.get(default_topic)
        if template is None:
            logger.warning(
                "topic %s not created: no default topic %s, client %s",
                topic,
                default_topic,
                client_addr,
            )
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            template = replace(template, perm=_READ_WRITE)
            if not self._config.failback_guard_auto_create:
                self._put_quietly(template)
        if not template.perm & PERM_INHERIT:
            logger.warning(
                "topic %s not created: default topic %s has perm %d, client %s",
                topic,
                default_topic,
                template.perm,
                client_addr,
            )
            return None
        queues = max(0, min(default_queue_nums, template.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~PERM_INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=topic_sys_flag,
        )
        self.check_new(topic)
        return self.asked(created, at_once=True)

    def create_in_send_back(
        self, topic: str, queue_nums: int, perm: int = _READ_WRITE, topic_sys_flag: int = 0
    ) -> TopicConfig:
        """Return ``topic``, created as asked when missing: ``%RETRY%``, ``%DLQ%`` and the like.

        Raises as :meth:`check_new`, and:
            NewNames: It is to be created.
        """
        existing = self.table.get(topic)
        if existing is not None:
            return existing
        self.check_new(topic)
        return self.asked(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=topic_sys_flag,
            )
        )

    def check_new(self, name: str) -> None:
        if name not in self.table:
            check_topic(name)
            check_room("topics", len(self.table), self._config.failback_max_topics)

    def retry_topic(self, group: SubscriptionGroupConfig, topic_sys_flag: int = 0) -> TopicConfig:
        """Return the retry topic of ``group``, with all queues that its retries are written to."""
        queues = group.retry_queue_nums
        name = RETRY_PREFIX + group.group_name
        topic = self.create_in_send_back(name, queues, topic_sys_flag=topic_sys_flag)
        reads, writes = max(topic.read_queue_nums, queues), max(topic.write_queue_nums, queues)
        if (reads, writes) == (topic.read_queue_nums, topic.write_queue_nums):
            return topic
        return self.asked(replace(topic, read_queue_nums=reads, write_queue_nums=writes))

    def update_order(self, order_topics: Collection[str]) -> None:
        """Mark exactly ``order_topics`` as ordered (the name server's ORDER_TOPIC_CONFIG)."""
        changed = {
            name: replace(topic, order=name in order_topics)
            for name, topic in self.table.items()
            if topic.order != (name in order_topics)
        }
        if changed:
            self._put(changed)
