"""What producers sent, what was acknowledged, and how long answers took. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import ceil
from typing import Any

from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.families import Family
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import Row


def send_figures(figures: Figures, topics: Sequence[str]) -> Row:
    """Messages sent to ``topics``: distinct, acknowledged, and of open outcome."""
    sent = figures.sets(families.SENT, figures_only=True)
    acked = union_of(figures, families.ACKED, families.DEGRADED)
    doubtful = figures.sets(families.DOUBTFUL)
    empty = IntervalSet()
    mine = {key: found for key, found in sent.items() if key[0] in topics}
    return {
        "produced": sum(len(found) for found in mine.values()),
        "acknowledged": sum(len(found & acked.get(key, empty)) for key, found in mine.items()),
        "ambiguous_sends": sum(
            len((found - acked.get(key, empty)) & doubtful.get(key, empty))
            for key, found in mine.items()
        ),
    }


def union_of(
    figures: Figures, *wanted: Family, lanes: Collection[int] | None = None
) -> dict[tuple[Any, ...], IntervalSet]:
    """Interval sets of families by their key, which is the same; of some lanes, where given."""
    found: dict[tuple[Any, ...], IntervalSet] = {}
    for family in wanted:
        for key, members in figures.sets(family, lanes=lanes).items():
            found[key] = found[key] | members if key in found else members
    return found


def producer_figures(figures: Figures) -> Row:
    """``producer``: attempts by outcome, resends, and latency of answered sends from their due."""
    attempts = Counter({row["result"]: row["value"] for row in figures.values(families.ATTEMPTS)})
    produced = sum(len(s) for s in figures.sets(families.SENT, figures_only=True).values())
    bins = sorted(
        (row["latency_bin"], row["value"]) for row in figures.values(families.SEND_LATENCIES)
    )
    total = sum(count for _, count in bins)

    def latency(share: float) -> float | None:
        reached = 0
        for number, count in bins:
            reached += count
            if reached >= ceil(share * total):
                return float(round((number + 1) / 10, 1))  # upper edge of a bin of 0.1 ms
        return None

    return {
        "attempts": attempts.total(),
        "timeouts": attempts["TIMEOUT"],
        "conn_errors": attempts["CONN"],
        "degraded": attempts["OK_DEGRADED"],
        "resends": attempts.total() - produced if attempts else 0,
        "latency_ms": {
            name: latency(share)
            for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))
        },
    }
