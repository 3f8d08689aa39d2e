"""The copies of a consumer offset, queue by queue, and what their differences would cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from failback.analytics.live.facts import (
    GroupTopic,
    MemberFacts,
    PairFacts,
    Queues,
    Table,
    is_canary,
    user_keys,
)
from failback.analytics.live.known import Bound, bound
from failback.carry.restoring import restore_command
from failback.client.admin.queue_offsets import (
    CLIENT,
    COPIES_NONE,
    MASTER_FILE,
    MASTER_TABLE,
    SLAVE_TABLE,
    Span,
)
from failback.common.numbers import count
from failback.common.text import typed

SEEN: Final = "seen before"
"""The place of an offset that a watcher saw before the master's last start."""
_REGISTRATION_SECONDS: Final = 30.0
_COPY_SECONDS: Final = 10.0
_COPY_SECONDS_OF_5: Final = 63.0
"""A slave of 5.x looks every 3 s whether a minute has passed since its last copy."""
_KEY_OF_5: Final = "enableSlaveActingMaster"
"""Brokers before 5.0 have no such setting."""


@dataclass(frozen=True, slots=True)
class Step:
    """One copy of an offset."""

    place: str
    offset: int | None
    fell: int = 0
    """Messages below the safe offset."""
    member: MemberFacts | None = None
    """The broker that holds it; ``None`` for a member of the group."""


@dataclass(frozen=True, slots=True)
class QueueLineage:
    """The copies of one queue's offset, in the order in which a value travels."""

    steps: tuple[Step, ...]
    safe_offset: int | None
    """The highest of the copies: all messages below it are handled. ``None`` without one, and
    where higher ones may have been overwritten."""
    after_return: int | None
    """Messages re-consumed if the master is killed now and members start after its return."""
    on_slave: int | None
    """The same if they start while it is down."""
    span: Span | None = None
    """The offsets of the queue; ``None`` where its end is not known."""
    is_gone: bool = False
    """Whether the topic has no such queue any more."""
    bound: Bound = Bound.EXACT
    """Whether the group has handled no more than ``safe_offset``."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Each offset outside of the queue, in words; the highest first."""
        if self.is_gone:
            return ("there is no such queue any more",)
        if self.span is None:
            return ()
        offsets = {each.offset for each in self.steps if each.offset is not None}
        said = (self.span.outside(each) for each in sorted(offsets, reverse=True))
        return tuple(each for each in said if each)


def lineage(
    facts: PairFacts,
    key: GroupTopic,
    queue: int,
    client: int | None = None,
    client_since_ms: int = 0,
) -> QueueLineage:
    """Put the copies together.

    ``client``: the offset in the memory of the queue's holder, which started at
    ``client_since_ms``; 0 where that is not known.
    """
    steps = [Step(CLIENT, client)] if client is not None else []
    master = facts.last_master
    if master is not None:
        steps.append(Step(MASTER_TABLE, master.offset(key, queue), member=master))
        if master.file is not None:
            steps.append(Step(MASTER_FILE, master.file_offset(key, queue), member=master))
    slaves = sorted(facts.slaves, key=lambda each: each.broker_id or 0)
    steps += [Step(SLAVE_TABLE, each.offset(key, queue), member=each) for each in slaves]
    silent = (each for each in facts.members if not each.answered and (each.broker_id or 0) > 0)
    steps += [Step(SLAVE_TABLE, None, member=each) for each in silent]
    before = (facts.seen or {}).get(key, {}).get(queue)
    if before is not None and all(before > (each.offset or 0) for each in steps):
        steps.append(Step(SEEN, before))
    if facts.is_gone(key.topic, queue):
        return QueueLineage(tuple(steps), None, None, None, is_gone=True)
    span = facts.span(key.topic, queue)
    safe = _safe([each.offset for each in steps if each.offset is not None], span)
    if safe is None:
        return QueueLineage(tuple(steps), None, None, None, span)
    found = tuple(
        Step(each.place, each.offset, _fell(safe, each.offset, span), each.member)
        if each.offset is not None
        else each
        for each in steps
    )
    known = bound(facts, key, client_since_ms)
    if facts.master is not None and span is not None and safe == span.end:
        known = Bound.EXACT
    best, begins = {queue: safe}, facts.begins.get(key.topic, {})
    file = master.file if master is not None else None
    told = [each.offsets for each in slaves if each.offsets is not None]
    return QueueLineage(
        found if known is not Bound.NOT_KNOWN else tuple(replace(each, fell=0) for each in found),
        None if known is Bound.NOT_KNOWN else safe,
        known.of(None if file is None else behind(best, file.table.get(key), begins)),
        known.of(max((behind(best, table.get(key), begins) for table in told), default=None)),
        span,
        bound=known,
    )


