"""What a group consumes again when a master returns, as an interval for each queue. Pure.

Offsets tell where a group stood, not what it did: a client that runs through keeps its position in
memory, and one that takes a queue anew begins where the master's table stands. So everything hangs
on who held a queue since. What is not known widens the interval; a number is never guessed.

For each queue, with *had* what the returned master's table held and *reached* the highest offset
that was committed anywhere before:

* nobody new: nothing is consumed again; with members listed by brokers (E3) that is known;
* members that asked the master after it was back: from where its table stood when they asked, up
  to *reached* at least and, of a holder that had not committed all it did, the queue's end at most;
* members that came while only the slave was there went on from the slave's table.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from failback.analytics.live.facts import is_canary, is_system
from failback.analytics.observe.events import Finder, Outage
from failback.analytics.observe.held import HeldWatch
from failback.analytics.observe.looks import ANSWERED, BrokerLook, Look, Offsets, Place
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.names import is_meant
from failback.protocol.route import split_offset_key

SLAVE_ONLY: Final = "ROLLBACK_SLAVE_ONLY_PROGRESS"
RESTART: Final = "ROLLBACK_RESTART"
STALE_SLAVE: Final = "ROLLBACK_STALE_SLAVE"
TAILS: Final = ("TAIL_CRASH", "TAIL_REBALANCE", "TAIL_SHUTDOWN")
LATE_SECONDS: Final = 10.0
"""A table that was read later may have grown since the return."""
_APART_SECONDS: Final = 30.0
_KEPT: Final = 4
ROUTE_FORGOTTEN_SECONDS: Final = 20.0
"""A client that asks for routes every 30 s may have noticed that a whole pair was gone."""


def is_about(key: str, groups: Set[str], topics: Set[str]) -> bool:
    """Whether ``topic@group`` is a group's own, and of ``groups`` and ``topics`` if any are named.

    Both may be named as brokers do or, without their instance, as clients do.
    """
    topic, group = split_offset_key(key)
    if is_system(group) or topic.startswith(DLQ_PREFIX):
        return False
    is_own = topic == RETRY_PREFIX + group
    return (not groups or is_meant(group, groups)) and (
        not topics or is_own or is_meant(topic, topics)
    )


@dataclass(slots=True)
class QueueReturn:
    """One queue of one group at one return. Messages, but for offsets."""

    had: int
    reached: int
    furthest: int
    """Nobody can have consumed beyond it."""
    before: int
    """What the master's table held when it was seen last before the outage."""
    least: int
    """What it surely held: *had*, but for a table that was read late."""
    is_sure: bool = True
    """Whether it began with *had*. Without an entry a client begins where it was told to."""
    lo: int = 0
    hi: int = 0
    stands: int = 0
    """The master's table at the last look."""
    served: int | None = None
    """The least that slaves held when somebody took the queue and only they were there."""
    stood: set[int] = field(default_factory=set)
    """What the master's table held at looks until it had caught up."""

    @property
    def is_open(self) -> bool:
        """Whether who takes the queue now consumes some of it again."""
        return self.stands < self.reached

    @property
    def may_repeat(self) -> bool:
        """Whether who takes the queue now may be handed what a holder before had handled."""
        return self.is_open or self.stands == self.reached < self.furthest

    def taken(self, least: int, most: int, *, surely: bool) -> None:
        """Somebody took the queue from an offset between ``least`` and ``most``."""
        least = min(least, self.least, self.least if self.served is None else self.served)
        self.hi = max(self.hi, self.furthest - least)
        if surely and self.is_sure:
            self.lo = max(self.lo, self.reached - most)


