"""Repeats by age, what a memory of keys would have caught, and how far they reached. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting import families
from failback.analytics.report.measures.dups import Dups
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import NS, Row, quantile, ratio, seconds

_DAY_NS: Final = 86_400 * NS
AGE_EDGES_NS: Final = (
    *(edge for k in range(30) if (edge := round(10 ** (7 + k / 4))) < _DAY_NS),
    _DAY_NS,
)
"""10 ms to one day, four bins per factor of ten."""
MAX_KEYS_LOG2: Final = 24
_SUCCESS: Final = ("et", "did", "lane", "lseq", "fkey")


def ages_of(after_success: Dups) -> Row:
    ages = _ages(after_success)
    at = np.searchsorted(ages, np.array(AGE_EDGES_NS), "right").tolist()
    points = {
        name: quantile(ages, share)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }
    return {
        **{name: None if value is None else seconds(value) for name, value in points.items()},
        "histogram": [
            {"le": seconds(edge), "count": count}
            for edge, count in zip(AGE_EDGES_NS, at, strict=True)
        ],
    }


def _ages(after_success: Dups) -> Ints:
    """How long after the first success repeats after the success began, ascending."""
    return np.sort(after_success.ints("bt") - after_success.ints("ok_end"))


def dedupe_of(figures: Figures, name: str, after_success: Dups) -> Row:
    """What share of them a memory of T seconds or N keys would have caught."""
    ages = _ages(after_success)
    by_seconds = [
        {
            "window": seconds(edge),
            "share": ratio(int(np.searchsorted(ages, edge, "right")), len(ages)),
        }
        for edge in AGE_EDGES_NS
    ]
    if not len(after_success):
        return {"by_seconds": [], "by_keys": []}
    bins, total, width = _first_successes(figures, name)
    width_ns = figures.analysis.context.ok_bin_ns
    begin, end = after_success.ints("bt") // width_ns, after_success.ints("ok_end") // width_ns
    needed = _at(bins, total, begin) - _at(bins, total, end)
    error = _at(bins, width, begin) + _at(bins, width, end)
    by_keys = []
    for power in range(MAX_KEYS_LOG2 + 1):
        keys = 1 << power
        caught = int((needed <= keys).sum())
        open_ = int((np.abs(needed - keys) <= error).sum())
        by_keys.append(
            {
                "keys": keys,
                "share": ratio(caught, len(after_success)),
                "error": ratio(open_, len(after_success)),
            }
        )
        if (needed + error <= keys).all():
            break
    return {"by_seconds": by_seconds, "by_keys": by_keys}


def _first_successes(figures: Figures, name: str) -> tuple[Any, Any, Any]:
    """Per 10 ms bin: first successes up to and with it, and in it. Repeated ones are taken out."""
    every = figures.table(families.SUCCESSES)
    counts = Columns(every.filter(pc.equal(every.column("grp"), name)))
    everything = figures.analysis.repeats.select(["grp", "status", *_SUCCESS])
    good = pc.and_(
        pc.equal(everything.column("grp"), name), pc.equal(everything.column("status"), "SUCCESS")
    )
    ends = Columns(everything.select(_SUCCESS).filter(good))
    order = np.lexsort((ends.ints("did"), ends.ints("et")))
    _, first = np.unique(ends.dense("lane", "lseq", "fkey")[order], return_index=True)
    again = np.delete(order, first)
    repeated = ends.ints("et")[again] // figures.analysis.context.ok_bin_ns
    bins, place = np.unique(np.append(counts.ints("bin"), repeated), return_inverse=True)
    width = np.zeros(bins.size, np.int64)
    np.add.at(width, place, np.append(counts.ints("value"), np.full(repeated.size, -1)))
    return bins, np.cumsum(width), width


def _at(bins: Any, values: Any, wanted: Any) -> Any:
    """The value of the last bin at or before each wanted one; 0 before the first."""
    at = np.searchsorted(bins, wanted, "right") - 1
    return np.where(at >= 0, values[np.maximum(at, 0)], 0) if bins.size else np.zeros(len(wanted))


def affected_of(figures: Figures, name: str, dups: Dups) -> Row:
    hit = dups.distinct("broker", "ptopic", "qid")
    depths = figures.depths(families.COPY)
    mine = depths.filter(pc.equal(depths.column("grp"), name))
    all_ = set(zip(*(mine.column(c).to_pylist() for c in ("broker", "topic", "qid")), strict=True))
    return {
        "queues": hit,
        "queue_share": ratio(hit, len(all_)),
        "members": dups.distinct("client_id"),
        "keys": dups.where(dups.valid("okey"), "okey").distinct("okey"),
    }
