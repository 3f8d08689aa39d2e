"""Where a group stands on the queues of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.topics import MOST_LISTED_QUEUES
from failback.protocol.body import MessageQueue
from failback.protocol.stats import OffsetWrapper

if TYPE_CHECKING:
    from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
    from failback.broker.store.message_store import MessageStore


class GroupProgress:
    """Compares committed offsets with the ends of the queues."""

    def __init__(
        self, identity: BrokerIdentity, store: MessageStore, offsets: ConsumerOffsetManager
    ) -> None:
        self._identity = identity
        self._store = store
        self._offsets = offsets

    def of(self, group: str, topic: str, queues: int) -> dict[MessageQueue, OffsetWrapper]:
        """Return both offsets of queues 0 to ``queues`` - 1, and how old the consumed end is."""
        table = {}
        for queue_id in range(min(queues, MOST_LISTED_QUEUES)):
            broker_offset = max(0, self._store.max_queue_offset(topic, queue_id))
            consumer_offset = max(0, self._offsets.query(group, topic, queue_id))
            last = 0
            if consumer_offset > 0:
                last = max(0, self._store.store_time_of(topic, queue_id, consumer_offset - 1))
            queue = MessageQueue(topic, self._identity.broker_name, queue_id)
            table[queue] = OffsetWrapper(broker_offset, consumer_offset, last)
        return table
