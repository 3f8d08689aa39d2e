"""Figures that need several surveys: rates, ages, offsets that went back. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from failback.analytics.exporter.survey import BrokerAnswers, Survey
from failback.analytics.live.facts import time_scale_of
from failback.analytics.live.rates import RateMeter
from failback.analytics.live.watch import PairWatch
from failback.client.admin.queue_offsets import RegressionWatch, Span, SyncWatch
from failback.protocol.metric_families import MAX_SERIES, OTHER
from failback.protocol.route import split_offset_key

_NO_ENDS: Final[Mapping[str, Mapping[int, int]]] = {}
FORGET_SECONDS: Final = 3600.0
"""For so long a broker that is in no list any more is shown as down, and a name keeps its line."""
Pair = tuple[str, str]
"""Cluster and broker name."""
Place = tuple[str, str]
"""Topic and group; the group is "" for the topic itself."""


@dataclass(slots=True)
class Life:
    """The names that a master had since it began: its disk may have been empty then."""

    boot_ms: int = 0
    names: Set[str] = frozenset()

    def gone(self, boot_ms: int, has: Set[str] | None) -> Set[str]:
        """Take what a master has; return the names that it had in this life, and has no more."""
        if has is None:
            return frozenset()
        self.names = has | self.names if boot_ms == self.boot_ms else has
        self.boot_ms = boot_ms
        return self.names - has


class Budget:
    """The topics and groups of a cluster that get lines of their own: the first ones.

    A place that is not asked for within :data:`FORGET_SECONDS` makes room for another one.
    """

    def __init__(self, most: int = MAX_SERIES) -> None:
        self._most = most
        self._kept: dict[tuple[str, str], dict[Place, float]] = {}
        """The time of the last request for each."""
        self._at = 0.0

    def look(self, at: float) -> None:
        """Take the time of a survey, in seconds, and forget names that are gone."""
        self._at = at
        for kept in self._kept.values():
            for place in [each for each, asked in kept.items() if at - asked > FORGET_SECONDS]:
                del kept[place]

    def place(self, kind: str, cluster: str, place: Place) -> Place:
        """Return the place itself, or ``other`` for both of its names that are not empty."""
        kept = self._kept.setdefault((kind, cluster), {})
        if place in kept or len(kept) < self._most:
            kept[place] = self._at
            return place
        topic, group = place
        return (OTHER if topic else "", OTHER if group else "")

    def has(self, kind: str, cluster: str, place: Place) -> bool:
        """Return whether a place has a line of its own."""
        return place in self._kept.get((kind, cluster), ())


@dataclass(slots=True)
class PairHistory:
    """Rates of a pair, and counts since the start of the exporter."""

    stored: RateMeter[str] = field(default_factory=RateMeter)
    """Topic to the sum of its ends."""
    committed: RateMeter[Place] = field(default_factory=RateMeter)
    consumed: dict[Place, int] = field(default_factory=dict)
    """Messages committed since the exporter began, repeats counted again."""
    watch: PairWatch = field(default_factory=PairWatch)
    groups: Life = field(default_factory=Life)
    """Groups that its master has or had settings of."""
    topics: Life = field(default_factory=Life)
    deleted: set[str] = field(default_factory=set)
    """Groups without a member, and without settings since its master began."""
    _read: Mapping[Place, int] = field(default_factory=dict)
    _member: int | None = None
    """The broker id of whose table the last sums are."""

    def look(
        self,
        at: float,
        stored: Mapping[str, int],
        committed: Mapping[Place, int],
        time_scale: float = 1.0,
        *,
        member: int,
        read: Mapping[Place, int],
    ) -> None:
        """Take the sums of a survey, of the member that acts for the pair.

        After a change of that member the rates begin again: a difference between two members
        is no message that was sent or consumed.
        ``read`` are those of :func:`committed_of` without what is beyond the ends.
        """
        if member != self._member and self._member is not None:
            self.stored = RateMeter(per_second=self.stored.per_second)
            self.committed = RateMeter(per_second=self.committed.per_second)
            self._read = {}
        self._member = member
        for place, offset in read.items():
            grown = offset - self._read.get(place, offset)
            if grown > 0:
                self.consumed[place] = self.consumed.get(place, 0) + grown
        self._read = read
        self.stored.look(at, stored, time_scale)
        self.committed.look(at, committed, time_scale)


class History:
    """The memory from survey to survey."""

    def __init__(self) -> None:
        self.budget = Budget()
        self.pairs: dict[Pair, PairHistory] = {}
        self.regressions: dict[tuple[str, str, str, str, str, str], list[int]] = {}
        """Labels of the regression metrics to times and messages."""
        self._watches: dict[tuple[str, str, int], RegressionWatch] = {}
        self._syncs: dict[tuple[str, str, int], SyncWatch] = {}
        self._seen: dict[tuple[str, str, int], tuple[float, BrokerAnswers]] = {}
        self._broadcasting: dict[str, set[str]] = {}

    def look(self, survey: Survey) -> None:
        """Take one survey; surveys come in the order of their times."""
        self.budget.look(survey.at)
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
                pair.look(
                    survey.at,
                    sums_of(broker.ends),
                    committed_of(broker),
                    scale,
                    member=broker.broker_id,
                    read=committed_of(broker, broker.ends),
                )
                self._note_models(broker)
                if broker.is_master:  # a new slave has no table yet
                    self._note_deleted(broker, pair)
        self._forget(survey.at)

    def _note_models(self, broker: BrokerAnswers) -> None:
        """Note the groups that broadcast. A group does so until its members say otherwise."""
        known = self._broadcasting.setdefault(broker.cluster, set())
        known.difference_update(broker.groups)
        known.update(broker.broadcasting)

    def _note_deleted(self, master: BrokerAnswers, pair: PairHistory) -> None:
        """Note deleted groups, and forget the regressions of deleted groups and topics."""
        if master.settings is not None:
            pair.deleted |= pair.groups.gone(master.boot_ms, master.settings)
            pair.deleted -= master.settings | master.groups.keys()
        topics_gone = pair.topics.gone(master.boot_ms, master.topics)
        for labels in list(self.regressions):
            cluster, broker, _, group, topic, _ = labels
            if (cluster, broker) == (master.cluster, master.broker) and (
                group in pair.deleted or topic in topics_gone
            ):
                del self.regressions[labels]

    def broadcasting(self, cluster: str) -> frozenset[str]:
        """Return the groups of a cluster whose members keep their own offsets."""
        return frozenset(self._broadcasting.get(cluster, ()))

    def deleted(self, pair: Pair) -> frozenset[str]:
        """Return the deleted groups of a pair. Its tables may still have their offsets."""
        return frozenset(self.pairs[pair].deleted if pair in self.pairs else ())

    def uncounted(self, pair: Pair) -> frozenset[str]:
        """Return the groups whose offsets on a pair are not what they have consumed.

        ``offsets_count`` in ``live/facts.py`` is the same rule for dashboard and commands.
        """
        return self.broadcasting(pair[0]) | self.deleted(pair)

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
        known = {(each.cluster, each.broker, each.node[1]) for _, each in self._seen.values()}
        for labels in list(self.regressions):
            if labels[:3] not in known:
                del self.regressions[labels]
        listed = {member[:2] for member in known}
        for pair in self.pairs.keys() - listed:
            del self.pairs[pair]

    def unlisted(self, survey: Survey) -> Sequence[BrokerAnswers]:
        """Return brokers of earlier surveys that no name server lists now."""
        listed = {self._key(each) for each in survey.brokers}
        return [broker for key, (_, broker) in self._seen.items() if key not in listed]

    def sync(self, broker: BrokerAnswers) -> SyncWatch | None:
        """Return the watch over a slave's copies."""
        return self._syncs.get(self._key(broker))

    def sync_age(self, broker: BrokerAnswers, at: float) -> float | None:
        """Return the seconds since a slave copied, where they are known."""
        watch = self.sync(broker)
        return None if watch is None else watch.age_seconds(at)

    @staticmethod
    def _key(broker: BrokerAnswers) -> tuple[str, str, int]:
        return broker.cluster, broker.broker, broker.broker_id


