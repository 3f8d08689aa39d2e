"""Which offsets of its members a slave is to be told while its master is down. Pure.

A member of Apache's Go client commits to no broker then, and one of any client that is killed has
committed only what is up to 5 s old. An offset is told as the member itself would commit it: it is
larger than the slave's, and the member holds the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from failback.carry.merge import Table
from failback.protocol.body import MessageQueue
from failback.protocol.stats import ProcessQueueInfo


class Order(NamedTuple):
    """An offset to tell the slave."""

    group: str
    topic: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.group} queue {self.queue_id}"


_Place = tuple[str, str, int]
"""Group, topic and queue id."""


class Keeping:
    """What members said since the master went."""

    def __init__(self, broker_name: str) -> None:
        self._broker_name = broker_name
        self._said: dict[str, dict[_Place, int]] = {}
        """Client id to the offsets of the queues that it holds."""
        self._fell: dict[_Place, str] = {}
        """Queues whose holder has said less than before: a reset reached it."""

    def present(self, group: str, clients: Collection[str]) -> None:
        """Take the members of a group; what those that left have said counts no more."""
        for client in self._said.keys() - set(clients):
            self._take(client, group, {})

    def orders(
        self,
        group: str,
        client: str,
        held: Mapping[MessageQueue, ProcessQueueInfo],
        table: Table,
    ) -> tuple[list[Order], list[Order]]:
        """Take what a member holds; return what the slave is to be told, and what fell.

        Of a queue whose offset fell nothing is told until its holder says more than the slave has.

        Args:
            group: Of the member.
            client: Its client id.
            held: Its queues of all brokers, as 307 has them.
            table: The slave's offsets, ``topic@group`` to queue id to offset.
        """
        offsets = {
            (group, queue.topic, queue.queue_id): info.commit_offset
            for queue, info in held.items()
            if queue.broker_name == self._broker_name
            and not info.droped
            and info.commit_offset >= 0
        }
        before = self._take(client, group, offsets)
        fell, found = [], []
        for place, offset in offsets.items():
            _, topic, queue_id = place
            if offset < before.get(place, offset):
                self._fell[place] = client
                fell.append(Order(*place, offset))
            if offset <= table.get(f"{topic}@{group}", {}).get(queue_id, -1):
                continue
            if self._fell.get(place) == client:
                del self._fell[place]
            if place not in self._fell:
                found.append(Order(*place, offset))
        return found, fell

    def _take(self, client: str, group: str, offsets: dict[_Place, int]) -> dict[_Place, int]:
        """Keep a member's offsets of a group and return those of before."""
        all_before = self._said.get(client, {})
        before = {place: at for place, at in all_before.items() if place[0] == group}
        others = {place: at for place, at in all_before.items() if place[0] != group}
        self._said[client] = others | offsets
        for place in before.keys() - offsets.keys():
            if self._fell.get(place) == client:  # another member takes the queue from here
                del self._fell[place]
        return before
