"""The result of an observation: ``observation`` of ``report.json``, and sentences. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

from failback.analytics.analysis.causes.labels import cause_words
from failback.analytics.live.facts import is_canary
from failback.analytics.observe.events import Finder, Outage
from failback.analytics.observe.kept_tables import KeptTables
from failback.analytics.observe.looks import Look, Place
from failback.analytics.observe.members import TELLS_NOBODY, TELLS_THE_SLAVE
from failback.analytics.observe.redelivery import GroupReturn, Return
from failback.analytics.observe.returns import Returns
from failback.common.text import typed
from failback.common.times import of_day, utc, zone
from failback.protocol.names import instance_of, without_instance

Row = dict[str, Any]
_NAMED: Final = 3
"""Groups that received nothing again are named in a sentence if they are so few."""
ROUTES: Final = "E1"
TABLES: Final = "E2"
MEMBERS: Final = "E3"
TRACE: Final = "E4"

Counts = Callable[[Return, GroupReturn], Mapping[int, int]]
"""Messages that a group received again at a return by queue id, for queues with exact counts."""


def _no_counts(_: Return, __: GroupReturn) -> Mapping[int, int]:
    return {}


class Observation:
    """Takes looks in their order, and has at any time what they show.

    Attributes:
        finder: Events and gaps.
        kept: Tables of slaves for a master's return.
        ended: Of the last look, seconds after run zero; ``None`` before the first.
    """

    def __init__(self, groups: Set[str] = frozenset(), topics: Set[str] = frozenset()) -> None:
        """``groups`` and ``topics``: as ``returns.is_about`` takes them."""
        self.finder = Finder()
        self._returns = Returns(self.finder, groups, topics)
        self.kept = KeptTables()
        self.began: float | None = None
        self.ended: float | None = None
        self.configs: dict[str, dict[str, str]] = {}
        """By pair the settings in the last answer of its master."""
        self.zero = 0.0
        """Run zero, seconds since 1970."""
        self.looks = 0
        """Looks of this process alone."""

    @classmethod
    def of(
        cls, looks: Iterable[Look], groups: Set[str] = frozenset(), topics: Set[str] = frozenset()
    ) -> Observation:
        made = cls(groups, topics)
        for look in looks:
            made.look(look)
        made.looks = 0
        return made

    def look(self, look: Look) -> None:
        self.finder.look(look)
        self._returns.look(look)
        self.kept.look(look, self.finder.outages)
        if self.began is None:
            self.began = look.began
        self.ended = look.ended
        self.configs |= {each.pair: each.config for each in look.brokers if each.config is not None}
        self.looks += 1

    @property
    def is_first(self) -> bool:
        """Whether this process has looked once."""
        return self.looks == 1

    @property
    def returns(self) -> list[Return]:
        return self._returns.returns

    @property
    def outages(self) -> list[Outage]:
        """All outages, those that last at the end behind the others."""
        over = [each.outage for each in self.returns]
        return over + [each for each in self.finder.outages.values() if each.back is None]

    def first_offsets(self) -> dict[str, dict[str, dict[int, int]]]:
        """Return the lowest offset of each queue: at the first look, or of a returned master.

        By ``cluster/broker``, ``topic@group`` and queue id.
        """
        found = {
            pair: {key: dict(queues) for key, queues in keys.items()}
            for pair, keys in self._returns.first.items()
        }
        for returned in self.returns:
            keys = found.setdefault(returned.outage.pair, {})
            for group in returned.groups:
                mine = keys.setdefault(f"{group.topic}@{group.group}", {})
                for number, queue in group.queues.items():
                    if queue.is_exact:
                        mine[number] = min(
                            queue.returned_offset, mine.get(number, queue.returned_offset)
                        )
        return found

    def is_wanted(self, key: str) -> bool:
        """Whether conclusions are about ``topic@group``."""
        return self._returns.is_wanted(key)

    @property
    def is_watchful(self) -> bool:
        """Whether a master is down or a group in danger: then each look asks every question."""
        away = any(outage.back is None for outage in self.finder.outages.values())
        return away or any(True for _ in in_danger(self.returns))

    def document(self, counts: Counts = _no_counts, doubles: Counts = _no_counts) -> Row:
        """Return ``observation`` of ``report.json``. Times are seconds after run zero, or UTC."""
        zero = self.zero
        return {
            "events": [
                {
                    "kind": event.kind,
                    "broker": event.broker,
                    "member": event.member,
                    "from": _seconds(event.since),
                    "until": _seconds(event.until),
                    "at": utc(zero + event.until),
                    "detail": event.detail,
                }
                for event in sorted(self.finder.events, key=lambda each: each.until)
            ],
            "gaps": [
                {
                    "from": _seconds(gap.since),
                    "until": _seconds(gap.until),
                    "at": utc(zero + gap.since),
                    "what": gap.what,
                }
                for gap in [*self.finder.gaps, *self.finder.open_gaps()]
            ],
            "down": [
                {
                    "broker": Place(each.pair, 0).broker,
                    "from": _seconds(each.gone[0]),
                    "until": _seconds(each.gone[1]),
                    "at": utc(zero + each.gone[1]),
                }
                for each in self.outages
                if each.back is None
            ],
            "returns": [_return_row(each, counts, doubles, zero) for each in self.returns],
        }


def in_danger(returns: Iterable[Return]) -> Iterator[tuple[Return, GroupReturn]]:
    """Yield groups whose offsets on a returned master are behind what they had committed."""
    for each in returns:
        for group in each.groups:
            if group.offsets_to_set:
                yield each, group


class Danger(NamedTuple):
    """A group whose offsets on a returned master are behind, and what saves it."""

    broker: str
    group: str
    topic: str
    behind: int
    """Messages."""
    tells_nobody: bool
    """Whether members may have finished more: then ``behind`` and ``safe`` are at least so much."""
    safe: Mapping[int, int]
    """By queue id."""
    members: int | None
    """How many the group has now; ``None``: not known."""

    @property
    def must_act(self) -> bool:
        """Whether no member stores the group's offsets by itself."""
        return not self.members

    @property
    def command(self) -> str:
        """The command that explains an offset, and how to store the safe one."""
        first = min(self.safe)
        return typed("failback", "explain-offset", self.group, self.topic, str(first), "--live")