def sums_of(ends: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
    """Return by topic the sum of the ends of its queues."""
    return {topic: sum(queues.values()) for topic, queues in ends.items()}


def committed_of(
    broker: BrokerAnswers, all_ends: Mapping[str, Mapping[int, int]] = _NO_ENDS
) -> dict[Place, int]:
    """Return by topic and group the sum of the group's offsets.

    With ``all_ends`` each offset is cut to its queue's end: no message is beyond.
    """
    found = {}
    for key, queues in (broker.offsets or {}).items():
        topic, group = split_offset_key(key)
        ends = all_ends.get(topic, {})
        found[topic, group] = sum(
            max(0, min(offset, ends.get(queue_id, offset))) for queue_id, offset in queues.items()
        )
    return found


class Lags(NamedTuple):
    """Messages between the offsets of groups and the queues."""

    behind: dict[Place, dict[int, int]]
    """Queue id to the messages that are stored and not consumed."""
    expired: dict[Place, int]
    """Messages that were not consumed and are no longer stored, where there are any."""
    beyond: dict[Place, int]
    """By how much offsets are beyond the ends of queues, where they are."""


def lags_of(broker: BrokerAnswers, uncounted: Container[str] = ()) -> Lags:
    """Return the lags by a broker's table, without the groups in ``uncounted``."""
    found = Lags({}, {}, {})
    for key, queues in (broker.offsets or {}).items():
        topic, group = place = split_offset_key(key)
        ends = broker.ends.get(topic)
        if ends is None or group in uncounted:  # a topic that was deleted, or did not answer
            continue
        begins = broker.begins.get(topic, {})
        behind = found.behind[place] = {}
        for queue_id, offset in queues.items():
            end = ends.get(queue_id)
            if end is None:
                continue
            first = begins.get(queue_id, 0)
            if first <= offset <= end:  # nearly always
                behind[queue_id] = end - offset
                continue
            span = Span(first, end)
            behind[queue_id] = span.lag(offset)
            for sums, count in (
                (found.expired, span.expired(offset)),
                (found.beyond, span.beyond(offset)),
            ):
                if count:
                    sums[place] = sums.get(place, 0) + count
    return found
