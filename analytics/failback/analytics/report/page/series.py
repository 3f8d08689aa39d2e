"""What figures over time are drawn from: frozen values, made by :mod:`time_series`. No plotly.

Times are nanoseconds after run zero, counts are messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from failback.analytics.report.measures.curves import extremes

NS_PER_SECOND: Final = 1_000_000_000
MAX_POINTS_PER_TRACE: Final = 20_000

OFFSET_SERIES: Final[Mapping[str, tuple[str, str, str]]] = {
    "delivered": ("delivered to the handler", "#1B1B1B", "solid"),
    "client_memory": ("client memory (committed from)", "#332288", "dash"),
    "master_table": ("master, in memory", "#882255", "solid"),
    "master_file": ("master, consumerOffset.json", "#999933", "dot"),
    "slave_table": ("slave, in memory", "#44AA99", "dashdot"),
}
"""Copies of an offset: name, colour (light theme) and dash of each."""


@dataclass(frozen=True, slots=True)
class FaultBand:
    """One fault: what was intended and what a witness observed, in ns after run zero."""

    name: str
    intended_ns: int | None
    effect_ns: int | None
    heal_ns: int | None
    intended_end_ns: int | None = None
    proved: bool = True


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: times in ns after run zero and values of one unit."""

    times_ns: Sequence[int]
    values: Sequence[float]

    def thinned(self, limit: int = MAX_POINTS_PER_TRACE) -> Series:
        """Keep the least and greatest value of each of ``limit / 2`` equal spans of points."""
        if len(self.times_ns) <= limit:
            return self
        chosen = extremes(self.values, limit).tolist()
        return Series([self.times_ns[i] for i in chosen], [self.values[i] for i in chosen])

    @property
    def seconds(self) -> list[float]:
        return [time / NS_PER_SECOND for time in self.times_ns]


@dataclass(frozen=True, slots=True)
class TimelineData:
    """Rates and latencies over a run, its faults and what else happened."""

    rates: Mapping[str, Series]
    """Messages per second: sends, deliveries, duplicates."""

    send_latency: Series
    """Milliseconds, per attempt."""

    failed_sends: Series
    """Milliseconds until they failed."""

    faults: Sequence[FaultBand]
    events: Sequence[tuple[int, str]] = ()
    """Route change, rebalance, registration, slave sync: (ns, text)."""

    window_ns: tuple[int, int] | None = None
    """The time to show; without it, that of the points."""

    title: str = "Rates and latency"

    @property
    def has_data(self) -> bool:
        """Whether anything would be drawn."""
        curves = (*self.rates.values(), self.send_latency, self.failed_sends)
        return any((self.faults, self.events, *(each.times_ns for each in curves)))


@dataclass(frozen=True, slots=True)
class StaircaseData:
    """One queue's offset as five parties know it, each a step curve."""

    group: str
    queue: str
    series: Mapping[str, Series]
    """By key of :data:`OFFSET_SERIES`."""

    faults: Sequence[FaultBand]
    drops: Sequence[tuple[int, float, str]] = ()
    """(ns, value after, text): each downward step, with its source."""

    window_ns: tuple[int, int] | None = None
    again: int | None = None
    """Duplicates of the queue, where they are known."""


@dataclass(frozen=True, slots=True)
class CauseTimeData:
    """Duplicates per second by report group, all on the same bins."""

    seconds: Sequence[float]
    """Where each bin begins."""

    rates: Mapping[str, Sequence[float]]
    faults: Sequence[FaultBand] = ()


@dataclass(frozen=True, slots=True)
class HeatData:
    """Re-deliveries per second: queues x bins of time."""

    queues: Sequence[str]
    seconds: Sequence[float]
    rates: Sequence[Sequence[float]]
    windows: Sequence[tuple[str, float, float]] = ()
    """(queue, from, to) in seconds: what one assignment repeated."""
