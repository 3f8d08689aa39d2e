"""What happened between looks: masters that went and came back, offsets that fell. Pure.

Every event has an interval of time: from the last look that does not show it to the first that
does. A time in which the observer saw nothing is a gap, and no event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from failback.analytics.live.facts import is_canary, is_system
from failback.analytics.observe.looks import (
    ANSWERED,
    REFUSED,
    SILENT,
    BrokerLook,
    Look,
    Offsets,
    Place,
)
from failback.analytics.observe.members import MemberWatch
from failback.protocol.route import split_offset_key

MASTER_GONE: Final = "MasterGone"
MASTER_BACK: Final = "MasterBack"
SLAVE_SERVES: Final = "SlaveServes"
OFFSETS_WENT_BACK: Final = "OffsetsWentBack"
SLAVE_OVERWRITTEN: Final = "SlaveOverwritten"
MEMBERS_CHANGED: Final = "MembersChanged"
ROLE_CHANGED: Final = "RoleChanged"
NAME_SERVERS_DIFFER: Final = "NameServersDiffer"
RESET: Final = "Reset"
OFFSETS_SET: Final = "OffsetsSet"
RESTARTED: Final = "the restart of the master"
_PERIODS_OF_A_GAP: Final = 3.5
_DIFFER_LOOKS: Final = 3
"""Name servers learn of a change one after another: so many looks in a row must differ."""


class Event(NamedTuple):
    """Something that looks show. Times are seconds after run zero."""

    kind: str
    broker: str | None
    """Broker name."""
    member: str | None
    """Client id."""
    since: float
    until: float
    detail: str


class Gap(NamedTuple):
    """A time in which the observer, or one broker, was silent."""

    since: float
    until: float
    what: str


@dataclass(slots=True)
class _Broker:
    """One broker in the looks so far."""

    last_answer: float | None = None
    boot_ms: int | None = None
    offsets: Offsets | None = None
    offsets_at: float = 0.0
    first_miss: float | None = None
    """The end of the first look since its last answer that got none."""
    last_miss: float | None = None
    """The begin of the last look that no connection could be made in.

    A broker that takes connections and is slow for the observer may have answered clients.
    """
    is_gone: bool = False
    is_silent: bool = False
    """Whether the last look got no answer that can be read."""
    is_slow: bool = False
    """Whether it is silent and took a connection all the same."""


@dataclass(slots=True)
class _Moves:
    """Offsets of one group on one topic that fell, or rose, in looks which follow each other."""

    since: float
    until: float
    queues: dict[int, tuple[int, int]] = field(default_factory=dict)
    """From where to where."""

    def add(self, moved: Mapping[int, tuple[int, int]], until: float) -> None:
        self.until = until
        for queue, (old, new) in moved.items():
            self.queues[queue] = (self.queues.get(queue, (old, 0))[0], new)


@dataclass(frozen=True, slots=True)
class Outage:
    """A master's absence. The end is open while it lasts."""

    pair: str
    gone: tuple[float, float]
    back: tuple[float, float] | None = None


