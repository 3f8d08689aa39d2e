"""What a batch needs to know beside its rows: small, picklable, the same for all batches. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting.partials.seconds import Seconds
from failback.analytics.run.align import Clocks
from failback.analytics.run.commit_windows import CommitWindows, owner_windows, resume_windows
from failback.analytics.run.definitions import DEFAULT, FOREVER, Definitions
from failback.analytics.run.epochs import Queue, QueueEvents
from failback.analytics.run.history import GroupQueue, History

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
