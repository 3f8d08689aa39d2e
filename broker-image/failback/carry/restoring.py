"""What a restore of offsets does: a row for each queue, its preview, and what is written. Pure.

An offset never goes beyond its queue's end. A queue that ends before the kept offset has lost what
the group had consumed, or is another log: it is left alone, or goes to its end where the caller
says so. Nor does an offset go below the begin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from failback.carry.merge import Table
from failback.client.admin.queue_offsets import Span
from failback.common.text import typed
from failback.protocol.route import split_offset_key

Pairs = Mapping[str, Table]
"""Broker name → ``topic@group`` → queue → next offset."""
_SYSTEM: Final = ("CID_RMQ_SYS_", "CID_ONSAPI", "CID_ONS-HTTP-PROXY", "TOOLS_CONSUMER")
"""Groups of RocketMQ itself: transactions, tools, proxies."""
MAX_GROUPS: Final = 64
MAX_QUEUES: Final = 256
MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class OnMaster:
    """What a pair's master says; ``None`` while it does not answer."""

    address: str
    offsets: Mapping[str, Mapping[int, int]] | None = None
    offsets_at: float = 0.0
    """Unix time of that answer."""
    ranges: Mapping[tuple[str, int], Span] | None = None
    """Topic and queue → its range, of the topics that a restore is about."""
    online: frozenset[str] | None = None
    """Of the groups that a restore is about, those with running members."""

    @property
    def is_known(self) -> bool:
        """Whether it has said all that a restore needs."""
        return None not in (self.offsets, self.ranges, self.online)


Masters = Mapping[str, OnMaster]
"""Broker name → its master."""


@dataclass(frozen=True, slots=True)
class Row:
    """One queue of one group that gets another offset."""

    pair: str
    topic: str
    group: str
    queue: int
    old: int | None
    new: int
    span: Span
    kept: int
    """The kept offset, from which ``new`` differs outside of the queue."""

    @property
    def place(self) -> tuple[str, int]:
        """``topic@group`` and queue."""
        return f"{self.topic}@{self.group}", self.queue

    @property
    def is_raise(self) -> bool:
        return self.old is None or self.new > self.old

    @property
    def redelivered(self) -> int:
        return 0 if self.old is None else max(0, self.span.nearest(self.old) - self.new)

    @property
    def skipped(self) -> int:
        return 0 if self.old is None else max(0, self.new - self.span.nearest(self.old))

    @property
    def ahead(self) -> int:
        return self.span.lag(self.new)


@dataclass(frozen=True, slots=True)
class Restore:
    """All rows of a restore, and the queues of each group that are left alone."""

    rows: tuple[Row, ...]
    left_alone: Mapping[str, int]
    online: frozenset[str]
    """Groups of the restore that have running members."""
    why_alone: tuple[str, ...] = ()
    """Why the first few of those queues are left alone."""

    def only(self, is_wanted: Callable[[Row], bool]) -> Restore:
        """Return the restore of some of its rows."""
        return replace(self, rows=tuple(filter(is_wanted, self.rows)))

    def id_for(self, snapshot: str) -> str:
        """Return what names this preview: equal for equal orders to equal offsets.

        A running group moves on all the time: of it only where it goes counts.
        """
        parts = [
            (row.pair, row.topic, row.group, row.queue, row.new)
            + ((row.old,) if row.group not in self.online else ())
            for row in self.rows
        ]
        return hashlib.sha256(repr((snapshot, parts)).encode()).hexdigest()[:12]


def silent_of(kept: Pairs, masters: Masters) -> list[str]:
    """Return the pairs of a restore whose master has not said what it holds."""
    return sorted(pair for pair in kept if pair in masters and not masters[pair].is_known)


def restore_of(kept: Pairs, masters: Masters, *, cut: bool = False) -> Restore | None:
    """Return what giving ``kept`` back means now; ``None`` while a master's answer is missing.

    Pairs that the cluster has no more are left alone, as are pairs that the snapshot lacks.

    Args:
        cut: Whether a queue that ends before the kept offset goes to its end, unless it is empty.
    """
    rows: list[Row] = []
    alone: dict[str, int] = {}
    why: list[str] = []
    online: set[str] = set()
    for pair in sorted(kept):
        master = masters.get(pair)
        if master is None:
            for key, queues in kept[pair].items():
                group = split_offset_key(key)[1]
                alone[group] = alone.get(group, 0) + len(queues)
            why += [f"there is no pair {pair} now"] if kept[pair] else []
            continue
        if master.offsets is None or master.ranges is None or master.online is None:
            return None
        online |= master.online
        for key in sorted(kept[pair]):
            for queue, offset in sorted(kept[pair][key].items()):
                row = _row(pair, key, queue, offset, master, cut)
                if row is None:
                    group = split_offset_key(key)[1]
                    alone[group] = alone.get(group, 0) + 1
                    why.append(_why_alone(pair, key, queue, offset, master.ranges))
                elif row.old != row.new:
                    rows.append(row)
    return Restore(tuple(rows), alone, frozenset(online), tuple(why[:MAX_NAMED]))


