"""The members of a slave's own groups, as its keeper asks them while the master is down.

``failbackGuardAskMembers``: clients of Go commit to no broker then, and a member of any client that
is killed has committed only what is up to 5 s old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from failback.broker.clients.client_calls import ClientCalls
from failback.broker.clients.client_manager import ConsumerManager
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.broker.remoting.connection import BrokerConnection
from failback.carry.keeper import ANSWER_SECONDS
from failback.carry.keeping import Order
from failback.carry.merge import Table
from failback.protocol import calls
from failback.protocol.body import MessageQueue
from failback.protocol.codes import ResponseCode
from failback.protocol.errors import BrokerError
from failback.protocol.stats import ProcessQueueInfo


@dataclass(frozen=True, slots=True)
class OwnMembers:
    """The slave of a keeper that is this broker itself."""

    broker_name: str
    consumers: ConsumerManager[BrokerConnection]
    calls: ClientCalls
    offsets: ConsumerOffsetManager
    scaled: Callable[[float], float]

    async def table(self) -> Table:
        return {key: dict(queues) for key, queues in self.offsets.table.items()}

    async def members(self, group: str) -> Sequence[str]:
        found = self.consumers.groups.get(group)
        if found is None or found.message_model == "BROADCASTING":
            return ()
        return found.client_ids()

    async def held(self, group: str, client: str) -> Mapping[MessageQueue, ProcessQueueInfo]:
        member = self.consumers.find(group, client)
        if member is None:
            raise BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"{client} has left", client)
        call = calls.held_queues(group, client)
        seconds = self.scaled(ANSWER_SECONDS)
        return call.result(
            await self.calls.call(member.connection, call.request(), seconds), client
        )

    async def tell(self, order: Order) -> bool:
        place = order.group, order.topic, order.queue_id
        if self.offsets.query(*place) >= order.offset:
            return False  # the member told it itself meanwhile
        self.offsets.commit(*place, order.offset)
        return True
