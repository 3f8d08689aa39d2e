"""What only several surveys together tell: rates, ages, what went back. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from failback.analytics.exporter.survey import BrokerAnswers, Survey
from failback.analytics.live.facts import time_scale_of
from failback.analytics.live.rates import RateMeter
from failback.client.admin.offset_watch import RegressionWatch, SyncWatch
from failback.client.admin.queue_span import Span
from failback.protocol.metric_families import MAX_SERIES, OTHER
from failback.protocol.route import split_offset_key

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


@dataclass(slots=True)
class PairHistory:
    """Rates of a pair, and what was counted since the start."""

    stored: RateMeter[str] = field(default_factory=RateMeter)
    """Topic to the sum of its ends."""
    committed: RateMeter[Place] = field(default_factory=RateMeter)
    consumed: dict[Place, int] = field(default_factory=dict)
    """Messages committed since the exporter began, repeats counted again."""

    def look(
        self,
        at: float,
        stored: Mapping[str, int],
        committed: Mapping[Place, int],
        time_scale: float = 1.0,
    ) -> None:
        """Take the sums of a survey."""
        before = self.committed.last
        if before is not None:
            for place, offset in committed.items():
                grown = offset - before.of.get(place, offset)
                if grown > 0:
                    self.consumed[place] = self.consumed.get(place, 0) + grown
        self.stored.look(at, stored, time_scale)
        self.committed.look(at, committed, time_scale)


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
        self._broadcasting: dict[str, set[str]] = {}
        self._settings: dict[Pair, set[str]] = {}
        self._deleted: dict[Pair, set[str]] = {}

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
                scale = time_scale_of(broker.config)
                pair.look(survey.at, sums_of(broker.ends), committed_of(broker), scale)
                self._note_models(broker)
                self._note_deleted(broker)
        self._forget(survey.at)

    def _note_models(self, broker: BrokerAnswers) -> None:
        """A group that broadcast does so until members of it say something else."""
        known = self._broadcasting.setdefault(broker.cluster, set())
        known.difference_update(broker.groups)
        known.update(broker.broadcasting)

    def _note_deleted(self, broker: BrokerAnswers) -> None:
        """A group is deleted that had settings and has none, nor any member."""
        if broker.settings is None:
            return
        pair = broker.cluster, broker.broker
        known = self._settings.setdefault(pair, set())
        known |= broker.settings
        self._deleted[pair] = known - broker.settings - broker.groups.keys()
        for labels in list(self.regressions):
            if labels[:2] == pair and labels[3] in self._deleted[pair]:
                del self.regressions[labels]

    def broadcasting(self, cluster: str) -> frozenset[str]:
        """Groups of a cluster whose members keep their own offsets, as far as is known."""
        return frozenset(self._broadcasting.get(cluster, ()))

    def deleted(self, pair: Pair) -> frozenset[str]:
        """Groups that a pair had; its tables may still have offsets of them."""
        return frozenset(self._deleted.get(pair, ()))

    def stands(self, pair: Pair, group: str) -> bool:
        """Whether a pair's offsets of a group stand for what it has consumed."""
        is_broadcasting = group in self._broadcasting.get(pair[0], ())
        return not is_broadcasting and group not in self._deleted.get(pair, ())

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

    def sync_ages(
        self, brokers: Iterable[BrokerAnswers], at: float
    ) -> dict[tuple[str, int], float]:
        """Broker name and id of slaves to the seconds since they copied, as far as looks show."""
        ages = {
            (each.broker, each.broker_id): watch.age_seconds(at)
            for each in brokers
            if (watch := self.sync(each)) is not None
        }
        return {slave: age for slave, age in ages.items() if age is not None}

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


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group stands on a queue, in messages."""

    lag: int
    """What is stored and not consumed."""
    expired: int
    """What was not consumed and is no longer stored."""
    beyond: int
    """How far the offset lies behind the queue's end."""


def standings_of(broker: BrokerAnswers) -> dict[Place, dict[int, Standing]]:
    """(topic, group) to queue id to where the group stands; only of queues that are there."""
    found = {}
    for key, queues in (broker.offsets or {}).items():
        topic, group = split_offset_key(key)
        ends, begins = broker.ends.get(topic, {}), broker.begins.get(topic, {})
        found[topic, group] = {
            queue_id: _standing(Span(begins.get(queue_id, 0), ends[queue_id]), offset)
            for queue_id, offset in queues.items()
            if queue_id in ends
        }
    return found


def _standing(span: Span, offset: int) -> Standing:
    return Standing(span.lag(offset), span.expired(offset), span.beyond(offset))
