"""What was known about progress when a queue was assigned: the small inputs of the causes. Pure."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from failback.analytics.analysis.arrays.columns import NULL_NUMBER
from failback.analytics.analysis.counting import families, tables
from failback.analytics.run.history import UNKNOWN, Assignment, GroupQueue, History

_NAMES_NO_CAUSE: Final = (UNKNOWN, "MEMBERSHIP_LOST")
"""Ends of holdings that no rule is about: the second one is of another engine's clients."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The highest offset sent to one incarnation in one bucket of time."""

    bucket: int
    epoch: int
    bid: int | None
    binc: int | None
    off: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known per queue and bucket of time, and the buckets' boundaries."""

    committed: Mapping[GroupQueue, Sequence[Committed]]
    taken: Mapping[GroupQueue, Sequence[tuple[int, int]]]
    """(bucket, highest offset committed with success)."""
    finished: Mapping[GroupQueue, Sequence[tuple[int, int, int]]]
    """(bucket, epoch, highest finished offset + 1)."""
    boundaries: Mapping[GroupQueue, Sequence[int]]

    def bucket(self, key: GroupQueue, t: int) -> int:
        """Number of the bucket that ends at boundary ``t``."""
        return self.boundaries[key].index(t)


@dataclass(frozen=True, slots=True)
class Distance:
    """How far an assignment's start lies behind what was known, and what a truncation explains."""

    committed: int | None
    processed: int | None
    d_commit: int
    d_proc: int
    truncated: int


def progress_of(history: History, values: Mapping[str, pa.Table]) -> Progress:
    """Read what commits and deliveries made known, per queue."""
    committed: dict[GroupQueue, list[Committed]] = defaultdict(list)
    for row in families.COVERED.rows(values):
        committed[GroupQueue.of(row)].append(
            Committed(
                row["bucket"], row["epoch"], _null(row["bid"]), _null(row["binc"]), row["value"]
            )
        )
    taken: dict[GroupQueue, list[tuple[int, int]]] = defaultdict(list)
    for row in families.TAKEN.rows(values):
        taken[GroupQueue.of(row)].append((row["bucket"], row["value"]))
    finished: dict[GroupQueue, list[tuple[int, int, int]]] = defaultdict(list)
    for row in families.PROGRESS.rows(values):
        finished[GroupQueue.of(row)].append((row["bucket"], row["epoch"], row["value"]))
    return Progress(committed, taken, finished, history.boundaries())


def _null(value: int) -> int | None:
    return None if value == NULL_NUMBER else value


def assigned_table(assignments: Sequence[Assignment]) -> pa.Table:
    """The assignments, numbered by their place in the list."""
    return pa.Table.from_pylist(
        [
            {
                "grp": a.key.grp,
                "broker": a.key.broker,
                "ptopic": a.key.ptopic,
                "qid": a.key.qid,
                "inc": a.inc,
                "pqe": a.pqe,
                "a_no": number,
                "t": a.t,
                "src": a.src,
                "src_bid": a.src_bid,
                "src_binc": a.src_binc,
                "end_t": a.end_t,
                # An end for an unknown reason names no cause.
                "end_reason": None if a.end_reason in _NAMES_NO_CAUSE else a.end_reason,
            }
            for number, a in enumerate(assignments)
        ],
        tables.ASSIGNED,
    )


def cover_table(assignments: Sequence[Assignment], progress: Progress) -> pa.Table:
    """For each assignment the highest offset that every incarnation had received before it."""
    rows = []
    for number, a in enumerate(assignments):
        last = progress.bucket(a.key, a.t)
        highest: dict[tuple[int | None, int | None, int], int] = {}
        for sent in progress.committed.get(a.key, ()):
            if sent.bucket <= last:
                at = (sent.bid, sent.binc, sent.epoch)
                highest[at] = max(highest.get(at, -1), sent.off)
        rows += [
            {"a_no": number, "bid": bid, "binc": binc, "epoch": epoch, "off": off}
            for (bid, binc, epoch), off in highest.items()
        ]
    return pa.Table.from_pylist(rows, tables.COVER)


def reset_table(history: History, progress: Progress) -> pa.Table:
    """Resets that lie before an assignment of their queue."""
    rows: list[tuple[int, int | None, int | None, int, int | None, int]] = []
    ended: dict[GroupQueue, list[Assignment]] = defaultdict(list)
    for a in history.assignments:
        if a.end_reason == "RESET" and a.end_t is not None:
            ended[a.key].append(a)
    for number, a in enumerate(history.assignments):
        for p in ended.get(a.key, ()):
            if p.end_t is not None and p.end_t <= a.t:
                taken = _taken_between(progress, a.key, p.end_t, a.t)
                rows.append((number, p.inc, p.pqe, p.end_t, None, taken))
        for reset in history.resets.get(a.key, ()):
            if reset.t <= a.t:
                taken = _taken_between(progress, a.key, reset.t, a.t)
                rows.append((number, None, None, reset.t, reset.off, taken))
    names = tables.RESET.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], tables.RESET)


def _taken_between(progress: Progress, key: GroupQueue, after: int, until: int) -> int:
    first, last = progress.bucket(key, after), progress.bucket(key, until)
    found = [off for bucket, off in progress.taken.get(key, ()) if first < bucket <= last]
    return max(found, default=-1)


def distance_of(history: History, progress: Progress, a: Assignment) -> Distance:
    """Rollback distances of an assignment, within one log epoch.

    Offsets known from before a truncation are clipped to the cut: what lies above it names other
    messages now. The part of the raw committed distance that the clipping takes away is reported
    as truncated, once, at the first assignment after the cut.
    """
    events = history.events_of(a.key.queue)
    now = bisect.bisect_right(events.t_ns, a.t)
    last = progress.bucket(a.key, a.t)
    raw = [sent.off for sent in progress.committed.get(a.key, ()) if sent.bucket <= last]
    kept = [
        events.clip(sent.off, sent.epoch, now)
        for sent in progress.committed.get(a.key, ())
        if sent.bucket <= last
    ]
    done = [
        events.clip(value, epoch, now)
        for bucket, epoch, value in progress.finished.get(a.key, ())
        if bucket <= last
    ]
    committed, processed = max(kept, default=None), max(done, default=None)
    d_commit = 0 if committed is None else max(0, committed - a.start_off)
    d_proc = 0 if processed is None else max(0, processed - a.start_off)
    truncated = 0
    if raw and _first_after_cut(history, a, now):
        truncated = max(0, max(raw) - a.start_off) - d_commit
    return Distance(committed, processed, d_commit, d_proc, truncated)


def _first_after_cut(history: History, a: Assignment, epoch: int) -> bool:
    if epoch == 0:
        return False
    cut_at = history.events_of(a.key.queue).t_ns[epoch - 1]
    earlier = [o.t for o in history.assignments if o.key == a.key and o.t < a.t]
    return not any(t >= cut_at for t in earlier)
