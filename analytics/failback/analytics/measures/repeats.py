"""Repeats by age, what a memory of keys would have caught, and how far they reached. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from failback.analytics.attribution import columns_of
from failback.analytics.measures.lookups import Dup, Figures
from failback.analytics.measures.numbers import NS, Row, quantile, ratio, seconds

_DAY_NS: Final = 86_400 * NS
AGE_EDGES_NS: Final = (
    *(edge for k in range(30) if (edge := round(10 ** (7 + k / 4))) < _DAY_NS),
    _DAY_NS,
)
"""10 ms to one day, four bins per factor of ten."""
MAX_KEYS_LOG2: Final = 24


def ages_of(useless: Sequence[Dup]) -> Row:
    ages = sorted(_age(dup) for dup in useless)
    at = np.searchsorted(np.array(ages, np.int64), np.array(AGE_EDGES_NS), "right").tolist()
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


def _age(dup: Dup) -> int:
    """How long after the first success a useless repeat began."""
    assert dup.ok_end is not None
    return dup.bt - dup.ok_end


def dedupe_of(figures: Figures, name: str, useless: Sequence[Dup]) -> Row:
    """What share of provably useless repeats a memory of T seconds or N keys would have caught."""
    ages = np.sort(np.array([_age(dup) for dup in useless], np.int64))
    by_seconds = [
        {
            "window": seconds(edge),
            "share": ratio(int(np.searchsorted(ages, edge, "right")), len(ages)),
        }
        for edge in AGE_EDGES_NS
    ]
    if not useless:
        return {"by_seconds": [], "by_keys": []}
    bins, total, width = _first_successes(figures, name)
    width_ns = figures.analysis.context.ok_bin_ns
    begin = np.array([dup.bt for dup in useless], np.int64) // width_ns
    end = np.array([dup.ok_end for dup in useless], np.int64) // width_ns
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
                "share": ratio(caught, len(useless)),
                "error": ratio(open_, len(useless)),
            }
        )
        if (needed + error <= keys).all():
            break
    return {"by_seconds": by_seconds, "by_keys": by_keys}


def _first_successes(figures: Figures, name: str) -> tuple[Any, Any, Any]:
    """Per 10 ms bin: first successes up to and with it, and in it. Repeated ones are taken out."""
    counts: Counter[int] = Counter(
        {row["n1"]: row["value"] for row in figures.values("ok_bin") if row["grp"] == name}
    )
    everything = figures.analysis.repeats
    width_ns = figures.analysis.context.ok_bin_ns
    good = pc.and_(
        pc.equal(everything.column("grp"), name), pc.equal(everything.column("status"), "SUCCESS")
    )
    ends = columns_of(everything.filter(good), "et", "did", "lane", "lseq", "fkey")
    seen: set[tuple[Any, ...]] = set()
    for et, _, *message in sorted(ends):
        if tuple(message) in seen:
            counts[et // width_ns] -= 1
        seen.add(tuple(message))
    bins = np.array(sorted(counts), np.int64)
    width = np.array([counts[one] for one in bins.tolist()], np.int64)
    return bins, np.cumsum(width), width


def _at(bins: Any, values: Any, wanted: Any) -> Any:
    """The value of the last bin at or before each wanted one; 0 before the first."""
    at = np.searchsorted(bins, wanted, "right") - 1
    return np.where(at >= 0, values[np.maximum(at, 0)], 0) if bins.size else np.zeros(len(wanted))


def blast_of(figures: Figures, name: str, dups: Sequence[Dup]) -> Row:
    hit = {dup.queue for dup in dups}
    depths = figures.depths("copy")
    mine = depths.filter(pc.equal(depths.column("grp"), name))
    all_ = set(zip(*(mine.column(c).to_pylist() for c in ("broker", "topic", "n1")), strict=True))
    return {
        "queues": len(hit),
        "queue_share": ratio(len(hit), len(all_)),
        "members": len({dup.client_id for dup in dups}),
        "keys": len({dup.okey for dup in dups if dup.okey is not None}),
    }
