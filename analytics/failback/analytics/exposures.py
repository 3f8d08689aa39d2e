"""Exposure of a run: what a kill of the master would have repeated, second by second. Pure.

A new owner starts at what a broker's copy of the offset says: the file that the master would
load, or the slave's table. What had been delivered beyond the older of the two at an instant is
what a kill at that instant would have brought again: the rate times the age of the copy, queue by
queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from failback.analytics.history import GroupQueue, OffsetSample
from failback.analytics.measures import NS, Figures, Row, group_names

MAX_INSTANTS: Final = 2_000
COPIES: Final = (("file", 0), ("code43", 1))
"""What would answer: consumerOffset.json of the master, the table of a slave."""

Curve = NDArray[np.int64]


def exposure_figures(figures: Figures) -> dict[str, Row]:
    """``exposure{}``: per group the median, the most, and the value when the first master died."""
    instants = instants_of(figures)
    found: dict[str, Row] = {}
    curves = exposure_curves(figures, instants)
    outages = figures.analysis.context.outages
    for group in group_names(figures):
        mine = {broker: curve for (grp, broker), curve in curves.items() if grp == group}
        if not mine:
            found[group] = {"p50": None, "max": None, "at_kill": None, "broker": None}
            continue
        # One kill hits one pair: the one that is worst off.
        worst = max(sorted(mine), key=lambda broker: int(mine[broker].max()))
        at_kill = None
        if outages and outages[0].broker in mine:
            before = instants[: int(np.searchsorted(instants, outages[0].killed, "right"))]
            if before.size:
                at_kill = int(mine[outages[0].broker][before.size - 1])
        shown = mine[worst][_alive(figures, instants, worst)]
        found[group] = {
            "p50": int(np.percentile(shown, 50, method="nearest")) if shown.size else None,
            "max": int(shown.max()) if shown.size else None,
            "at_kill": at_kill,
            "broker": worst,
        }
    return found


def instants_of(figures: Figures) -> Curve:
    """Full seconds from the end of the warm-up to the end of deliveries, fewer in long runs."""
    seconds = [at for counts in figures.seconds.values() for at in counts]
    if not seconds:
        return np.empty(0, np.int64)
    begin = max(min(seconds), -(-figures.warmup_end_ns // NS))
    end = min(max(seconds) + 1, figures.until_ns // NS)
    step = max(1, -(-(end - begin) // MAX_INSTANTS))
    return np.arange(begin, end + 1, step, dtype=np.int64) * NS


def exposure_curves(figures: Figures, instants: Curve) -> dict[tuple[str, str], Curve]:
    """Per (group, broker) the exposure at each instant; only where a copy was sampled."""
    samples = figures.analysis.history.samples
    fronts = _fronts(figures)
    found: dict[tuple[str, str], Curve] = {}
    if not instants.size:
        return found
    for key, front in fronts.items():
        gap: Curve | None = None
        for source, bid in COPIES:
            mine = _copies(samples, key, source, bid)
            if mine is None:
                continue
            held, known = _at(mine, instants)
            lost = np.where(known, np.maximum(0, front_at(front, instants) - held), 0)
            gap = lost if gap is None else np.maximum(gap, lost)
        if gap is not None:
            place = (key.grp, key.broker)
            found[place] = found[place] + gap if place in found else gap
    return found


def _copies(
    samples: Mapping[tuple[GroupQueue, str, int], Sequence[OffsetSample]],
    key: GroupQueue,
    source: str,
    bid: int,
) -> Sequence[OffsetSample] | None:
    if bid == 0:
        return samples.get((key, source, 0))
    slaves = [number for (queue, of, number) in samples if queue == key and of == source and number]
    return samples[key, source, min(slaves)] if slaves else None


def _fronts(figures: Figures) -> dict[GroupQueue, list[tuple[int, int]]]:
    """Per queue (end of the second, highest offset delivered + 1), ascending."""
    found: dict[GroupQueue, list[tuple[int, int]]] = defaultdict(list)
    for row in figures.values("front"):
        key = GroupQueue(row["grp"], row["broker"], row["topic"], row["n1"])
        if not key.ptopic.startswith("%RETRY%"):
            found[key].append(((row["n2"] + 1) * NS, row["value"]))
    return {key: sorted(rows) for key, rows in found.items()}


def front_at(front: Sequence[tuple[int, int]], instants: Curve) -> Curve:
    """The highest offset that had been delivered at each instant; 0 before the first."""
    times = np.array([at for at, _ in front], np.int64)
    values = np.maximum.accumulate(np.array([value for _, value in front], np.int64))
    at = np.searchsorted(times, instants, "right") - 1
    return np.where(at >= 0, values[np.maximum(at, 0)], 0)


def _at(samples: Sequence[OffsetSample], instants: Curve) -> tuple[Curve, Any]:
    """What a copy held at each instant, and whether anybody had looked by then."""
    times = np.array([sample.t for sample in samples], np.int64)
    values = np.array([sample.off for sample in samples], np.int64)
    at = np.searchsorted(times, instants, "right") - 1
    return values[np.maximum(at, 0)], at >= 0


def _alive(figures: Figures, instants: Curve, broker: str) -> Any:
    """Instants at which the broker's master was up."""
    up = np.ones(instants.size, np.bool_)
    for outage in figures.analysis.context.outages:
        if outage.broker in (None, broker):
            end = instants[-1] if outage.accepted is None else outage.accepted
            up &= ~((instants >= outage.killed) & (instants <= end))
    return up
