"""Where a group stands on the queues of a topic, looked at in slices."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from failback.broker.config.identity import BrokerIdentity
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.metadata.topics import MOST_LISTED_QUEUES
from failback.broker.store.message_store import MessageStore
from failback.protocol.body import Body, MessageQueue
from failback.protocol.errors import ProtocolError
from failback.protocol.stats import OffsetWrapper

QUEUES_AT_ONCE: Final = 64
MOST_QUEUES: Final = 100_000
"""Of one answer: more would not fit into a frame of 16 MiB."""


class Walk:
    """The queues that one request makes the broker look at."""

    def __init__(self) -> None:
        self._walked = 0

    async def step(self) -> None:
        """Count a queue; between slices of them, other requests are answered.

        Raises:
            ProtocolError: They are more than an answer holds.
        """
        self._walked += 1
        if self._walked > MOST_QUEUES:
            raise ProtocolError(
                f"the answer would tell of more than {MOST_QUEUES} queues: ask for one group and"
                " one topic"
            )
        if self._walked % QUEUES_AT_ONCE == 0:
            await asyncio.sleep(0)

    async def written(self, body: Body) -> bytes:
        """Write the answer, a long one beside the loop."""
        if self._walked < QUEUES_AT_ONCE:
            return body.to_json()
        return await asyncio.to_thread(body.to_json)


@dataclass(slots=True)
class GroupProgress:
    """Compares committed offsets with the ends of the queues."""

    identity: BrokerIdentity
    store: MessageStore
    offsets: ConsumerOffsetManager

    async def of(
        self, group: str, topic: str, queues: int, walk: Walk
    ) -> dict[MessageQueue, OffsetWrapper]:
        """Return both offsets of queues 0 to ``queues`` - 1, and how old the consumed end is.

        Raises:
            ProtocolError: As :meth:`Walk.step`.
        """
        table = {}
        for queue_id in range(min(queues, MOST_LISTED_QUEUES)):
            await walk.step()
            broker_offset = max(0, self.store.max_queue_offset(topic, queue_id))
            consumer_offset = max(0, self.offsets.query(group, topic, queue_id))
            last = 0
            if consumer_offset > 0:
                last = max(0, self.store.store_time_of(topic, queue_id, consumer_offset - 1))
            queue = MessageQueue(topic, self.identity.broker_name, queue_id)
            table[queue] = OffsetWrapper(broker_offset, consumer_offset, last)
        return table
