"""The broker's consumer groups: ``config/subscriptionGroup.json`` and creation on first use.

A group and its retry topic have as many queues as retries are written to, whichever of the two an
administrator changes. A consumer pulls the queues that it has been given. Where the group has more,
4.9.8 writes the other retries to queues that no consumer pulls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.json_config import NotStored
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.metadata.versioned_table import VersionedTable, now_ms
from failback.protocol.codes import SYSTEM_GROUPS
from failback.protocol.message import RETRY_PREFIX
from failback.protocol.names import check_group, check_room
from failback.protocol.route import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
)

INTERNAL_PREFIX: Final = "CID_RMQ_SYS_"
"""Groups of the system itself: created even while auto-creation is off (MixAll 4.9.8)."""


def system_groups() -> list[SubscriptionGroupConfig]:
    """Return the groups that always exist."""
    return [SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS]


class SubscriptionGroupManager(VersionedTable[SubscriptionGroupConfig, SubscriptionGroupWrapper]):
    """The group table with its version. SubscriptionGroupManager of apache/rocketmq 4.9.8."""

    kind = "consumer group"
    _wrapper = SubscriptionGroupWrapper

    def __init__(
        self, path: Path, config: BrokerConfig, *, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        super().__init__(path, config, system_groups(), clock_ms=clock_ms)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration, created with defaults when that is allowed.

        Raises:
            NameRefused: There is none, and nothing may be called so.
            TableFull: There is none, and no room for another.
            NewNames: There is none so far.
        """
        existing = self.table.get(group)
        if existing is not None:
            return existing
        allowed = self._config.auto_create_subscription_group
        if not allowed and not group.startswith(INTERNAL_PREFIX):
            return None
        self.check_new(group)
        return self.asked(SubscriptionGroupConfig(group_name=group))

    def check_new(self, name: str) -> None:
        if name not in self.table:
            check_group(name)
            check_room("groups", len(self.table), self._config.failback_max_groups)

    def name_of(self, entry: SubscriptionGroupConfig) -> str:
        return entry.group_name


@dataclass(frozen=True, slots=True)
class RetryQueues:
    """Keeps the two numbers together where an administrator changes one."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    queues: Callable[[], Iterable[tuple[str, int]]]
    """Topic and id of every queue that has, or had, messages."""

    def of_new_group(self, group: SubscriptionGroupConfig) -> TopicConfig | None:
        """Return how the retry topic of a changed group has to be; ``None`` if it is so already.

        Queues that are written no more stay to be read.
        """
        topic, queues = self.topics.get(RETRY_PREFIX + group.group_name), group.retry_queue_nums
        if topic is None or queues <= 0:
            return None
        reads = max(topic.read_queue_nums, queues)
        fitting = replace(topic, read_queue_nums=reads, write_queue_nums=queues)
        return None if fitting == topic else fitting

    def of_new_topic(
        self, topic: TopicConfig
    ) -> tuple[TopicConfig, SubscriptionGroupConfig | None]:
        """Return a changed retry topic with all queues that have messages, and its group.

        The group is ``None`` where it needs no change.
        """
        name, known = topic.topic_name, self.topics.get(topic.topic_name)
        reads = max(topic.read_queue_nums, topic.write_queue_nums)
        if known is not None:
            used = max((queue_id for of, queue_id in self.queues() if of == name), default=-1)
            reads = max(reads, min(known.read_queue_nums, used + 1))
        group = self.groups.table.get(name.removeprefix(RETRY_PREFIX))
        if group is not None and 0 < group.retry_queue_nums != topic.write_queue_nums > 0:
            group = replace(group, retry_queue_nums=topic.write_queue_nums)
        else:
            group = None
        return replace(topic, read_queue_nums=reads), group

    async def store(self, topic: TopicConfig | None, group: SubscriptionGroupConfig | None) -> None:
        """Store both, or none of them.

        Raises:
            NotStored: The disk does not take one.
        """
        if group is not None:
            self.groups.check_new(group.group_name)
        if topic is None:
            if group is not None:
                await self.groups.order(group.group_name, group)
            return
        name, before = topic.topic_name, self.topics.get(topic.topic_name)
        await self.topics.order(name, topic)
        if group is not None:
            try:
                await self.groups.order(group.group_name, group)
            except NotStored:
                if self.topics.get(name) is topic:
                    self.topics.take_back(name, before)
                raise