def _safe(offsets: Sequence[int], span: Span | None) -> int | None:
    """Return the highest offset within the queue, else the queue's nearest to all."""
    if not offsets:
        return None
    if span is None:
        return max(offsets)
    within = [each for each in offsets if span.holds(each)]
    return max(within) if within else span.nearest(max(offsets))


def _fell(safe: int, offset: int, span: Span | None) -> int:
    """Return the stored messages between an offset and the safe one."""
    return max(0, safe - (offset if span is None else span.nearest(offset)))


def furthest(held: Iterable[Queues | None]) -> Queues:
    """Return by queue the highest offset in several tables of a group on a topic."""
    found: Queues = {}
    for queues in held:
        if not queues or queues == found:
            continue
        if found:
            queues = {
                each: max(found.get(each, 0), queues.get(each, 0)) for each in {**found, **queues}
            }
        found = queues
    return found


def behind(
    best: Queues, held: Queues | None, begins: Queues, ends: Queues = MappingProxyType({})
) -> int:
    """Messages between two positions, of those that are stored.

    A queue without an entry is begun at its first message. No message is beyond a queue's end.
    """
    if held == best:
        return 0
    there = held or {}
    return sum(
        max(
            0,
            min(offset, ends.get(queue, offset)) - max(there.get(queue, 0), begins.get(queue, 0)),
        )
        for queue, offset in best.items()
        if not ends or queue in ends
    )


def lag(ends: Queues, held: Queues, begins: Queues = MappingProxyType({})) -> int | None:
    """Messages that are stored and behind the ends, over all queues; ``None``: no end is known."""
    found = [
        max(0, ends[queue] - max(begins.get(queue, 0), offset))
        for queue, offset in held.items()
        if queue in ends
    ]
    return sum(found) if found else None


def ahead_of(facts: PairFacts, key: GroupTopic, queue: int, offset: int) -> int:
    """How far an offset is beyond what the master has, in messages that there are.

    0 where the master's offset is not known.
    """
    return _ahead(facts, facts.last_master, key, queue, offset)


def _ahead(
    facts: PairFacts, master: MemberFacts | None, key: GroupTopic, queue: int, offset: int
) -> int:
    if master is None:
        return 0
    if master.was_asked:
        held = master.offset(key, queue) or 0
    elif master.file is not None:  # the master will start with it
        held = master.file_offset(key, queue) or 0
    else:
        return 0
    if offset <= held or facts.is_gone(key.topic, queue):
        return 0
    span = facts.span(key.topic, queue)
    return offset - held if span is None else span.nearest(offset) - span.nearest(held)


def slave_ahead(facts: PairFacts) -> int:
    """Messages by which the best slave's table is ahead of the master's, over all groups."""
    return max((_all_ahead(facts, each.offsets or {}) for each in facts.slaves), default=0)


def _all_ahead(facts: PairFacts, table: Table) -> int:
    master = facts.last_master
    return sum(
        _ahead(facts, master, key, queue, offset)
        for key in user_keys([table])
        if facts.offsets_count(key.group) and not is_canary(key.group)
        for queue, offset in table[key].items()
    )


def overwrite_countdown(facts: PairFacts) -> float | None:
    """Seconds until the slave's better table is surely overwritten; ``None``: nothing to lose.

    Counted from the master's start. The copy may come at any moment before. Slaves that copy no
    consumer offsets overwrite nothing.
    """
    master = facts.master
    copying = tuple(each for each in facts.slaves if each.version not in COPIES_NONE)
    if master is None or not slave_ahead(replace(facts, members=(master, *copying))):
        return None
    copied = _COPY_SECONDS_OF_5 if _KEY_OF_5 in master.config else _COPY_SECONDS
    most = (_REGISTRATION_SECONDS + copied) * master.time_scale
    left = master.boot_ms / 1000 + most - facts.at
    return round(left, 1) if left > 0 else None