@dataclass(slots=True)
class GroupReturn:
    """One group on one topic at one return."""

    group: str
    topic: str
    queues: dict[int, QueueReturn]
    owner_changed: bool = False
    members_before: bool = False
    """Whether brokers listed the members before the return."""
    members_after: bool = False
    members: int = 0
    """How many it had when the master was back, as far as brokers listed them."""
    consumed: int = 0
    """By how much its offsets had grown since they were seen first, at the return."""
    was_lost: bool = False
    """Whether clients may have forgotten the queues: the whole pair was in no route."""

    @property
    def lo(self) -> int:
        """How many messages were consumed again, at least, as far as was seen."""
        return sum(self._done(each) for each in self.queues.values())

    @property
    def hi(self) -> int:
        return sum(self._most(each) for each in self.queues.values())

    def of_queue(self, queue: int) -> tuple[int, int]:
        """Return what was consumed again of one queue, at least and at most."""
        each = self.queues[queue]
        return self._done(each), self._most(each)

    @staticmethod
    def _done(each: QueueReturn) -> int:
        """What the new holder has committed of it: the rest it may not have come to."""
        return max(0, min(each.lo, min(each.stands, each.reached) - (each.reached - each.lo)))

    def _most(self, each: QueueReturn) -> int:
        if each.hi or (self.has_members and each.least == each.had):
            return each.hi
        return max(0, each.furthest - each.least)

    @property
    def has_members(self) -> bool:
        """Whether it is known who the members were before the return and after it."""
        return self.members_before and self.members_after

    @property
    def causes(self) -> list[str]:
        """Why the master's table was behind, where something may have been consumed again.

        Where it was not, what its holders had not committed may have come again, however they
        ended.
        """
        if not self.hi:
            return []
        found = []
        if any(each.before > each.least for each in self.queues.values()):
            found.append(RESTART)
        if any(each.reached > max(each.before, each.least) for each in self.queues.values()):
            found.append(SLAVE_ONLY)
        if any(
            each.served is not None and each.served < each.before for each in self.queues.values()
        ):
            found.append(STALE_SLAVE)
        return found or list(TAILS)

    @property
    def safe_offsets(self) -> dict[int, int]:
        """Where to set queues whose offset is behind now; a canary's nobody has to."""
        if is_canary(self.group):
            return {}
        return {queue: each.reached for queue, each in self.queues.items() if each.is_open}


@dataclass(slots=True)
class Return:
    """One return of one master."""

    outage: Outage
    groups: list[GroupReturn] = field(default_factory=list)
    is_read: bool = False
    """Whether the returned master's table was read."""
    read_at: float = 0.0
    gap: str | None = None
    """What hides the table that it began with."""

    @property
    def broker(self) -> str:
        return self.outage.pair.rpartition("/")[2]


