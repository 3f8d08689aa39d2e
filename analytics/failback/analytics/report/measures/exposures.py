"""Exposure of a run: what a kill of the master would have repeated, second by second. Pure.

A new owner starts at what a broker's copy of the offset says: the file that the master would load,
or the slave's table. Messages delivered beyond the older of the two at an instant are those that a
kill at that instant would have redelivered. Per queue that is the rate times the age of the copy.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting import families
from failback.analytics.report.measures.curves import last_at
from failback.analytics.report.measures.lookups import Figures, group_names
from failback.analytics.report.measures.numbers import NS, Row
from failback.analytics.run.history import GroupQueue, History, Series
from failback.protocol.message import RETRY_PREFIX

MAX_INSTANTS: Final = 2_000


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


def instants_of(figures: Figures) -> Ints:
    """Full seconds from the end of the warm-up to the end of deliveries, fewer in long runs."""
    rates = figures.rates.values()
    if not rates:
        return np.empty(0, np.int64)
    begin = max(min(int(rate.at[0]) for rate in rates), -(-figures.warmup_end_ns // NS))
    end = min(max(int(rate.at[-1]) for rate in rates) + 1, figures.until_ns // NS)
    ends = np.array([begin - 1, end]) * NS
    spans = figures.spans  # what was delivered is known at their ends
    _, last = spans.between(*(spans.last(each) for each in ends.reshape(2, 1)))
    instants: Ints = last + 1
    return instants[:: max(1, -(-instants.size // MAX_INSTANTS))] * NS


def exposure_curves(figures: Figures, instants: Ints) -> dict[tuple[str, str], Ints]:
    """Per (group, broker) the exposure at each instant; only where a copy was sampled."""
    found: dict[tuple[str, str], Ints] = {}
    if not instants.size:
        return found
    history = figures.analysis.history
    looks = history.looks.held_at(instants)
    for key, ends in figures.curves(families.DELIVERED_END).items():
        if key.ptopic.startswith(RETRY_PREFIX):
            continue
        delivered = ends.highest(instants // NS - 1)  # by the end of the second before
        gap: Ints | None = None
        for copy in _copies(history, key):
            times, values = looks[copy]
            known = instants >= times[0] if times.size else np.zeros(instants.size, bool)
            held = last_at(times, values, instants)
            lost = np.where(known, np.maximum(0, delivered - held), 0)
            gap = lost if gap is None else np.maximum(gap, lost)
        if gap is not None:
            place = (key.grp, key.broker)
            found[place] = found[place] + gap if place in found else gap
    return found


def _copies(history: History, key: GroupQueue) -> list[Series]:
    """What would answer, if it was sampled: consumerOffset.json of the master, a slave's table."""
    known = history.copies_of(key)
    slaves = sorted(bid for source, bid in known if source == "code43" and bid)
    wanted = [("file", 0), *(("code43", bid) for bid in slaves[:1])]
    return [(key, source, bid) for source, bid in wanted if (source, bid) in known]


def _alive(figures: Figures, instants: Ints, broker: str) -> Any:
    """Instants at which the broker's master was up."""
    up = np.ones(instants.size, np.bool_)
    for outage in figures.analysis.context.outages:
        if outage.broker in (None, broker):
            end = instants[-1] if outage.accepted is None else outage.accepted
            up &= ~((instants >= outage.killed) & (instants <= end))
    return up
