"""Where a group stands on the queues of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import MOST_LISTED_QUEUES
from failback.broker.store.message_store import MessageStore
from failback.protocol.body import MessageQueue
from failback.protocol.stats import OffsetWrapper


@dataclass(slots=True)
class GroupProgress:
    """Compares committed offsets with the ends of the queues."""

    identity: BrokerIdentity
    store: MessageStore
    offsets: ConsumerOffsetManager

    def of(self, group: str, topic: str, queues: int) -> dict[MessageQueue, OffsetWrapper]:
        """Return both offsets of queues 0 to ``queues`` - 1, and how old the consumed end is."""
        table = {}
        for queue_id in range(min(queues, MOST_LISTED_QUEUES)):
            broker_offset = max(0, self.store.max_queue_offset(topic, queue_id))
            consumer_offset = max(0, self.offsets.query(group, topic, queue_id))
            last = 0
            if consumer_offset > 0:
                last = max(0, self.store.store_time_of(topic, queue_id, consumer_offset - 1))
            queue = MessageQueue(topic, self.identity.broker_name, queue_id)
            table[queue] = OffsetWrapper(broker_offset, consumer_offset, last)
        return table