class Finder:
    """Finds events in looks that come in their order.

    Attributes:
        events: All, in the order in which they were found.
        gaps: Times in which something was not seen, and is again.
        outages: By pair the last one.
        members: The members of groups.
        offsets_set: Place and key to the queues whose offsets have risen, of groups that had no
            member before the rise, and have none in the last look, which is after it.
        rises: Place and key of offsets that rose, until the group is asked for members: a new one
            may have read from where they were, or from where they were set to.
        rises_unclear: Of rises of which the last look shows a member: by queue from where to where.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.gaps: list[Gap] = []
        self.outages: dict[str, Outage] = {}
        self._brokers: dict[Place, _Broker] = {}
        self._addresses: dict[str, Place] = {}
        self._falls: dict[tuple[Place, str], _Moves] = {}
        self._serving: set[str] = set()
        self._without_master: dict[str, float] = {}
        """By pair when no route had its master any more."""
        self._differing = 0
        self._ended: float | None = None
        self.members = MemberWatch()
        self.offsets_set: dict[tuple[Place, str], frozenset[int]] = {}
        self.rises: dict[tuple[Place, str], _Moves] = {}
        self.rises_unclear: dict[tuple[Place, str], dict[int, tuple[int, int]]] = {}

    def look(self, look: Look) -> list[Event]:
        """Take one look; return the events that it shows and the ones before did not."""
        known = len(self.events)
        seen = self._ended if look.seen_until is None else look.seen_until
        if seen is not None and look.began - seen > _PERIODS_OF_A_GAP * look.every:
            self.gaps.append(Gap(seen, look.began, "the observer did not look"))
        since = look.began if self._ended is None else self._ended
        self.offsets_set.clear()
        self.rises_unclear.clear()
        self._routes(look, since)
        for broker in look.brokers:
            self._broker(broker)
        self._settle_falls(look)
        self.events += [
            Event(MEMBERS_CHANGED, None, each.client, each.since, each.until, each.detail)
            for each in self.members.look(look)
            if not is_canary(each.group)
        ]
        self._settle_rises()
        self._ended = look.ended
        return self.events[known:]

    def open_gaps(self) -> list[Gap]:
        """Return gaps that last at the last look."""
        ended = self._ended or 0.0
        if self._ended is not None and not self._brokers:
            return [Gap(0.0, ended, "no name server listed a broker")]
        return [
            Gap(known.last_answer or 0.0, ended, f"{place.text} did not answer")
            for place, known in self._brokers.items()
            if known.is_silent
        ]

    def unread(self) -> list[Outage]:
        """Return outages that may be over: the master takes connections, and was not read."""
        return [
            each
            for pair, each in self.outages.items()
            if each.back is None and self._brokers[Place(pair, 0)].is_slow
        ]

    def boot_of(self, place: Place) -> int | None:
        """Return when the process began that answered last, in ms after 1970."""
        known = self._brokers.get(place)
        return None if known is None else known.boot_ms

    def _routes(self, look: Look, since: float) -> None:
        listings = [each for each in look.listings.values() if each is not None]
        differ = any(each != listings[0] for each in listings[1:])
        self._differing = self._differing + 1 if differ else 0
        if self._differing == _DIFFER_LOOKS:
            told = ", ".join(sorted(look.listings))
            self._add(NAME_SERVERS_DIFFER, None, since, look.ended, f"{told} list other brokers")
        listed = look.listed()
        if listings:
            for pair in {place.pair for place in (*listed, *self._brokers)}:
                if Place(pair, 0) in listed:
                    self._without_master.pop(pair, None)
                else:
                    self._without_master.setdefault(pair, look.ended)
        for place, address in listed.items():
            before = self._addresses.get(address)
            self._addresses[address] = place
            if before is None or before == place or before.pair != place.pair:
                continue
            what = f"{address} was broker id {before.broker_id} and is {place.broker_id}"
            self._add(ROLE_CHANGED, place, since, look.ended, what)

    def _broker(self, broker: BrokerLook) -> None:
        known = self._brokers.setdefault(broker.place, _Broker())
        known.is_silent = broker.state == SILENT
        known.is_slow = known.is_silent and not broker.is_unreachable
        if broker.state != ANSWERED:
            self._missed(broker, known)
            return
        if broker.boot_ms is None:  # a young process has no figures, but another one was gone
            is_new_life = known.is_gone
        else:
            is_new_life = known.boot_ms not in (None, broker.boot_ms)
        if is_new_life:
            known.boot_ms = None
            self._back(broker, known)
        elif known.first_miss is not None and known.last_answer is not None:
            self.gaps.append(
                Gap(known.last_answer, broker.until, f"{broker.place.text} did not answer")
            )
            self._still_there(broker.place)
        known.last_answer, known.first_miss, known.last_miss = broker.until, None, None
        known.is_gone = False
        if broker.boot_ms is not None:
            known.boot_ms = broker.boot_ms
        if broker.offsets is not None:
            self._offsets(broker, known, is_new_life=is_new_life)
            known.offsets, known.offsets_at = broker.offsets, broker.until

    def _missed(self, broker: BrokerLook, known: _Broker) -> None:
        if known.first_miss is None:
            known.first_miss = broker.until
        if broker.state == REFUSED or broker.is_unreachable:
            known.last_miss = broker.asked
        if broker.state == REFUSED and not known.is_gone and known.last_answer is not None:
            known.is_gone = True
            if broker.broker_id == 0:
                self._gone(broker.place, known.last_answer, known.first_miss, broker.addr)

    def _gone(self, place: Place, since: float, until: float, address: str) -> None:
        self.outages[place.pair] = Outage(place.pair, (since, until))
        self._serving.discard(place.pair)
        self._add(MASTER_GONE, place, since, until, f"{address} answers no more")

    def _still_there(self, place: Place) -> None:
        """Take back an outage: the process that seemed to be gone has answered."""
        outage = self.outages.get(place.pair)
        if place.broker_id == 0 and outage is not None and outage.back is None:
            del self.outages[place.pair]

    def _back(self, broker: BrokerLook, known: _Broker) -> None:
        """End an outage: another process answers at a broker's place."""
        last = known.last_answer if known.last_answer is not None else broker.asked
        missed = known.first_miss if known.first_miss is not None else broker.until
        if broker.broker_id != 0:
            return
        if not known.is_gone:
            self._gone(broker.place, last, missed, broker.addr)
        outage = self.outages[broker.pair]
        back = (last if known.last_miss is None else known.last_miss, broker.until)
        self.outages[broker.pair] = Outage(broker.pair, outage.gone, back)
        self._add(MASTER_BACK, broker.place, *back, f"{broker.addr} answers, restarted")

    def _offsets(self, broker: BrokerLook, known: _Broker, *, is_new_life: bool) -> None:
        if known.offsets is None or broker.offsets is None:
            return
        lowered: dict[str, dict[int, tuple[int, int]]] = {}
        raised = False
        for key, queues in known.offsets.items():
            now = broker.offsets.get(key)
            if now is None or now == queues or is_system(split_offset_key(key)[1]):
                continue
            # A client of Node commits -1 for an offset that it does not know: that is no position.
            fell = {
                queue: (old, now.get(queue, 0))
                for queue, old in queues.items()
                if 0 <= now.get(queue, 0) < old
            }
            rose = {
                queue: (old, now[queue]) for queue, old in queues.items() if now.get(queue, 0) > old
            }
            raised |= bool(rose)
            if rose and not is_new_life:
                self._rose(broker, key, rose, known.offsets_at)
            if fell and not is_canary(split_offset_key(key)[1]):
                lowered[key] = fell
        if broker.broker_id != 0:
            self._slave(broker, known.offsets_at, lowered, raised=raised)
            return
        for key, fell in lowered.items():
            if is_new_life:
                self._went_back(broker.place, key, fell, known.offsets_at, broker.until, RESTARTED)
                continue
            begun = _Moves(known.offsets_at, broker.until)
            self._falls.setdefault((broker.place, key), begun).add(fell, broker.until)

    def _rose(
        self, broker: BrokerLook, key: str, rose: Mapping[int, tuple[int, int]], since: float
    ) -> None:
        """Note offsets that rose while their group was not seen to have a member.

        A slave whose master is there copies what was set at the master.
        """
        group = split_offset_key(key)[1]
        empty_since = self.members.empty_since.get(group)
        is_alone = broker.broker_id != 0 and broker.pair in self._without_master
        if (
            empty_since is None
            or empty_since >= since
            or is_canary(group)
            or not (broker.broker_id == 0 or is_alone)
        ):
            return
        begun = _Moves(since, broker.until)
        self.rises.setdefault((broker.place, key), begun).add(rose, broker.until)

    def _settle_rises(self) -> None:
        """Make events of offsets that rose, once their group was asked for members after that.

        Members are asked seldom: one may have joined, read and committed before it is listed.
        """
        for (place, key), rise in list(self.rises.items()):
            topic, group = split_offset_key(key)
            if self.members.asked.get(group, -1.0) <= rise.until:
                continue
            del self.rises[place, key]
            if group not in self.members.empty_since:
                self.rises_unclear[place, key] = rise.queues
            else:
                self.offsets_set[place, key] = frozenset(rise.queues)
                what = f"{group} on {topic}: {_steps(rise.queues)}, set with no member present"
                self._add(OFFSETS_SET, place, rise.since, rise.until, what)

    def _slave(
        self,
        broker: BrokerLook,
        since: float,
        lowered: Mapping[str, Mapping[int, tuple[int, int]]],
        *,
        raised: bool,
    ) -> None:
        for key, fell in lowered.items():
            topic, group = split_offset_key(key)
            what = f"{broker.place.text}: {group} on {topic}: {_steps(fell)}"
            self._add(SLAVE_OVERWRITTEN, broker.place, since, broker.until, what)
        lost_at = self._without_master.get(broker.pair)
        master = self._brokers.get(Place(broker.pair, 0))
        lives = master is not None and master.last_answer is not None and master.first_miss is None
        # Name servers that were restarted list no broker at first: the master's answer decides.
        if lost_at is None or lives:
            self._serving.discard(broker.pair)
        # An offset that rose since a look before the route was lost may be a copy of the master's.
        elif raised and since >= lost_at and broker.pair not in self._serving:
            self._serving.add(broker.pair)
            what = f"{broker.place.text} takes commits"
            self._add(SLAVE_SERVES, broker.place, since, broker.until, what)

    def _settle_falls(self, look: Look) -> None:
        """Make events of offsets that fell, after the first look without a further fall."""
        for (place, key), falls in list(self._falls.items()):
            answer = look.at(place)
            if answer is None or answer.offsets is None or falls.until == answer.until:
                continue
            del self._falls[place, key]
            queues = answer.offsets.get(key, {})
            topic, group = split_offset_key(key)
            if len(falls.queues) > 1 and 2 * len(falls.queues) >= len(queues):
                what = f"{group} on {topic}: {_steps(falls.queues)}"
                self._add(RESET, place, falls.since, falls.until, what)
            else:
                self._went_back(place, key, falls.queues, falls.since, falls.until, "a commit")

    def _went_back(
        self,
        place: Place,
        key: str,
        fell: Mapping[int, tuple[int, int]],
        since: float,
        until: float,
        why: str,
    ) -> None:
        topic, group = split_offset_key(key)
        what = f"{group} on {topic}: {_steps(fell)}, by {why}"
        self._add(OFFSETS_WENT_BACK, place, since, until, what)

    def _add(self, kind: str, place: Place | None, since: float, until: float, what: str) -> None:
        broker = None if place is None else place.broker
        self.events.append(Event(kind, broker, None, since, until, what))


def _steps(fell: Mapping[int, tuple[int, int]]) -> str:
    shown = [f"queue {queue} from {old} to {new}" for queue, (old, new) in sorted(fell.items())]
    if len(shown) <= 2:
        return ", ".join(shown)
    steps = {queue: abs(old - new) for queue, (old, new) in fell.items()}
    worst = max(sorted(steps), key=lambda queue: steps[queue])
    old, new = fell[worst]
    return f"{sum(steps.values()):,} in {len(steps)} queues, queue {worst} from {old} to {new}"
