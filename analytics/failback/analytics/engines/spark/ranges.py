"""Ranges of repeated keys as Spark can join and prune by them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from failback.analytics.columns import Columns
from failback.analytics.intervals import IntervalSet

MAX_PIECES: Final = 200_000
MAX_LITERALS: Final = 200
_MIN_BUCKET_BITS: Final = 8


def union_of_lanes(messages: pa.Table) -> pa.Table:
    """What any group got twice, per lane."""
    c = Columns(messages)
    lane, lo, hi = c.ints("n1"), c.ints("lo"), c.ints("hi")
    found = [
        (one, *pair)
        for one in np.unique(lane[lane >= 0]).tolist()
        for pair in IntervalSet.of(lo[lane == one], hi[lane == one])
    ]
    columns = zip(*found, strict=True) if found else ([], [], [])
    return pa.table(
        dict(zip(("n1", "lo", "hi"), (pa.array(x, pa.int64()) for x in columns), strict=True))
    )


def coarse(messages: pa.Table, copies: pa.Table) -> str:
    """A predicate that every candidate meets and that row-group statistics can judge."""
    lanes = _spans(messages, ("n1",))
    queues = _spans(copies, ("n1",))
    if not (lanes or queues) or len(lanes) + len(queues) > MAX_LITERALS:
        return "true"
    parts = [f"d.lane = {n} AND d.lseq >= {lo} AND d.lseq < {hi}" for n, lo, hi in lanes]
    parts += [f"d.qid = {n} AND d.qoff >= {lo} AND d.qoff < {hi}" for n, lo, hi in queues]
    return " OR ".join(f"({part})" for part in parts)


def _spans(depths: pa.Table, names: Sequence[str]) -> list[tuple[int, int, int]]:
    """Least and greatest of the ranges of each key."""
    joined = depths.group_by(list(names)).aggregate([("lo", "min"), ("hi", "max")])
    columns = (joined.column(name).to_pylist() for name in (*names, "lo_min", "hi_max"))
    return sorted(zip(*columns, strict=True))


def pieces(depths: pa.Table, names: Sequence[str]) -> tuple[int, pa.Table]:
    """Ranges cut at multiples of 2**bits, so that a range join can be an equality join.

    Returns:
        The bits, and rows of ``names``, ``piece``, ``lo``, ``hi``.
    """
    c = Columns(depths)
    lo, hi = c.ints("lo"), c.ints("hi")
    bits = _MIN_BUCKET_BITS
    while int(((hi - 1 >> bits) - (lo >> bits) + 1).sum()) > MAX_PIECES and bits < 40:
        bits += 2
    count = (hi - 1 >> bits) - (lo >> bits) + 1
    of = np.repeat(np.arange(lo.size), count)
    step = np.arange(of.size) - np.repeat(np.cumsum(count) - count, count)
    piece = (lo >> bits)[of] + step
    kept = depths.select(list(names)).take(pa.array(of))
    columns: dict[str, Any] = {name: kept.column(name) for name in names}
    return bits, pa.table(columns | {"piece": piece, "lo": lo[of], "hi": hi[of]})
