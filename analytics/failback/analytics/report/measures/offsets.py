"""How far consumption went back, and what became of the offsets of brokers. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.counting import families
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import Row
from failback.analytics.report.measures.resume import explain
from failback.analytics.run.history import Assignment

MAX_ROLLBACKS: Final = 10_000


def rollback_figures(figures: Figures) -> tuple[list[Row], list[Row]]:
    """``rollbacks[]`` (worst first) and ``truncated[]``."""
    history = figures.analysis.history
    rollbacks: list[Row] = []
    truncated: list[Row] = []
    for number, (a, distance) in enumerate(
        zip(history.assignments, figures.analysis.distances, strict=True)
    ):
        if not figures.warmup_end_ns <= a.t < figures.until_ns or a.start_off < 0:
            continue
        place = {**a.key.place, "t_ns": a.t}
        if distance.truncated:
            truncated.append({**place, "messages": distance.truncated})
        if distance.d_commit or distance.d_proc:
            again = figures.analysis.redelivered.get(number)
            explained = explain(figures, number, a)
            rollbacks.append(
                {
                    **place,
                    "start": a.start_off,
                    "src": a.src,
                    "src_bid": a.src_bid,
                    "src_binc": a.src_binc,
                    "committed": distance.committed,
                    "confirmed": _confirmed(figures, a),
                    "processed": distance.processed,
                    "d_commit": distance.d_commit,
                    "d_proc": distance.d_proc,
                    "redelivered": again.messages if again else 0,
                    "age_seconds": _age(figures, number, distance.committed),
                    "explained_by": explained.by,
                    "explained_rows": list(explained.rows),
                    "fid": history.fault_at(a.t),
                }
            )
    rollbacks.sort(key=lambda r: (-r["d_commit"], -r["d_proc"], r["group"], r["broker"],
                                  r["topic"], r["qid"], r["t_ns"]))  # fmt: skip
    return rollbacks[:MAX_ROLLBACKS], truncated


def _confirmed(figures: Figures, a: Assignment) -> int | None:
    """The highest offset that a broker was seen to hold before the assignment."""
    found = [
        sample.off
        for (source, _), samples in figures.analysis.history.copies_of(a.key).items()
        if source == "code43"
        for sample in samples
        if sample.t <= a.t
    ]
    return max(found, default=None)


def _age(figures: Figures, number: int, committed: int | None) -> float | None:
    """Store time between the start and what had been committed, from the repeats in between."""
    if committed is None:
        return None
    newest, oldest = (
        {row["holder"]: row["value"] for row in figures.values(family)}.get(number)
        for family in (families.NEWEST_AGAIN, families.OLDEST_AGAIN)
    )
    return None if newest is None or oldest is None else (newest - oldest) / 1000


def drop_figures(figures: Figures) -> list[Row]:
    """``offset_drops[]``: a broker's table held less than it had held before."""
    drops = []
    for (key, source, bid), samples in figures.analysis.history.samples.items():
        by_addr: dict[str, list[Any]] = defaultdict(list)
        for sample in samples:
            by_addr[sample.addr].append(sample)
        for addr, mine in sorted(by_addr.items()):
            highest, incarnation = None, None
            for sample in mine:
                if highest is not None and sample.off < highest:
                    restarted = incarnation is not None and sample.binc != incarnation
                    drops.append(
                        {
                            "addr": addr,
                            "bid": bid,
                            "source": source,
                            **key.place,
                            "t_ns": sample.t,
                            "from": highest,
                            "to": sample.off,
                            "label": "RESTART" if restarted else "OVERWRITE",
                        }
                    )
                    highest = None  # one entry per drop; what follows is measured from here
                highest = sample.off if highest is None else max(highest, sample.off)
                incarnation = sample.binc if sample.binc is not None else incarnation
    return sorted(
        drops, key=lambda d: (d["t_ns"], d["addr"], d["source"], d["group"], d["topic"], d["qid"])
    )


def divergence_figures(figures: Figures) -> Row:
    """``divergence``: offsets or ids that name two messages, and where a log lost its tail."""
    repeats = figures.analysis.repeats
    ranges = Columns(families.NAMED.of(repeats.depths))
    crowded = Columns(families.NAMED_TIMES.of(repeats.values))
    depth = np.append(ranges.ints("depth"), crowded.ints("depth"))
    length = np.append(ranges.ints("hi") - ranges.ints("lo"), crowded.ints("value"))
    several = depth > 1
    least, most = (
        figures.table(family).column("value")
        for family in (families.PLACED_LEAST, families.PLACED_MOST)
    )
    moved = pc.sum(pc.not_equal(least, most)).as_py() or 0
    resolution = repeats.resolution
    error = {} if resolution.exact else {"conflicts_error": resolution.omids_error(moved)}
    events = figures.analysis.history.events
    return {
        "conflicts": int(length[several].sum()) + moved * resolution.omid_share,
        **error,
        **({"conflicts_at_least": True} if _crowded(figures) else {}),
        "truncation_events": [
            {
                "broker": queue.broker,
                "topic": queue.topic,
                "qid": queue.qid,
                "boot_ms": boot_ms,
                "cut": cut,
            }
            for queue, found in sorted(events.items())
            for boot_ms, cut in zip(found.boot_ms, found.cut, strict=True)
        ],
        "truncation_artefacts": int((length * (depth - 1))[several].sum()),
    }


def _crowded(figures: Figures) -> bool:
    """Whether re-consumed offsets were so many ranges that they were not looked at as such."""
    return any(row["depth"] > 1 for row in figures.values(families.COPY_TIMES))
