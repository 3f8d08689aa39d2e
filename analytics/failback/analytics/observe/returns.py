"""Follows the returns of masters through the looks, and puts together what each one cost. Pure.

``redelivery`` says what the offsets of a queue mean, and how the interval of messages that were
received again follows from them. This module finds these offsets:

* The looks up to a return give what was committed, and what the master and its slaves held.
* The first look that has the returned master's table makes a :class:`Return` of it.
* The looks after it show which queues may have changed their holder, and how far the master's
  table has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from typing import Final

from failback.analytics.live.facts import is_system
from failback.analytics.observe.events import Finder
from failback.analytics.observe.looks import ANSWERED, BrokerLook, Look, Offsets, Place
from failback.analytics.observe.members import TELLS_NOBODY, ProgressWatch
from failback.analytics.observe.redelivery import GroupReturn, QueueReturn, Return
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.names import is_meant
from failback.protocol.route import split_offset_key

LATE_SECONDS: Final = 10.0
"""A table that is read longer than this after the return may have grown since."""
_APART_SECONDS: Final = 30.0
"""Between two tables of a master that are kept."""
_KEPT: Final = 4
_WAITING_LOOKS: Final = 5
"""Ends of queues are asked every 5 s: so many hold the lag before and after a commit."""
ROUTE_FORGOTTEN_SECONDS: Final = 20.0
"""A pair that is in no route for longer may be gone for a client, which asks every 30 s."""

Members = Mapping[str, frozenset[str]]
"""Group to the client ids of its members."""


def is_about(key: str, groups: Set[str], topics: Set[str]) -> bool:
    """Whether ``topic@group`` is a user's group, and one of ``groups`` and ``topics``.

    An empty set means all. Names may be spelled as brokers do or, without their instance, as
    clients do.
    """
    topic, group = split_offset_key(key)
    if is_system(group) or topic.startswith(DLQ_PREFIX):
        return False
    is_own = topic == RETRY_PREFIX + group
    return (not groups or is_meant(group, groups)) and (
        not topics or is_own or is_meant(topic, topics)
    )


class Returns:
    """Follows what returns cost, in looks that come in their order, beside a :class:`Finder`."""

    def __init__(
        self, finder: Finder, groups: Set[str] = frozenset(), topics: Set[str] = frozenset()
    ) -> None:
        """``groups`` and ``topics``: as :func:`is_about` takes them."""
        self.returns: list[Return] = []
        self._finder = finder
        self._groups = groups
        self._topics = topics
        self._committed: dict[str, dict[str, dict[int, int]]] = {}
        """By pair and key of offset tables the highest offset of each queue at any member."""
        self.first: dict[str, dict[str, dict[int, int]]] = {}
        """By pair and key of offset tables the offset of each queue at the first look."""
        self._ends: dict[str, dict[tuple[str, int], int]] = {}
        self._tables: dict[Place, Offsets] = {}
        """The last table of each broker."""
        self._life_of_table: dict[str, int] = {}
        """By pair how many returns its master had when its table was read last."""
        self._old_tables: dict[str, list[tuple[float, Offsets]]] = {}
        """By pair the last few tables of the master that are a while apart, with their times."""
        self._early: dict[str, set[str]] = {}
        """By pair groups whose members changed while its master was listed and not read yet."""
        self._slave_offsets: dict[str, dict[str, dict[int, int]]] = {}
        """By pair and key the offsets at slaves, of queues that changed hands in an outage."""
        self._unmoved: dict[str, set[tuple[str, int]]] = {}
        """By pair queues of which a new holder may wait for the master, by key and queue id.

        It tells no slave, and begins where the returned master stands. One that a slave's offset
        has moved for did not wait.
        """
        self._languages: dict[str, dict[str, frozenset[str]]] = {}
        """By pair the languages of members that each group had in the outage, beside Java."""
        self._away: set[str] = set()
        """Pairs whose master was down at the last look."""
        self._waiting: dict[str, dict[str, deque[int]]] = {}
        """By pair and key of its master's tables how many messages waited, of the last looks."""
        self._unlisted_since: dict[str, float] = {}
        """By pair when it was found in no route first."""
        self._unlisted_seconds: dict[str, float] = {}
        """By pair how long it was in no route, the last time."""
        self._listed: dict[str, bool | None] = {}
        """Whether the pair's master was listed at the last look; ``None``: no name server said."""
        self._members: Members = {}
        self._progress = ProgressWatch()

    def look(self, look: Look) -> None:
        """Take one look; the finder has had it already."""
        for broker in look.brokers:
            if broker.state == ANSWERED:
                self._note_ends(broker)
        self._note_unlisted_pairs(look)
        self._note_progress(look)
        for broker in look.brokers:
            if broker.broker_id == 0 and broker.state == ANSWERED:
                self._master(broker)
        members = dict(self._finder.members.known)
        self._note_early(look, members)
        self._note_slave_offsets(members)
        for each in self.returns:
            self._follow(each, look, members, was_listed=self._listed.get(each.outage.pair, False))
        self._members = members
        for pair in {place.pair for place in look.listed()} | set(self._listed):
            self._listed[pair] = look.lists_master(pair)
        # Last, because the rules above compare this look's tables with the ones before.
        for broker in look.brokers:
            if broker.offsets is not None:
                self._note_table(broker, look.at(Place(broker.pair, 0)))
                self._tables[broker.place] = broker.offsets

    def _note_progress(self, look: Look) -> None:
        """Note how far members had got by their own account."""
        for handled in self._progress.look(look):
            mine = self._committed.get(handled.pair, {}).get(handled.key)
            # A key that no table has is a broadcast member's, which keeps its offsets itself.
            if mine is not None:
                mine[handled.queue] = max(handled.offset, mine.get(handled.queue, -1))

    def _note_early(self, look: Look, members: Members) -> None:
        """Note groups whose members may have asked a returned master before it was read."""
        away = {pair for pair, each in self._finder.outages.items() if each.back is None}
        # A pair whose master went with this look is left out: no returned master could be asked.
        for pair in away & self._away:
            if look.lists_master(pair) is not False or self._listed.get(pair, False) is not False:
                changed = {group for group in members if members[group] != self._members.get(group)}
                self._early.setdefault(pair, set()).update(changed)
        self._away = away

    def _note_slave_offsets(self, members: Members) -> None:
        """Note where new holders may have begun that asked a slave, for want of a master.

        A slave whose copy is old, or not made yet, lets them begin far back.
        """
        changed = set()
        for group, now in members.items():
            before = self._members.get(group, now)
            if now - before or (before - now and now):
                changed.add(group)
        for pair in self._away:
            languages = self._languages.setdefault(pair, {})
            for group in members:
                languages[group] = languages.get(group, frozenset()) | self._spoken(group)
        for pair in self._away if changed else ():
            tables = [
                table
                for place, table in self._tables.items()
                if place.pair == pair and place.broker_id != 0
            ]
            for key, committed in self._committed.get(pair, {}).items():
                if split_offset_key(key)[1] in changed:
                    found = self._slave_offsets.setdefault(pair, {}).setdefault(key, {})
                    group = split_offset_key(key)[1]
                    if TELLS_NOBODY in self._spoken(group):
                        self._unmoved.setdefault(pair, set()).update(
                            (key, queue) for queue in committed
                        )
                    for queue, offset in committed.items():
                        held = [max(0, table.get(key, {}).get(queue, 0)) for table in tables]
                        # Without a slave's table it may have begun at the first message.
                        lowest = min(offset, *held) if held else 0
                        found[queue] = min(found.get(queue, offset), lowest)

    def _spoken(self, group: str) -> frozenset[str]:
        return self._finder.members.languages_of(group)

    def _note_ends(self, broker: BrokerLook) -> None:
        for topic, queues in (broker.spans or {}).items():
            ends = self._ends.setdefault(broker.pair, {})
            for queue, (_, end) in queues.items():
                ends[topic, queue] = max(end, ends.get((topic, queue), 0))

    def _note_table(self, broker: BrokerLook, master: BrokerLook | None) -> None:
        """Note the highest offsets that were committed at any member of the pair.

        An offset that fell in one life of a master, by a commit or a reset, is the group's position
        from then on. A slave keeps offsets of groups that were removed at its master: they are no
        group's position.
        """
        committed = self._committed.setdefault(broker.pair, {})
        before = self._tables.get(broker.place, {})
        life = sum(each.outage.pair == broker.pair for each in self.returns)
        same_life = broker.broker_id == 0 and self._life_of_table.get(broker.pair) == life
        master_table = None if broker.broker_id == 0 or master is None else master.offsets
        for key, queues in (broker.offsets or {}).items():
            old = before.get(key, {})
            if old == queues or not self.is_wanted(key):
                continue
            if master_table is not None and key not in master_table:
                continue
            mine = committed.setdefault(key, {})
            first = self.first.setdefault(broker.pair, {}).setdefault(key, {})
            for queue, offset in queues.items():
                first.setdefault(queue, max(0, offset))
                was = old.get(queue, -1)
                if offset > was:
                    if broker.broker_id != 0 and broker.pair in self._away:
                        self._unmoved.get(broker.pair, set()).discard((key, queue))
                    mine[queue] = max(offset, mine.get(queue, -1))
                elif 0 <= offset < was and same_life:
                    mine[queue] = offset
        if broker.broker_id == 0:
            if broker.spans is not None:
                self._note_waiting(broker)
            self._life_of_table[broker.pair] = life
            kept = self._old_tables.setdefault(broker.pair, [])
            if broker.offsets is not None and (
                not kept or broker.until - kept[-1][0] >= _APART_SECONDS
            ):
                kept.append((broker.until, broker.offsets))
                del kept[:-_KEPT]

    def _note_waiting(self, broker: BrokerLook) -> None:
        """Note how many messages of each queue's end a group has not committed at the master."""
        found = self._waiting.setdefault(broker.pair, {})
        for key, queues in (broker.offsets or {}).items():
            spans = (broker.spans or {}).get(split_offset_key(key)[0], {})
            if queues.keys() <= spans.keys() and self.is_wanted(key):
                lags = (max(0, spans[queue][1] - max(0, at)) for queue, at in queues.items())
                found.setdefault(key, deque(maxlen=_WAITING_LOOKS)).append(sum(lags))

    def is_wanted(self, key: str) -> bool:
        """Whether ``topic@group`` is a user's group, and among those that were named."""
        return is_about(key, self._groups, self._topics)

    def _note_unlisted_pairs(self, look: Look) -> None:
        """Note for how long a pair was in no route, while some name server answered."""
        if all(each is None for each in look.listings.values()):
            return
        listed = {place.pair for place in look.listed()}
        for pair in self._committed:
            if pair in listed:
                began = self._unlisted_since.pop(pair, None)
                if began is not None:
                    self._unlisted_seconds[pair] = look.ended - began
            else:
                self._unlisted_since.setdefault(pair, look.began)

    def _master(self, broker: BrokerLook) -> None:
        """Begin a return when its outage is over, and read the table of a master that is back."""
        outage = self._finder.outages.get(broker.pair)
        known = {each.outage for each in self.returns}
        if outage is not None and outage.back is not None and outage not in known:
            self.returns.append(Return(outage))
        mine = [each for each in self.returns if each.outage.pair == broker.pair]
        if mine and not mine[-1].is_read and broker.offsets is not None:
            self._read(mine[-1], broker)

    def _read(self, returned: Return, broker: BrokerLook) -> None:
        """Make the groups of a return from the first table of its master."""
        returned.is_read, returned.read_at = True, broker.until
        back = returned.outage.back or returned.outage.gone
        if broker.until - back[0] > LATE_SECONDS:
            returned.gap = (
                f"{broker.place.text} told its offsets up to {broker.until - back[0]:.0f} s after"
                " it was back: it may have begun with smaller ones"
            )
        table, outage_table = broker.offsets or {}, self._tables.get(broker.place, {})
        oldest_table = self._oldest_table(broker.pair, returned)
        lowest_table = oldest_table if returned.gap else table
        early = self._early.pop(broker.pair, set())
        slave_offsets = self._slave_offsets.pop(broker.pair, {})
        unmoved = self._unmoved.pop(broker.pair, set())
        languages = self._languages.pop(broker.pair, {})
        lost = self._unlisted_seconds.pop(broker.pair, 0.0) > ROUTE_FORGOTTEN_SECONDS
        for key, committed in sorted(self._committed.get(broker.pair, {}).items()):
            topic, group = split_offset_key(key)
            now, before = table.get(key, {}), outage_table.get(key, {})
            lowest = lowest_table.get(key, {})
            queues = {
                queue: QueueReturn(
                    returned_offset=max(0, now.get(queue, 0)),
                    committed_offset=offset,
                    max_handled_offset=self._max_handled_offset(broker.pair, key, queue, offset),
                    outage_offset=max(0, before.get(queue, 0)),
                    master_offset=max(0, now.get(queue, 0)),
                    min_returned_offset=max(0, min(lowest.get(queue, 0), now.get(queue, 0))),
                    is_exact=queue in now and returned.gap is None,
                )
                for queue, offset in sorted(committed.items())
            }
            for number, offset in slave_offsets.get(key, {}).items():
                if number in queues:
                    queue = queues[number]
                    queue.slave_offset = lowest_at = offset
                    if (key, number) in unmoved:
                        lowest_at = min(offset, queue.min_returned_offset)
                    queue.at_most = max(0, queue.max_handled_offset - lowest_at)
            found = GroupReturn(group, topic, queues, was_lost=lost)
            found.languages = languages.get(group, frozenset()) | self._spoken(group)
            found.waiting = tuple(self._waiting.get(broker.pair, {}).get(key, ()))
            first = self.first.get(broker.pair, {}).get(key, {})
            found.consumed = sum(
                max(0, offset - first.get(queue, offset)) for queue, offset in committed.items()
            )
            found.members_before = group in self._finder.members.known
            found.members = len(self._finder.members.known.get(group, ()))
            if group in early:
                found.owner_changed = True
                for number, queue in queues.items():
                    queue.began_unseen(oldest_table.get(key, {}).get(number, 0))
            returned.groups.append(found)

    def _max_handled_offset(self, pair: str, key: str, queue: int, committed: int) -> int:
        """Return the queue's end, or how far members can have come that have all left."""
        topic, group = split_offset_key(key)
        end = self._ends.get(pair, {}).get((topic, queue), committed)
        left_at = self._finder.members.empty_since.get(group)
        most = (
            None
            if left_at is None
            else self._progress.max_handled_offset(pair, key, queue, left_at)
        )
        return max(committed, end if most is None else min(end, most))

    def _oldest_table(self, pair: str, returned: Return) -> Offsets:
        """Return the oldest table that the master can have begun with.

        It is the newest one that the master had surely written to its file before it went, or the
        first that was read.
        """
        kept = self._old_tables.get(pair) or [(0.0, {})]
        written = [table for at, table in kept if at <= returned.outage.gone[0] - _APART_SECONDS]
        return written[-1] if written else kept[0][1]

    def _follow(
        self, returned: Return, look: Look, members: Members, *, was_listed: bool | None
    ) -> None:
        """Note which queues may have new holders since the look before, and the master's table."""
        pair = returned.outage.pair
        master = look.at(Place(pair, 0))
        if not returned.is_read or returned.outage.back is None:
            return
        back = returned.outage.back[1]
        is_listed = look.lists_master(pair)
        may_be_asked = is_listed is not False or was_listed is not False
        # An answer about members that was asked for in an earlier look may be older than this one.
        is_prompt = all(
            each.asked >= look.began for each in look.brokers if each.members is not None
        )
        table = (master.offsets if master is not None else None) or {}
        is_first_read = master is not None and master.until == returned.read_at
        last = {} if is_first_read else self._tables.get(Place(pair, 0), {})
        oldest = self._oldest_table(pair, returned)
        for group in returned.groups:
            before = self._members.get(group.group)
            now = members.get(group.group)
            joined = (now or frozenset()) - (before or frozenset()) if before is not None else None
            left = (before or frozenset()) - (now or frozenset()) if before is not None else None
            group.members_after |= self._finder.members.asked.get(group.group, -1.0) > back
            key = f"{group.topic}@{group.group}"
            has_changed = bool(joined or left)
            # A group that was empty has new holders for all its queues, and they asked the master.
            is_certain = bool(joined and not before and was_listed and is_listed and is_prompt)
            if has_changed and is_first_read and may_be_asked:
                for number, queue in group.queues.items():
                    queue.began_unseen(oldest.get(key, {}).get(number, 0))
            listed = None if master is None else (master.members or {}).get(group.group)
            known = now or frozenset()
            group.is_listed |= listed is not None and known <= listed.keys()
            # A member that the master lists before the others sees itself alone.
            is_alone = (
                len(known) > 1
                and not group.is_listed
                and listed is not None
                and bool(listed or TELLS_NOBODY in group.languages)
            )
            place = Place(pair, 0), key
            set_queues = self._finder.offsets_set.get(place, frozenset())
            is_rising = place in self._finder.rises
            unclear = self._finder.rises_unclear.get(place, {})
            for number, queue in group.queues.items():
                earlier = max(0, last.get(key, {}).get(number, queue.returned_offset))
                offset = max(0, table.get(key, {}).get(number, queue.master_offset))
                lowest = min(earlier, offset, queue.master_offset)
                highest = max(earlier, queue.master_offset, offset if is_rising else 0)
                if has_changed and queue.may_repeat and may_be_asked:
                    queue.holder_changed(
                        lowest, highest, is_certain=is_certain and not is_first_read
                    )
                # Clients that forgot the queues take them again, and their members stay the same.
                if queue.is_behind and (group.was_lost or is_alone):
                    queue.holder_changed(lowest, highest, is_certain=False)
                if number in unclear:
                    queue.holder_changed(*unclear[number], is_certain=False)
                # No member has moved it, so the next holder begins where it was set to.
                if number in set_queues and not is_first_read:
                    queue.set_offset = offset
                if queue.is_behind:
                    queue.master_offsets.add(offset)
                queue.master_offset = offset
            if joined and may_be_asked:
                group.owner_changed = True
