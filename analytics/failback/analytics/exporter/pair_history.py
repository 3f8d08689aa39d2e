"""What only several surveys together tell: rates, ages, what went back. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from failback.analytics.exporter.survey import BrokerAnswers, Survey
from failback.client.admin.offset_watch import RegressionWatch, SyncWatch
from failback.protocol.metric_families import MAX_SERIES, OTHER
from failback.protocol.route import split_offset_key

RATE_SECONDS: Final = 10.0
"""Two of the intervals at which consumers commit."""
FORGET_SECONDS: Final = 3600.0
"""For so long a broker that no name server lists any more is shown as down."""
Pair = tuple[str, str]
"""Cluster and broker name."""
Place = tuple[str, str]
"""Topic and group; a group of "" stands for the topic itself."""


class Budget:
    """Which topics and groups of a cluster get lines of their own: the first that came."""

    def __init__(self, most: int = MAX_SERIES) -> None:
        self._most = most
        self._kept: dict[tuple[str, str], set[Place]] = {}

    def place(self, kind: str, cluster: str, place: Place) -> Place:
        """Return the place itself, or ``other`` for both of its names that are not empty."""
        kept = self._kept.setdefault((kind, cluster), set())
        if place in kept:
            return place
        if len(kept) < self._most:
            kept.add(place)
            return place
        topic, group = place
        return (OTHER if topic else "", OTHER if group else "")

    def has(self, kind: str, cluster: str, place: Place) -> bool:
        """Tell whether a place has a line of its own."""
        return place in self._kept.get((kind, cluster), ())


@dataclass(frozen=True, slots=True)
class Positions:
    """Sums of a pair at one survey."""

    at: float
    stored: Mapping[str, int]
    """Topic to the sum of its ends."""
    committed: Mapping[Place, int]


@dataclass(slots=True)
class PairHistory:
    """Positions of a pair at its last surveys, and what was counted since the start.

    Rates are over :data:`RATE_SECONDS` where surveys are more frequent: consumers commit every
    five seconds, so between two surveys within one there is nothing, or far too much.
    """

    last: Positions | None = None
    stored_per_second: dict[str, float] = field(default_factory=dict)
    committed_per_second: dict[Place, float] = field(default_factory=dict)
    consumed: dict[Place, int] = field(default_factory=dict)
    """Messages committed since the exporter began, repeats counted again."""
    _kept: deque[Positions] = field(default_factory=deque)

    def look(self, at: float, stored: Mapping[str, int], committed: Mapping[Place, int]) -> None:
        """Take the sums of a survey."""
        now = Positions(at, stored, committed)
        before = self.last
        if before is not None:
            for place, offset in committed.items():
                grown = offset - before.committed.get(place, offset)
                if grown > 0:
                    self.consumed[place] = self.consumed.get(place, 0) + grown
        while len(self._kept) > 1 and at - self._kept[1].at >= RATE_SECONDS:
            self._kept.popleft()
        if self._kept and at > self._kept[0].at:
            self._rate(self._kept[0], now)
        if not self._kept or at - self._kept[-1].at >= RATE_SECONDS / 2:
            self._kept.append(now)
        self.last = now

    def _rate(self, past: Positions, now: Positions) -> None:
        elapsed = now.at - past.at
        self.stored_per_second = {
            topic: max(0, end - past.stored.get(topic, end)) / elapsed
            for topic, end in now.stored.items()
        }
        self.committed_per_second = {
            place: max(0, offset - past.committed.get(place, offset)) / elapsed
            for place, offset in now.committed.items()
        }


class History:
    """Everything that is remembered from survey to survey."""

    def __init__(self) -> None:
        self.budget = Budget()
        self.pairs: dict[Pair, PairHistory] = {}
        self.regressions: dict[tuple[str, str, str, str, str, str], list[int]] = {}
        """Labels of the regression metrics to times and messages."""
        self._watches: dict[tuple[str, str, int], RegressionWatch] = {}
        self._syncs: dict[tuple[str, str, int], SyncWatch] = {}
        self._seen: dict[tuple[str, str, int], tuple[float, BrokerAnswers]] = {}

    def look(self, survey: Survey) -> None:
        """Take one survey; surveys come in the order of their times."""
        masters = {(each.cluster, each.broker): each for each in survey.brokers if each.is_master}
        for broker in survey.brokers:
            self._seen[self._key(broker)] = (survey.at, broker)
            if broker.offsets is not None:
                self._note_regressions(broker)
            if not broker.is_master:
                master = masters.get((broker.cluster, broker.broker))
                watch = self._syncs.setdefault(self._key(broker), SyncWatch())
                watch.look(master.offsets if master else None, broker.offsets, survey.at)
            if broker.ends:
                pair = self.pairs.setdefault((broker.cluster, broker.broker), PairHistory())
                pair.look(survey.at, sums_of(broker.ends), committed_of(broker))
        self._forget(survey.at)

    def _note_regressions(self, broker: BrokerAnswers) -> None:
        watch = self._watches.setdefault(
            self._key(broker), RegressionWatch(is_slave=not broker.is_master)
        )
        for each in watch.look(broker.offsets or {}, broker.boot_ms):
            topic, group = self.budget.place("regression", broker.cluster, (each.topic, each.group))
            labels = (broker.cluster, broker.broker, broker.node[1], group, topic, each.source)
            count = self.regressions.setdefault(labels, [0, 0])
            count[0] += each.queues
            count[1] += each.messages

    def _forget(self, at: float) -> None:
        for key, (seen, _) in list(self._seen.items()):
            if at - seen > FORGET_SECONDS:
                del self._seen[key]
                self._watches.pop(key, None)
                self._syncs.pop(key, None)

    def unlisted(self, survey: Survey) -> Sequence[BrokerAnswers]:
        """Brokers of earlier surveys that no name server lists now."""
        listed = {self._key(each) for each in survey.brokers}
        return [broker for key, (_, broker) in self._seen.items() if key not in listed]

    def sync(self, broker: BrokerAnswers) -> SyncWatch | None:
        """What is known of a slave's copies."""
        return self._syncs.get(self._key(broker))

    @staticmethod
    def _key(broker: BrokerAnswers) -> tuple[str, str, int]:
        return broker.cluster, broker.broker, broker.broker_id


def sums_of(ends: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
    """Topic to the sum of the ends of its queues."""
    return {topic: sum(queues.values()) for topic, queues in ends.items()}


def committed_of(broker: BrokerAnswers) -> dict[Place, int]:
    """(topic, group) to the sum of the group's offsets."""
    found = {}
    for key, queues in (broker.offsets or {}).items():
        topic, group = split_offset_key(key)
        found[topic, group] = sum(max(0, offset) for offset in queues.values())
    return found


def lags_of(broker: BrokerAnswers) -> dict[Place, dict[int, int]]:
    """(topic, group) to queue id to messages behind the committed offset."""
    found = {}
    for key, queues in (broker.offsets or {}).items():
        topic, group = split_offset_key(key)
        ends = broker.ends.get(topic, {})
        found[topic, group] = {
            queue_id: max(0, ends[queue_id] - max(0, offset))
            for queue_id, offset in queues.items()
            if queue_id in ends
        }
    return found