class Returns:
    """Follows what returns cost, in looks that come in their order, beside a :class:`Finder`."""

    def __init__(
        self, finder: Finder, groups: Set[str] = frozenset(), topics: Set[str] = frozenset()
    ) -> None:
        """``groups`` and ``topics``: only these, where there are any."""
        self.returns: list[Return] = []
        self._finder = finder
        self._groups = groups
        self._topics = topics
        self._reached: dict[str, dict[str, dict[int, int]]] = {}
        self.first: dict[str, dict[str, dict[int, int]]] = {}
        """By pair and key of offset tables the offset of each queue that was seen first."""
        self._ends: dict[str, dict[tuple[str, int], int]] = {}
        self._tables: dict[Place, Offsets] = {}
        """As each broker told them last."""
        self._lives: dict[str, int] = {}
        """By pair how often its master had come back when its table was read last."""
        self._older: dict[str, list[tuple[float, Offsets]]] = {}
        """By pair tables of the master that are a while apart, the last few."""
        self._early: dict[str, set[str]] = {}
        """By pair groups that got members while its master was listed and not read yet."""
        self._served: dict[str, dict[str, dict[int, int]]] = {}
        """By pair and key what slaves held of queues that were taken while only they were there."""
        self._away: set[str] = set()
        """Pairs whose master was away at the last look."""
        self._absent: dict[str, float] = {}
        """Pairs that no name server lists, since when."""
        self._longest_absence: dict[str, float] = {}
        self._listed: dict[str, bool | None] = {}
        """Whether the pair's master was listed at the last look; ``None``: nobody could tell."""
        self._members: dict[str, frozenset[str]] = {}
        self._held = HeldWatch()
        self._emptied: dict[str, float] = {}
        """Groups that have no member, since when."""

    def look(self, look: Look) -> None:
        """Take one look; the finder has had it already."""
        for broker in look.brokers:
            if broker.state == ANSWERED:
                self._notes(broker)
        self._absences(look)
        self._asked(look)
        for broker in look.brokers:
            if broker.broker_id == 0 and broker.state == ANSWERED:
                self._master(broker)
        now = dict(self._finder.members.known)
        self._note_early(look, now)
        self._note_served(now)
        for each in self.returns:
            self._follow(each, look, now, was_listed=self._listed.get(each.outage.pair, False))
        self._members = now
        for pair in {place.pair for place in look.listed()} | set(self._listed):
            self._listed[pair] = look.lists_master(pair)
        for broker in look.brokers:
            if broker.offsets is not None:
                self._raise(broker, look.at(Place(broker.pair, 0)))
                self._tables[broker.place] = broker.offsets

    def _asked(self, look: Look) -> None:
        """Note how far members had got that were asked, and which groups lost their last."""
        for handled in self._held.look(look):
            mine = self._reached.get(handled.pair, {}).get(handled.key)
            if mine is not None:  # a member that keeps offsets itself says nothing of the group
                mine[handled.queue] = max(handled.offset, mine.get(handled.queue, -1))
        for group, members in self._finder.members.known.items():
            if members:
                self._emptied.pop(group, None)
            else:
                self._emptied.setdefault(group, look.ended)

    def _note_early(self, look: Look, now: Mapping[str, frozenset[str]]) -> None:
        """Note who may have asked a returned master before it was read."""
        away = {pair for pair, each in self._finder.outages.items() if each.back is None}
        for pair in away & self._away:  # who changed as it went had none to ask
            if look.lists_master(pair) is not False or self._listed.get(pair, False) is not False:
                changed = {group for group in now if now[group] != self._members.get(group)}
                self._early.setdefault(pair, set()).update(changed)
        self._away = away

    def _note_served(self, now: Mapping[str, frozenset[str]]) -> None:
        """Note where members may have begun that took queues while only slaves were there.

        A slave whose copy is old, or not there yet, sends them far back.
        """
        taken = set()
        for group, members in now.items():
            before = self._members.get(group, members)
            if members - before or (before - members and members):
                taken.add(group)
        for pair in self._away if taken else ():
            tables = [
                table
                for place, table in self._tables.items()
                if place.pair == pair and place.broker_id != 0
            ]
            for key, reached in self._reached.get(pair, {}).items():
                if split_offset_key(key)[1] in taken:
                    served = self._served.setdefault(pair, {}).setdefault(key, {})
                    for queue, offset in reached.items():
                        held = [max(0, table.get(key, {}).get(queue, 0)) for table in tables]
                        served[queue] = min(served.get(queue, offset), *held, offset if held else 0)

    def _notes(self, broker: BrokerLook) -> None:
        for topic, queues in (broker.spans or {}).items():
            ends = self._ends.setdefault(broker.pair, {})
            for queue, (_, end) in queues.items():
                ends[topic, queue] = max(end, ends.get((topic, queue), 0))

    def _raise(self, broker: BrokerLook, master: BrokerLook | None) -> None:
        """Remember the furthest offsets that were committed at any member of the pair.

        Where a master's fell in its life, by a commit or a reset, the group stands there since. A
        slave keeps offsets of groups that were removed at its master: nobody stands there.
        """
        reached = self._reached.setdefault(broker.pair, {})
        before = self._tables.get(broker.place, {})
        life = sum(each.outage.pair == broker.pair for each in self.returns)
        same_life = broker.broker_id == 0 and self._lives.get(broker.pair) == life
        beside = None if broker.broker_id == 0 or master is None else master.offsets
        for key, queues in (broker.offsets or {}).items():
            old = before.get(key, {})
            if old == queues or not self.is_wanted(key):
                continue
            if beside is not None and key not in beside:
                continue
            mine = reached.setdefault(key, {})
            first = self.first.setdefault(broker.pair, {}).setdefault(key, {})
            for queue, offset in queues.items():
                first.setdefault(queue, max(0, offset))
                was = old.get(queue, -1)
                if offset > was:
                    mine[queue] = max(offset, mine.get(queue, -1))
                elif offset < was and same_life:
                    mine[queue] = offset
        if broker.broker_id == 0:
            self._lives[broker.pair] = life
            older = self._older.setdefault(broker.pair, [])
            if broker.offsets is not None and (
                not older or broker.until - older[-1][0] >= _APART_SECONDS
            ):
                older.append((broker.until, broker.offsets))
                del older[:-_KEPT]

    def is_wanted(self, key: str) -> bool:
        """Whether ``topic@group`` is a group's own, and among those that were named."""
        return is_about(key, self._groups, self._topics)

    def _absences(self, look: Look) -> None:
        """Note how long a pair was in no route, while some name server answered."""
        if all(each is None for each in look.listings.values()):
            return
        here = {place.pair for place in look.listed()}
        for pair in self._reached:
            if pair in here:
                began = self._absent.pop(pair, None)
                if began is not None:
                    self._longest_absence[pair] = look.ended - began
            else:
                self._absent.setdefault(pair, look.began)

    def _master(self, broker: BrokerLook) -> None:
        outage = self._finder.outages.get(broker.pair)
        known = {each.outage for each in self.returns}
        if outage is not None and outage.back is not None and outage not in known:
            self.returns.append(Return(outage))
        mine = [each for each in self.returns if each.outage.pair == broker.pair]
        if mine and not mine[-1].is_read and broker.offsets is not None:
            self._read(mine[-1], broker)

    def _read(self, returned: Return, broker: BrokerLook) -> None:
        """The first table of a master that is back."""
        returned.is_read, returned.read_at = True, broker.until
        back = returned.outage.back or returned.outage.gone
        if broker.until - back[0] > LATE_SECONDS:
            returned.gap = (
                f"{broker.place.text} told its offsets up to {broker.until - back[0]:.0f} s after"
                " it was back: it may have begun with smaller ones"
            )
        had_of, before_of = broker.offsets or {}, self._tables.get(broker.place, {})
        oldest_of = self._least(broker.pair, returned)
        least_of = oldest_of if returned.gap else had_of
        early = self._early.pop(broker.pair, set())
        served_of = self._served.pop(broker.pair, {})
        lost = self._longest_absence.pop(broker.pair, 0.0) > ROUTE_FORGOTTEN_SECONDS
        for key, reached_of in sorted(self._reached.get(broker.pair, {}).items()):
            topic, group = split_offset_key(key)
            had, before = had_of.get(key, {}), before_of.get(key, {})
            least = least_of.get(key, {})
            queues = {
                queue: QueueReturn(
                    had=max(0, had.get(queue, 0)),
                    reached=reached,
                    furthest=self._furthest(broker.pair, key, queue, reached),
                    before=max(0, before.get(queue, 0)),
                    stands=max(0, had.get(queue, 0)),
                    least=max(0, min(least.get(queue, 0), had.get(queue, 0))),
                    is_sure=queue in had and returned.gap is None,
                )
                for queue, reached in sorted(reached_of.items())
            }
            for number, start in served_of.get(key, {}).items():
                if number in queues:
                    queues[number].served = start
                    queues[number].hi = max(0, queues[number].furthest - start)
            found = GroupReturn(group, topic, queues, was_lost=lost)
            first = self.first.get(broker.pair, {}).get(key, {})
            found.consumed = sum(
                max(0, offset - first.get(queue, offset)) for queue, offset in reached_of.items()
            )
            found.members_before = group in self._finder.members.known
            found.members = len(self._finder.members.known.get(group, ()))
            if group in early:
                found.owner_changed = True
                self._taken_before(found, oldest_of.get(key, {}))
            returned.groups.append(found)

    def _furthest(self, pair: str, key: str, queue: int, reached: int) -> int:
        """The queue's end, or where members that all left were at most when they did."""
        topic, group = split_offset_key(key)
        end = self._ends.get(pair, {}).get((topic, queue), reached)
        left = self._emptied.get(group)
        most = None if left is None else self._held.most(pair, key, queue, left)
        return max(reached, end if most is None else min(end, most))

    @staticmethod
    def _taken_before(group: GroupReturn, oldest: Mapping[int, int]) -> None:
        """Somebody may have taken the queues, and moved them, before their offsets were read."""
        for number, queue in group.queues.items():
            queue.least = max(0, min(queue.least, oldest.get(number, 0)))
            queue.taken(queue.least, queue.had, surely=False)

    def _least(self, pair: str, returned: Return) -> Offsets:
        """The newest table that the master surely had in its file when it went, or the first."""
        older = self._older.get(pair) or [(0.0, {})]
        sure = [table for at, table in older if at <= returned.outage.gone[0] - _APART_SECONDS]
        return sure[-1] if sure else older[0][1]

    def _follow(
        self,
        returned: Return,
        look: Look,
        members: Mapping[str, frozenset[str]],
        *,
        was_listed: bool | None,
    ) -> None:
        """See who may have taken queues since the look before, and how far the master is."""
        pair = returned.outage.pair
        master = look.at(Place(pair, 0))
        if not returned.is_read or returned.outage.back is None:
            return
        back = returned.outage.back[1]
        is_listed = look.lists_master(pair)
        may_be_asked = is_listed is not False or was_listed is not False
        is_prompt = all(
            each.asked >= look.began for each in look.brokers if each.members is not None
        )
        table = (master.offsets if master is not None else None) or {}
        is_new = master is not None and master.until == returned.read_at
        last = {} if is_new else self._tables.get(Place(pair, 0), {})
        oldest = self._least(pair, returned)
        for group in returned.groups:
            before = self._members.get(group.group)
            now = members.get(group.group)
            joined = (now or frozenset()) - (before or frozenset()) if before is not None else None
            left = (before or frozenset()) - (now or frozenset()) if before is not None else None
            group.members_after |= self._finder.members.asked.get(group.group, -1.0) > back
            key = f"{group.topic}@{group.group}"
            has_changed = bool(joined or left)
            surely = bool(joined and not before and was_listed and is_listed and is_prompt)
            if has_changed and is_new and may_be_asked:
                self._taken_before(group, oldest.get(key, {}))
            for number, queue in group.queues.items():
                stood = max(0, last.get(key, {}).get(number, queue.had))
                stands = max(0, table.get(key, {}).get(number, queue.stands))
                least, most = min(stood, stands, queue.stands), max(stood, queue.stands)
                if has_changed and queue.may_repeat and may_be_asked:
                    queue.taken(least, most, surely=surely and not is_new)
                if group.was_lost and queue.is_open:
                    queue.taken(least, most, surely=False)
                if queue.is_open:
                    queue.stood.add(stands)
                queue.stands = stands
            if joined and may_be_asked:
                group.owner_changed = True
