"""Lookups into the result tables of a run, shared by the parts of a report. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.causes.windows import cause_of
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.families import Family
from failback.analytics.analysis.counting.partials.seconds import Seconds
from failback.analytics.analysis.engines.joins import interval_sets
from failback.analytics.analysis.results import Analysis
from failback.analytics.report.measures.curves import Curve, curves_of, held_curves_of
from failback.analytics.report.measures.numbers import Row
from failback.analytics.run.history import GroupQueue, row_id


class ResumeCommit(NamedTuple):
    """A commit near the answer that an assignment starts from."""

    bid: int
    binc: int
    off: int
    row: str
    """``table/process number/seq``."""


class OwnerCommit(NamedTuple):
    """A commit to a master near the end of the owner before. ``pull``: a pull carried it."""

    binc: int
    off: int
    pull: bool


@dataclass(frozen=True, slots=True)
class DupCount:
    """Duplicates of one kind in one queue."""

    queue: GroupQueue
    cause: str | None
    success_order: int
    """0: order to the first success unknown, 1: before it, 2: after it."""
    count: int


class Figures:
    """Lookups shared by the parts of a report."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.warmup_end_ns = analysis.folder.warmup_end_ns
        self.until_ns = analysis.folder.until_ns
        self._values: dict[str, list[Row]] = {}
        self._curves: dict[str, dict[GroupQueue, Curve]] = {}

    def table(self, family: Family) -> pa.Table:
        """Sums or extremes of a family: its key's columns and ``value``."""
        repeats, counts = self.analysis.repeats.values, self.analysis.counts.values
        return family.of(repeats if family.name in repeats else counts)

    def values(self, family: Family) -> list[Row]:
        """The same as rows, for families with few."""
        if family.name not in self._values:
            self._values[family.name] = self.table(family).to_pylist()
        return self._values[family.name]

    def curves(self, family: Family) -> dict[GroupQueue, Curve]:
        """The same by queue and second, of a family with such a key."""
        if family.name not in self._curves:
            self._curves[family.name] = curves_of(self.table(family))
        return self._curves[family.name]

    @cached_property
    def dups(self) -> list[DupCount]:
        """Duplicates by queue, cause and order to the first success."""
        return [
            DupCount(GroupQueue.of(row), cause_of(row["cause"]), row["success_order"], row["value"])
            for row in self.values(families.DUPS)
        ]

    @cached_property
    def dups_of_queues(self) -> Counter[GroupQueue]:
        """Duplicates by queue."""
        found: Counter[GroupQueue] = Counter()
        for each in self.dups:
            found[each.queue] += each.count
        return found

    def dups_after(self, outage: int, group: str, wanted: Callable[[str | None], bool]) -> int:
        """Duplicates of some causes that began after an outage did, and before the next one."""
        return sum(
            row["value"]
            for row in self.values(families.CAUSE_OUTAGES)
            if row["since_outage"] == outage
            and row["grp"] == group
            and wanted(cause_of(row["cause"]))
        )

    @property
    def spans(self) -> Seconds:
        """What a second is in the curves: a span, by its last second."""
        return self.analysis.context.seconds

    @property
    def rates(self) -> dict[GroupQueue, Curve]:
        """Deliveries per queue and span of seconds."""
        return self.curves(families.RATE)

    @cached_property
    def finished(self) -> dict[GroupQueue, dict[tuple[int, int], Curve]]:
        """Per queue and holder the highest offset + 1 that ended in each second."""
        return held_curves_of(self.table(families.FINISHED))

    @cached_property
    def unfinished(self) -> dict[GroupQueue, dict[tuple[int, int], Curve]]:
        """Per queue and holder the lowest offset that was in work at the end of each second."""
        return held_curves_of(self.table(families.UNFINISHED))

    @cached_property
    def resume_commits(self) -> dict[int, list[ResumeCommit]]:
        """Per assignment the commits near its answer, of equal ones of a process the last."""
        found: dict[int, list[ResumeCommit]] = defaultdict(list)
        for row in self.values(families.RESUME_COMMITS):
            name = row_id("commit", row["proc_no"], row["value"])
            found[row["assignment"]].append(ResumeCommit(row["bid"], row["binc"], row["off"], name))
        return found

    @cached_property
    def owner_commits(self) -> dict[int, list[OwnerCommit]]:
        """Per assignment the commits to its master since shortly before the last owner's end."""
        found: dict[int, list[OwnerCommit]] = defaultdict(list)
        for row in self.values(families.OWNER_COMMITS):
            commit = OwnerCommit(row["binc"], row["off"], bool(row["pull"]))
            found[row["assignment"]].append(commit)
        return found

    def depths(self, family: Family) -> pa.Table:
        """Intervals of a family: its key's columns, ``lo``, ``hi``, ``depth`` and ``figure``."""
        return family.of(self.analysis.counts.depths)

    def group_sums(self, family: Family) -> Counter[str]:
        return Counter({row["grp"]: row["value"] for row in self.values(family)})

    def sets(
        self,
        family: Family,
        *,
        figures_only: bool = False,
        lanes: Collection[int] | None = None,
    ) -> dict[tuple[Any, ...], IntervalSet]:
        """Interval sets of a family by its key; of some lanes only, where given."""
        table = self.depths(family)
        if figures_only:
            table = table.filter(pc.greater(table.column("figure"), 0))
        if lanes is not None:
            wanted = pa.array(sorted(lanes), pa.int64())
            table = table.filter(pc.is_in(table.column("lane"), wanted))
        return interval_sets(table, *family.stored)


def group_names(figures: Figures) -> list[str]:
    """Groups that are declared, assigned or delivered to; broadcasting ones per client."""
    folder = figures.analysis.folder
    seen = set(figures.group_sums(families.DELIVERED))
    seen |= {a.key.grp for a in figures.analysis.history.assignments}
    seen |= {group.name for group in folder.groups if not group.broadcasting}
    return sorted(seen)


def declared_group(figures: Figures, name: str) -> str:
    """The name in ``run.json``: without the client of a broadcasting group."""
    group = name.rsplit("@", 1)[0]
    return group if group in figures.analysis.folder.broadcasting else name


def topics_of(figures: Figures, name: str) -> list[str]:
    """Topics that the group reads, as declared, else as assigned; its own retry topic left out."""
    declared = declared_group(figures, name)
    topics = {g.topic for g in figures.analysis.folder.groups if g.name == declared}
    if not topics:
        keys = (a.key for a in figures.analysis.history.assignments if a.key.grp == name)
        topics = {key.ptopic for key in keys if not key.ptopic.startswith("%")}
    return sorted(topics)