def reset_command(
    group: str,
    topic: str,
    broker: str,
    queue: int,
    offset: int | None,
    *,
    held: int | None = None,
    namesrv: Sequence[str] = (),
) -> str | None:
    """Return the command that lets a group go on at ``offset``.

    Args:
        group: Its name.
        topic: Its name.
        broker: Its name.
        queue: The queue's id.
        offset: The safe offset; without one there is no command.
        held: The offset that the master has. There is no command if it is as high.
        namesrv: Name servers, if they are not those that the command finds by itself.
    """
    if offset is None or (held is not None and held >= offset):
        return None
    words = [
        *("failback", "admin", "resetOffset", "--group", group, "--topic", topic),
        *("--broker", broker, "--queue", str(queue), "--offset", str(offset)),
    ]
    if namesrv:
        words += ["--namesrv", ";".join(namesrv)]
    return typed(*words)


def explain_recorded(key: GroupTopic, queue: int) -> str:
    """Return the command that shows what an observer recorded of an offset."""
    words = ("failback", "explain-offset", key.group, key.topic, str(queue))
    return f"{typed(*words)} --run FOLDER"


def carry_command(
    slaves: Iterable[str], *, files: Iterable[object] = (), options: Iterable[str] = ()
) -> str:
    """Return the command that gives a stopped master what its slaves know, for all groups at once.

    It is for the master's host, whose ``broker.conf`` is to stand for BROKER.CONF. ``files``:
    tables of offsets, as ``--file`` reads.
    """
    words = ["--conf", "BROKER.CONF"]
    words += [word for slave in slaves for word in ("--slave", slave)]
    words += [str(word) for file in files for word in ("--file", file)]
    return typed("failback", "carry", *words, *options)


def carry_now(facts: PairFacts, options: Iterable[str] = ()) -> str | None:
    """Return what gives a pair's master what its slaves know, for all groups at once.

    ``None`` if no slave knows more than a master that runs.
    """
    if facts.master is not None:
        ahead = slave_ahead(facts)
        return restore_command(broker=facts.broker, options=options) if ahead else None
    slaves = sorted(each.address for each in facts.slaves)
    return carry_command(slaves, options=options) if slaves else None


class GroupStake(NamedTuple):
    """One group whose offsets on a pair are going to be overwritten, or were."""

    group: str
    messages: int
    """A lower bound of what is re-consumed."""
    members: int | None
    """Its members now; ``None``: not known."""

    @property
    def must_act(self) -> bool:
        """Whether nothing but a person stores its offsets."""
        return not self.members


def act_or_wait(stakes: Iterable[GroupStake], seconds_left: float | None = None) -> list[str]:
    """Return one line for each group, those first for which a person has to act.

    Args:
        stakes: The groups.
        seconds_left: Until the slave has surely copied its master; ``None``: not known, or past.
    """
    ordered = sorted(stakes, key=lambda each: (not each.must_act, -each.messages, each.group))
    width = max((len(each.group) for each in ordered), default=0)
    return [
        f"{'ACT ' if each.must_act else 'wait'}  {each.group:{width}}  {_what(each, seconds_left)}"
        for each in ordered
    ]


def members_in_words(members: int | None) -> str:
    """Say how many members a group has now; ``None``: not known."""
    if members is None:
        return "members are not known"
    if not members:
        return "no member"
    return "1 member runs" if members == 1 else f"{members} members run"


def _what(each: GroupStake, seconds_left: float | None) -> str:
    known = members_in_words(each.members)
    if each.members:
        return f"{known}; {'stores its' if each.members == 1 else 'store their'} offsets by itself"
    copies = "" if seconds_left is None else f"; slave copies in about {seconds_left:.0f} s"
    return f"{known}; {count(each.messages)} will be re-consumed{copies}"