def dangers(observation: Observation) -> list[Danger]:
    """Return the groups that are in danger now: first those for which a person must act."""
    found = []
    for returned, group in in_danger(observation.returns):
        safe = group.offsets_to_set
        behind = sum(group.queues[queue].messages_behind for queue in safe)
        members = observation.finder.members.known.get(group.group)
        found.append(
            Danger(
                returned.broker,
                group.group,
                group.topic,
                behind,
                group.tells_nobody,
                safe,
                None if members is None else len(members),
            )
        )
    return sorted(found, key=lambda each: (not each.must_act, -each.behind))


def hidden(document: Row, unread: Iterable[Outage] = ()) -> list[str]:
    """Return why the cost of some return is not known, a sentence each.

    Args:
        unread: Outages that may be over, whose master was never read since.
    """
    found = [
        f"{row['broker']} is back, and its table was not read in time"
        for row in document["returns"]
        if not row["read"]
    ]
    found += [
        f"{Place(each.pair, 0).broker} took connections at the end and did not answer: it may be"
        " back, and its table was not read"
        for each in unread
    ]
    return found


def sentences(document: Row, zero: float = 0.0) -> list[str]:
    """Return a sentence for each return: how much each group received again; and for each outage.

    ``zero``: run zero in seconds since 1970. A canary is no group of the user's.
    """
    found = []
    for row in document["returns"]:
        down = _span(row["back_from"] - row["gone_until"], row["back_until"] - row["gone_from"])
        by_group: dict[str, list[Row]] = {}
        for each in row["groups"]:
            if is_canary(each["group"]):
                continue
            by_group.setdefault(each["group"], []).append(each)
        since = zero + row["gone_until"]
        parts = [f"{of_day(since)} {zone(since)}: {row['broker']} was down for {down}."]
        spared = [
            group
            for group, rows in by_group.items()
            if not any(row["hi"] or at_risk(row) for row in rows)
        ]
        named = by_group if len(spared) <= _NAMED else by_group.keys() - set(spared)
        parts += [_of_group(group, by_group[group]) for group in sorted(named)]
        if len(spared) > _NAMED:
            parts.append(f"{len(spared)} {'other ' if named else ''}groups: none.")
        found.append(" ".join(parts))
    for row in document["down"]:
        since = zero + row["until"]
        found.append(
            f"{of_day(since)} {zone(since)}: {row['broker']} is still down."
            " The number of repeats is not known yet."
        )
    return found


