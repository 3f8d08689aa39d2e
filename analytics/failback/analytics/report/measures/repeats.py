"""Repeats by age, what a memory of keys would have caught, and how far they reached. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.families import Family
from failback.analytics.analysis.counting.partials.resolution import (
    AGE_EDGES_NS,
    AGE_ERROR,
    KEYS_ERROR,
)
from failback.analytics.report.measures.curves import last_at
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import Row, quantile_of_counts, ratio, seconds

MAX_KEYS_LOG2: Final = 24


def ages_of(figures: Figures, name: str) -> Row:
    ages, below = _ages(figures, name)
    at = last_at(ages, below, np.array(AGE_EDGES_NS)).tolist()
    points = {
        name: quantile_of_counts(ages, below, share)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }
    return {
        **{name: None if value is None else seconds(value) for name, value in points.items()},
        "histogram": [
            {"le": seconds(edge), "count": count}
            for edge, count in zip(AGE_EDGES_NS, at, strict=True)
        ],
        **({} if figures.analysis.repeats.resolution.exact else {"error": AGE_ERROR}),
    }


def _ages(figures: Figures, name: str) -> tuple[Ints, Ints]:
    """How long after the first success repeats began, ascending; how many are no older."""
    c = Columns(_of_group(figures, families.DUP_AGES, name))
    order = np.argsort(c.ints("age"), kind="stable")
    return c.ints("age")[order], np.cumsum(c.ints("value")[order])


def _of_group(figures: Figures, family: Family, name: str) -> pa.Table:
    every = figures.table(family)
    return every.filter(pc.equal(every.column("grp"), name))


def dedupe_of(figures: Figures, name: str) -> Row:
    """What share of them a memory of T seconds or N keys would have caught."""
    ages, below = _ages(figures, name)
    if not ages.size:
        return {"by_seconds": [], "by_keys": []}
    every = int(below[-1])
    caught_in = last_at(ages, below, np.array(AGE_EDGES_NS)).tolist()
    by_seconds = [
        {"window": seconds(edge), "share": ratio(caught, every)}
        for edge, caught in zip(AGE_EDGES_NS, caught_in, strict=True)
    ]
    bins, total, width = _first_successes(figures, name)
    pairs = Columns(_of_group(figures, families.DUP_BINS, name))
    begin, end, count = pairs.ints("begin_bin"), pairs.ints("end_bin"), pairs.ints("value")
    needed = last_at(bins, total, begin) - last_at(bins, total, end)
    error = last_at(bins, width, begin) + last_at(bins, width, end)
    by_keys = []
    for power in range(MAX_KEYS_LOG2 + 1):
        keys = 1 << power
        caught = int(count[needed <= keys].sum())
        open_ = int(count[np.abs(needed - keys) <= error].sum())
        by_keys.append({"keys": keys, "share": ratio(caught, every), "error": ratio(open_, every)})
        if (needed + error <= keys).all():
            break
    return {"by_seconds": by_seconds, "by_keys": by_keys}


def _first_successes(figures: Figures, name: str) -> tuple[Any, Any, Any]:
    """Per bin of repeats: first successes up to and with it, and in it."""
    counts, again = (
        Columns(_of_group(figures, family, name))
        for family in (families.SUCCESSES, families.SUCCESSES_AGAIN)
    )
    wide = figures.analysis.repeats.resolution.bins
    each = np.append(counts.ints("bin"), again.ints("bin")) // wide
    bins, place = np.unique(each, return_inverse=True)
    width = np.zeros(bins.size, np.int64)
    np.add.at(width, place, np.append(counts.ints("value"), -again.ints("value")))
    return bins, np.cumsum(width), width


def affected_of(figures: Figures, name: str) -> Row:
    hit = sum(queue.grp == name for queue in figures.dups_of_queues)
    all_: set[tuple[Any, ...]] = set()
    for table in (figures.depths(families.COPY), figures.table(families.COPY_TIMES)):
        mine = table.filter(pc.equal(table.column("grp"), name))
        columns = (mine.column(c).to_pylist() for c in ("broker", "topic", "qid"))
        all_ |= set(zip(*columns, strict=True))
    resolution = figures.analysis.repeats.resolution
    keys = _of_group(figures, families.DUP_KEYS, name).column("value").to_pylist()
    return {
        "queues": hit,
        "queue_share": ratio(hit, len(all_)),
        "members": _of_group(figures, families.DUP_MEMBERS, name).num_rows,
        "keys": resolution.distinct_keys(keys),
        **({} if resolution.exact else {"keys_error": KEYS_ERROR}),
    }
