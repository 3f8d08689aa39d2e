"""Where consumption resumed, and whether that is explained. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final, NamedTuple

import numpy as np

from failback.analytics.columns import Columns
from failback.analytics.history import Assignment
from failback.analytics.intervals import Ints
from failback.analytics.measures import Figures, Row
from failback.analytics.partials import NULL_NUMBER

MAX_ROLLBACKS: Final = 10_000
MAX_UNEXPLAINED: Final = 100
MAX_ROWS: Final = 8
NEXT_SAMPLE_NS: Final = 2_000_000_000


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
            repeated, *_ = figures.analysis.redelivered.get(number, (0, 0, 0))
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
                    "redelivered": repeated,
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


def resume_figures(figures: Figures) -> Row:
    """``resume_points``: does every start offset that a broker gave have a source?"""
    counts: dict[str, int] = defaultdict(int)
    unexplained = []
    for number, a in enumerate(figures.analysis.history.assignments):
        if a.src not in ("STORE", "NO_ENTRY") or a.start_off < 0:
            continue
        by, legal, _ = explain(figures, number, a)
        kind = "unexplained" if by is None else "unknown" if by == "unknown" else "explained"
        counts[kind] += 1
        if kind == "unexplained":
            unexplained.append(
                {
                    "group": a.key.grp,
                    "broker": a.key.broker,
                    "topic": a.key.ptopic,
                    "qid": a.key.qid,
                    "t_ns": a.t,
                    "start": a.start_off,
                    "src_bid": a.src_bid,
                    "src_binc": a.src_binc,
                    "legal": sorted(legal)[:20],
                }
            )
    return {
        "checked": sum(counts.values()),
        "explained": counts["explained"],
        "unknown": counts["unknown"],
        "unexplained": unexplained[:MAX_UNEXPLAINED],
        "unexplained_count": counts["unexplained"],
    }


class Explained(NamedTuple):
    """What made an answer legal, all that would have been, and the rows that say so."""

    by: str | None
    """``commit``, ``file``, ``sync``, ``reset``, ``no_entry``; ``unknown`` when it
    cannot be told; ``None`` when nothing known gives it."""
    legal: set[int]
    rows: tuple[str, ...] = ()


def explain(figures: Figures, number: int, a: Assignment) -> Explained:
    """What made the answer that an assignment started from legal.

    Legal are the values around the answer in the answering incarnation's own table, everything
    committed to it since the last look into that table, and resets. The table as it was first seen
    is the file it loaded; a slave's table changes by sync.
    """
    if a.src == "NO_ENTRY":
        return Explained("no_entry", {0})
    if a.src not in ("STORE",) or a.src_bid is None or a.src_binc is None:
        return Explained("unknown", set())
    history = figures.analysis.history
    samples = [
        sample
        for sample in history.samples.get((a.key, "code43", a.src_bid), ())
        if sample.binc == a.src_binc and (a.src_addr is None or sample.addr == a.src_addr)
    ]
    committed = [
        told
        for told in figures.told.get(number, ())
        if told.bid == a.src_bid and told.binc in (a.src_binc, NULL_NUMBER)
    ]
    before = [sample for sample in samples if sample.t <= a.t]
    after = [sample for sample in samples if sample.t > a.t]
    resets = [reset for reset in history.resets.get(a.key, ()) if reset.t <= a.t]
    looked = [*before[-1:], *after[:1]]
    changed = "sync" if a.src_bid > 0 else "commit"
    loaded = samples and a.start_off == samples[0].off and a.src_bid == 0
    legal: set[int] = set()
    for by, found in (
        ("commit", committed),
        ("reset", resets),
        ("file" if loaded else changed, looked),
    ):
        legal |= {each.off for each in found}
        rows = tuple(each.row for each in found if each.off == a.start_off)
        if rows:
            return Explained(by, legal, rows[:MAX_ROWS])
    if not before or not after or after[0].t - a.t > NEXT_SAMPLE_NS:
        return Explained("unknown", legal)
    if a.src_bid > 0 and min(legal) <= a.start_off <= max(legal):
        return Explained("unknown", legal)  # a sync between two looks may have carried it
    return Explained(None, legal)


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