def _of_group(group: str, rows: list[Row]) -> str:
    lo, hi = sum(row["lo"] for row in rows), sum(row["hi"] for row in rows)
    instance = instance_of(group)
    group = without_instance(group) + (f" in {instance}" if instance else "")
    left = sum(map(at_risk, rows))
    if any(TELLS_THE_SLAVE in row["languages"] for row in rows):
        group += f" (restart its {TELLS_THE_SLAVE} members: they go on committing to the slave)"
    least = "at least " if any(TELLS_NOBODY in row["languages"] for row in rows) else ""
    risk = f" {least.capitalize()}{left:,} more are re-consumed if a member starts." if left else ""
    if not hi:
        return f"Group {group}: none{' so far' if left else ''}.{risk}"
    causes = sorted({cause for row in rows for cause in row["causes"]})
    named = " or ".join(map(cause_words, causes))
    count = f"{lo:,}" if lo == hi else f"{lo:,} to {hi:,}"
    return f"Group {group}: {count} re-consumed{f' ({named})' if named else ''}.{risk}"


def at_risk(row: Row) -> int:
    """Return how many messages of a group were behind at the last sample; 0 for a canary."""
    if is_canary(row["group"]):
        return 0
    return sum(max(0, queue["reached"] - queue["now"]) for queue in row["queues"])


def _span(least: float, most: float) -> str:
    low, high = max(0.0, least), max(0.0, most)
    return f"{high:.0f} s" if round(low) == round(high) else f"{low:.0f} to {high:.0f} s"


def _return_row(each: Return, counts: Counts, doubles: Counts, zero: float) -> Row:
    back = each.outage.back or each.outage.gone
    return {
        "broker": each.broker,
        "gone_from": _seconds(each.outage.gone[0]),
        "gone_until": _seconds(each.outage.gone[1]),
        "back_from": _seconds(back[0]),
        "back_until": _seconds(back[1]),
        "gone_at": utc(zero + each.outage.gone[1]),
        "back_at": utc(zero + back[1]),
        "read": each.is_read and each.gap is None,
        "recovery": None,
        "groups": [
            _group_row(group, counts(each, group), doubles(each, group)) for group in each.groups
        ],
    }


def _group_row(group: GroupReturn, counts: Mapping[int, int], doubles: Mapping[int, int]) -> Row:
    """``counts``: of queues whose count is exact; ``doubles``: messages that were surely again."""
    spans = {queue: group.of_queue(queue) for queue in group.queues}
    spans |= {
        queue: (max(lo, doubles.get(queue, 0)), max(hi, doubles.get(queue, 0)))
        for queue, (lo, hi) in spans.items()
    }
    spans |= {queue: (count, count) for queue, count in counts.items()}
    is_exact = bool(counts) and spans.keys() == counts.keys()
    lo, hi = (sum(span[end] for span in spans.values()) for end in (0, 1))
    basis = [ROUTES, TABLES] + ([MEMBERS] if group.has_members else [])
    return {
        "group": group.group,
        "topic": group.topic,
        "lo": lo,
        "hi": hi,
        "exact": is_exact,
        "basis": basis + ([TRACE] if is_exact or any(doubles.values()) else []),
        "causes": group.causes if hi else [],
        "owner_changed": group.owner_changed,
        "languages": sorted(group.languages),
        "consumed": group.consumed,
        "queues": [
            {
                "qid": number,
                "had": queue.returned_offset,
                "reached": queue.committed_offset,
                "now": queue.master_offset,
                "lo": spans[number][0],
                "hi": spans[number][1],
            }
            for number, queue in group.queues.items()
        ],
        "safe_offsets": {str(number): offset for number, offset in group.safe_offsets.items()},
    }


def _seconds(value: float) -> float:
    return round(value, 3)
