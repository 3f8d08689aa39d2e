"""Which consumer offsets of a slave are kept for its master's return, and which fell. Pure.

While a master is down its slaves copy nothing: an offset that falls was reset there, and is marked.
A slave that was restarted has a file of some seconds earlier, so what it said before stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from failback.analytics.observe.events import Outage
from failback.analytics.observe.looks import BrokerLook, Look, Offsets, Place

Kept = dict[str, dict[int, int]]
"""``topic@group`` to queue id to the next offset."""
_Queue = tuple[str, int]
"""``topic@group`` and queue id."""


@dataclass(slots=True)
class KeptTable:
    """The offsets of one slave."""

    address: str
    offsets: Kept = field(default_factory=dict)
    """As the slave said them last."""
    fell: dict[_Queue, int] = field(default_factory=dict)
    """Queues with less than the slave had at an earlier look of this outage: what it had."""
    answers: bool = True
    """Whether it answered the last look."""
    last: Offsets = field(default_factory=dict)
    """Its last answer."""
    boot_ms: int | None = None

    def take(self, broker: BrokerLook, *, is_away: bool) -> None:
        """Take an answer: whole with a master, which it copies, and offset by offset without."""
        is_same = broker.boot_ms is not None and broker.boot_ms == self.boot_ms
        before = self.last if is_same else {}
        self.last, self.boot_ms = broker.offsets or {}, broker.boot_ms
        if not is_away:
            self.offsets, self.fell = {**self.last}, {}  # type: ignore[dict-item]
            return
        for key, queues in self.last.items():
            if queues == before.get(key):
                continue
            self.offsets[key] = kept = dict(self.offsets.get(key, {}))
            for queue, offset in queues.items():
                place = key, queue
                if 0 <= offset < before.get(key, {}).get(queue, offset):
                    self.fell.setdefault(place, kept[queue])
                if offset >= kept.get(queue, offset) or place in self.fell:
                    kept[queue] = offset
                if offset >= self.fell.get(place, offset + 1):
                    del self.fell[place]


class KeptTables:
    """The tables of slaves, in looks that come in their order.

    Attributes:
        away: Pairs without their master, and when it was missed first.
        back: Pairs whose master returned in the last look; their tables are of the look before.
    """

    def __init__(self) -> None:
        self._tables: dict[Place, KeptTable] = {}
        self._said: dict[str, dict[_Queue, dict[str, int]]] = {}
        """By pair and queue what each member would commit, since the master went."""
        self._outages: dict[str, Outage] = {}
        self.away: dict[str, float] = {}
        self.back: set[str] = set()

    def look(self, look: Look, outages: Mapping[str, Outage]) -> None:
        """Take a look. ``outages``: by pair the last one, with what this look shows."""
        new = {pair for pair, each in outages.items() if each != self._outages.get(pair)}
        self._outages = dict(outages)
        self.back = {pair for pair in new if outages[pair].back is not None}
        self.away = {pair: each.gone[1] for pair, each in outages.items() if each.back is None}
        self._said |= {pair: {} for pair in new - self.back}
        for broker in look.brokers:
            if broker.broker_id != 0:
                kept = self._tables.setdefault(broker.place, KeptTable(broker.addr))
                kept.address, kept.answers = broker.addr, broker.offsets is not None
                if kept.answers and not (broker.pair in self.back and kept.last):
                    kept.take(broker, is_away=broker.pair in self.away)
        for client in look.clients:
            for name, topics in client.queues.items():
                pair = f"{client.cluster}/{name}"
                if client.at < self.away.get(pair, float("inf")):
                    continue
                for topic, queues in topics.items():
                    for queue, held in queues.items():
                        told = self._said[pair].setdefault((f"{topic}@{client.group}", queue), {})
                        if held.committed < told.get(client.client, held.committed):
                            told.clear()  # a reset reached it
                        told[client.client] = held.committed

    def of(self, pair: str) -> list[tuple[KeptTable, Kept]]:
        """Return the tables of a pair's slaves, each with its offsets raised to what members said.

        Groups and topics that a slave does not have are not added to its table.
        """
        found = []
        for place, kept in self._tables.items():
            if place.pair == pair and kept.offsets:
                raised = dict(kept.offsets)
                for (key, queue), told in self._said.get(pair, {}).items():
                    if key in raised and max(told.values()) > raised[key].get(queue, -1):
                        raised[key] = {**raised[key], queue: max(told.values())}
                found.append((kept, raised))
        return found
