"""A group and its retry topic: as many queues as retries are written to, whoever changes one first.

A consumer that is told of one queue reads one. Where the group has more of them, 4.9.8 writes the
other retries where nobody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.json_config import NotStored
from failback.broker.metadata.topics import RETRY_PREFIX, TopicConfigManager
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig


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

    def store(self, topic: TopicConfig | None, group: SubscriptionGroupConfig | None) -> None:
        """Store both, or none of them.

        Raises:
            NotStored: The disk does not take one.
        """
        if group is not None:
            self.groups.check_new(group.group_name)
        if topic is None:
            if group is not None:
                self.groups.update(group)
            return
        before = self.topics.get(topic.topic_name)
        self.topics.update(topic)
        if group is not None:
            try:
                self.groups.update(group)
            except NotStored:
                self.topics.take_back(topic.topic_name, before)
                raise
