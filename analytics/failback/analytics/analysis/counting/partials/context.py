"""What a batch needs to know beside its rows: small, picklable, the same for all batches. Pure.

It has the windows of commits that tell which offset an assignment was answered with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting.partials.seconds import Seconds
from failback.analytics.run.align import Clocks
from failback.analytics.run.definitions import DEFAULT, FOREVER, Definitions
from failback.analytics.run.epochs import Queue, QueueEvents
from failback.analytics.run.history import Assignment, GroupQueue, History

CommitWindows = Mapping[GroupQueue, Sequence[tuple[int, int, int]]]
"""Per queue: (assignment number, from, to), ns after run zero; ``from`` is outside."""

OWNER_END_NS: Final = 5_000_000_000
"""So much of the time of the owner before: its pulls tell the master many times a second."""
_SAMPLE_SLACK_NS: Final = 1_000_000_000
_LONG_AGO: Final = -(1 << 62)


def resume_windows(history: History) -> CommitWindows:
    """Since the last look into the answering table: commits that may explain the start."""
    found: dict[GroupQueue, list[tuple[int, int, int]]] = defaultdict(list)
    for number, a in _answered(history):
        polls = history.polls.get((a.src_addr or "", "code43"), ())
        before = [t for t, binc in polls if t <= a.t and binc == a.src_binc]
        lo = before[-1] - _SAMPLE_SLACK_NS if before else _LONG_AGO
        found[a.key].append((number, lo, a.t))
    return dict(found)


def owner_windows(history: History) -> CommitWindows:
    """Since shortly before the last owner gave the queue up: what a master must know of."""
    ends: dict[GroupQueue, list[int]] = defaultdict(list)
    for a in history.assignments:
        if a.end_t is not None:
            ends[a.key].append(a.end_t)
    found: dict[GroupQueue, list[tuple[int, int, int]]] = defaultdict(list)
    for number, a in _answered(history):
        before = [t for t in ends.get(a.key, ()) if t <= a.t]
        if before and a.src_bid == 0:
            found[a.key].append((number, max(before) - OWNER_END_NS, a.t))
    return dict(found)


def _answered(history: History) -> list[tuple[int, Assignment]]:
    return [
        (number, a)
        for number, a in enumerate(history.assignments)
        if a.src in ("STORE", "NO_ENTRY")
    ]


OK_BIN_NS: Final = 10_000_000
MAX_OK_BINS: Final = 1 << 16
QUIET_NS: Final = 5_000_000_000
"""A send counts as recovered when no failing one starts within this time after it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """One kill of a broker, as far as the client tables are asked about it; ns after run zero."""

    fid: str
    broker: str | None
    addr: str | None
    killed: int
    accepted: int | None


def instants_of(outages: Sequence[Outage]) -> list[int]:
    """When brokers went and came back, ascending: since when the first repeat is asked for."""
    found = {outage.killed for outage in outages}
    return sorted(found | {each.accepted for each in outages if each.accepted is not None})


@dataclass(frozen=True, slots=True)
class Context:
    """What a batch needs to know beside its rows. Sent to Spark's workers: small and picklable."""

    clocks: Clocks
    warmup_end_ns: int
    broadcasting: frozenset[str]
    boundaries: Mapping[GroupQueue, Sequence[int]]
    events: Mapping[Queue, QueueEvents]
    lives: Mapping[str, Sequence[tuple[int, int | None, int]]]
    """Per address: (first seen, until, bootTimestamp)."""
    ok_bin_ns: int = OK_BIN_NS
    """Width of the bins of successes: 10 ms, wider in runs of more than 11 minutes."""
    seconds: Seconds = field(default_factory=Seconds)
    """The spans of the families that count by second."""
    outages: tuple[Outage, ...] = ()
    resume_windows: CommitWindows = field(default_factory=dict)
    """Commits in between may explain the start of an assignment."""
    owner_windows: CommitWindows = field(default_factory=dict)
    """Commits in between, of the owner before it, bound what its start may be."""
    until_ns: int = FOREVER
    definitions: Definitions = DEFAULT

    def in_figures(self, begin: Ints) -> NDArray[np.bool_]:
        """Which rows, by their begin, are in figures."""
        return (begin >= self.warmup_end_ns) & (begin < self.until_ns)


def context_of(
    history: History,
    outages: Sequence[Outage],
) -> Context:
    end_ns = history.folder.phases.get("end_ns") or history.last_ns
    return Context(
        clocks=history.clocks,
        warmup_end_ns=history.folder.warmup_end_ns,
        broadcasting=history.folder.broadcasting,
        boundaries=history.boundaries(),
        events=history.events,
        lives={
            addr: [(life.first_seen, life.until, life.boot_ms) for life in lives]
            for addr, lives in history.incarnations.items()
        },
        ok_bin_ns=max(OK_BIN_NS, -(-end_ns // MAX_OK_BINS)),
        seconds=Seconds.of(end_ns, (step.t for step in history.faults if step.t >= 0)),
        outages=tuple(outages),
        resume_windows=resume_windows(history),
        owner_windows=owner_windows(history),
        until_ns=history.folder.until_ns,
        definitions=history.folder.definitions,
    )