def _why_alone(
    pair: str, key: str, queue: int, offset: int, ranges: Mapping[tuple[str, int], Span]
) -> str:
    topic, group = split_offset_key(key)
    where = f"queue {queue} of {topic} on {pair}"
    if (topic, queue) not in ranges:
        return f"there is no {where}"
    return f"{where} ends before {offset}, the kept offset of {group}"


def _row(pair: str, key: str, queue: int, offset: int, master: OnMaster, cut: bool) -> Row | None:
    """Return what a queue gets; ``None`` for one that is left alone."""
    topic, group = split_offset_key(key)
    assert master.ranges is not None
    assert master.offsets is not None
    found = master.ranges.get((topic, queue))
    if found is None or (offset > found.end and not (cut and found.end)):
        return None
    old = master.offsets.get(key, {}).get(queue)
    return Row(pair, topic, group, queue, old, found.nearest(offset), found, offset)


def preview(restore: Restore, snapshot: str) -> dict[str, Any]:
    """Return ``status.restore`` of a restore that is not confirmed yet."""
    names = sorted({*(row.group for row in restore.rows), *restore.left_alone})
    groups = [_group(restore, name) for name in names]
    groups.sort(key=lambda each: (-each["redelivered"] - each["skipped"], each["group"]))
    listed = [each["group"] for each in groups[:MAX_GROUPS]]
    rows = sorted(
        (row for row in restore.rows if row.group in listed),
        key=lambda row: (listed.index(row.group), row.pair, row.topic, row.queue),
    )
    return {
        "id": restore.id_for(snapshot),
        "snapshot": snapshot,
        "phase": "Preview",
        "redelivered": sum(row.redelivered for row in restore.rows),
        "skipped": sum(row.skipped for row in restore.rows),
        "ahead": sum(row.ahead for row in restore.rows),
        "groups": groups[:MAX_GROUPS],
        "queues": [_queue(row) for row in rows[:MAX_QUEUES]],
        "moreQueues": len(restore.rows) - min(len(rows), MAX_QUEUES),
    }


def still_as_seen(restore: Restore, seen: Mapping[str, Any]) -> list[Row]:
    """Return the rows whose queue has what a preview saw, as far as that lists them.

    An offset that was set since then is left alone; a running group sets offsets all the time.
    """
    listed = {
        (each["group"], each["pair"], each["topic"], each["queue"]): each.get("fromOffset")
        for each in seen["queues"]
    }

    def is_as_seen(row: Row) -> bool:
        place = (row.group, row.pair, row.topic, row.queue)
        if row.group in restore.online:
            return True
        if place in listed:
            return bool(listed[place] == row.old)
        return bool(seen["moreQueues"])

    return [row for row in restore.rows if is_as_seen(row)]


def _group(restore: Restore, name: str) -> dict[str, Any]:
    rows = [row for row in restore.rows if row.group == name]
    return {
        "group": name,
        "redelivered": sum(row.redelivered for row in rows),
        "skipped": sum(row.skipped for row in rows),
        "ahead": sum(row.ahead for row in rows),
        "leftAlone": restore.left_alone.get(name, 0),
        "online": name in restore.online,
    }


def _queue(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "group": row.group,
        "pair": row.pair,
        "topic": row.topic,
        "queue": row.queue,
        "toOffset": row.new,
    }
    return found if row.old is None else {**found, "fromOffset": row.old}


class Order(NamedTuple):
    """One offset that a master is told."""

    key: str
    """``topic@group``."""
    queue: int
    old: int | None
    """What it has now; ``None`` for none."""
    new: int


def orders(rows: Iterable[Row], masters: Masters) -> Sequence[tuple[str, tuple[Order, ...]]]:
    """Return what is written, by master's address."""
    found: dict[str, list[Order]] = {}
    for row in rows:
        order = Order(*row.place, row.old, row.new)
        found.setdefault(masters[row.pair].address, []).append(order)
    return [(address, tuple(found[address])) for address in sorted(found)]


def is_kept(key: str, groups: Sequence[str]) -> bool:
    """Tell whether an entry is of one of the groups, and of no group of RocketMQ itself."""
    group = split_offset_key(key)[1]
    return not group.startswith(_SYSTEM) and ("*" in groups or group in groups)


def chosen(pairs: Pairs, groups: Sequence[str]) -> dict[str, dict[str, dict[int, int]]]:
    """Return the entries of the groups."""
    return {
        pair: {key: dict(table[key]) for key in sorted(table) if is_kept(key, groups)}
        for pair, table in pairs.items()
    }


def restore_command(
    source: object = "",
    *,
    groups: Iterable[str] = (),
    broker: str = "",
    yes: bool = True,
    options: Iterable[str] = (),
) -> str:
    """Return the command that gives a running master kept offsets of all queues of groups.

    Args:
        source: Saved file, or folder of an observed run; empty: what slaves say now.
        groups: Their names; none: all.
        broker: Name of the pair; empty: all pairs.
        yes: Whether it writes at once; else it previews and prints what confirms that.
        options: As typed, those that name the cluster.
    """
    words = [str(source)] if str(source) else []
    words += ["--broker", broker] if broker else []
    words += [word for group in groups for word in ("--group", group)]
    return typed("failback", "offsets", "restore", *words, *(["--yes"] if yes else []), *options)
