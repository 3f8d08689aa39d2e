"""Where a message is stored that waited: delayed ones when they are due, transactions at their end.

What it was for was decided when it was sent. Meanwhile its topic may be gone, its queues fewer, and
the limits others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from failback.broker.messaging.delayed import append_copy
from failback.broker.messaging.put_aside import PutAside
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.topics import TopicConfigManager
from failback.broker.metadata.versioned_table import now
from failback.broker.store.log.results import MessageIllegal
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import SCHEDULE_TOPIC
from failback.protocol.errors import ProtocolError
from failback.protocol.message import RETRY_PREFIX, MessageExt
from failback.protocol.route import TopicConfig


@dataclass(slots=True)
class Delivery:
    """Stores a message where it belongs, or puts it aside."""

    store: MessageStore
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    put_aside: PutAside

    def deliver(
        self,
        message: MessageExt,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str],
        *,
        transaction_type: int | None = None,
        prepared_transaction_offset: int = 0,
    ) -> bool:
        """Append the message to a queue of ``topic``; false if it had to be parked.

        A queue that the topic does not have any more is replaced by one that it has.

        Raises:
            StoreError: The store refuses all writes; the message stays in its queue.
        """
        offset = message.physical_offset
        config = self._topic(topic)
        if config is None:
            self.put_aside.keep(message, offset, "this broker has no such topic", topic)
            return False
        queues = max(config.read_queue_nums, config.write_queue_nums)
        if queue_id >= queues > 0 and topic != SCHEDULE_TOPIC:
            queue_id %= config.read_queue_nums or queues
        try:
            append_copy(
                self.store,
                message,
                topic=topic,
                queue_id=queue_id,
                properties=properties,
                reconsume_times=message.reconsume_times,
                transaction_type=transaction_type,
                prepared_transaction_offset=prepared_transaction_offset,
            )
        except MessageIllegal as error:
            self.put_aside.keep(message, offset, str(error), topic)
            return False
        return True

    def _topic(self, name: str) -> TopicConfig | None:
        """Return the topic; the retry topic of a group that is here is made again."""
        found = self.topics.get(name)
        if found is not None or not name.startswith(RETRY_PREFIX):
            return found
        group = self.groups.table.get(name.removeprefix(RETRY_PREFIX))
        if group is None or group.retry_queue_nums <= 0:
            return None
        try:
            return now(lambda: self.topics.retry_topic(group))
        except ProtocolError:  # it can have no such topic, or there is no room for one
            return None
