"""How far consumption went back, and what became of the offsets of brokers. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import Ints
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
        place = {
            "group": a.key.grp,
            "broker": a.key.broker,
            "topic": a.key.ptopic,
            "qid": a.key.qid,
            "t_ns": a.t,
        }
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
        for (key, source, _), samples in figures.analysis.history.samples.items()
        if key == a.key and source == "code43"
        for sample in samples
        if sample.t <= a.t
    ]
    return max(found, default=None)


def _age(figures: Figures, number: int, committed: int | None) -> float | None:
    """Store time between the start and what had been committed, from the repeats in between."""
    if committed is None:
        return None
    dups = figures.dups.of_assignment(number)
    again = (dups.ints("nth_of_copy") > 1) & (dups.ints("qoff") < committed)
    times = dups.ints("store_ms")[again]
    return int(times.max() - times.min()) / 1000 if times.size else None


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
                            "group": key.grp,
                            "broker": key.broker,
                            "topic": key.ptopic,
                            "qid": key.qid,
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
    c = Columns(figures.analysis.repeats)
    queue = c.dense("broker", "ptopic", "qid")
    place = c.dense_with(queue, "epoch", "qoff")
    names = _distinct(place, c.dense_with(place, "omid", "lane", "lseq", "fkey"))
    places = _distinct(c.dense("omid"), c.dense_with(queue, "omid", "qoff"))
    split = names[names > 1]
    moved = int((places > 1).sum())
    events = figures.analysis.history.events
    return {
        "conflicts": split.size + moved,
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
        "truncation_artefacts": int((split - 1).sum()),
    }


def _distinct(owner: Ints, member: Ints) -> Ints:
    """How many distinct members each owner has; an owner is known by its members."""
    _, first = np.unique(member, return_index=True)
    return np.bincount(owner[first])
