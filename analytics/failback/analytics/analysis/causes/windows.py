"""What each assignment delivered again: counts, and runs of offsets by cause. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import NULL_NUMBER, Columns
from failback.analytics.analysis.arrays.intervals import joined
from failback.analytics.analysis.causes.labels import CAUSES
from failback.analytics.analysis.counting import families
from failback.analytics.run.history import GroupQueue, History

MAX_WINDOWS: Final = 10_000
_QUEUE: Final = ("grp", "broker", "topic", "qid")
_NUMBERED: Final = tuple(CAUSES)


def cause_number(cause: str | None) -> int:
    """The number of a cause in partial rows."""
    return NULL_NUMBER if cause is None else _NUMBERED.index(cause)


def cause_of(number: int) -> str | None:
    """The cause of a number in partial rows."""
    return None if number == NULL_NUMBER else _NUMBERED[number]


@dataclass(frozen=True, slots=True)
class Window:
    """Consecutive offsets that one assignment delivered again, for one cause."""

    assignment: int | None
    key: GroupQueue
    lo: int
    hi: int
    size: int
    cause: str | None
    from_proc: int
    to_proc: int
    t: int
    fid: str | None


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a run, by queue and time."""

    kept: Sequence[Window]
    left_out: Mapping[GroupQueue, int]
    """By queue how many smaller ones there are."""


class Redelivered(NamedTuple):
    """Distinct offsets that an assignment delivered again, after another holder."""

    messages: int
    low: int
    """The lowest."""
    high: int
    """The highest + 1."""
    finished: int
    """How many lie below what was processed when the queue was taken: others were in hand."""


def redelivered_of(
    depths: Mapping[str, pa.Table],
    values: Mapping[str, pa.Table],
    processed: Sequence[int | None],
) -> dict[int, Redelivered]:
    """What each assignment delivered again. ``processed`` are frontiers, one per assignment."""
    found = _crowded(values)
    table = families.REDELIVERED.of(depths)
    for number, lo, hi in columns_of(table, "holder", "lo", "hi"):
        frontier = processed[number]
        done = 0 if frontier is None else max(0, min(hi, frontier) - lo)
        known = found.get(number, Redelivered(0, lo, hi, 0))
        found[number] = Redelivered(
            known.messages + hi - lo, min(known.low, lo), max(known.high, hi), known.finished + done
        )
    return found


def _crowded(values: Mapping[str, pa.Table]) -> dict[int, Redelivered]:
    """What is known of ranges that were too many."""
    count, least, end, finished = (
        {row["holder"]: row["value"] for row in family.rows(values)}
        for family in (
            families.REDELIVERED_COUNT,
            families.REDELIVERED_LEAST,
            families.REDELIVERED_END,
            families.REDELIVERED_FINISHED,
        )
    )
    return {
        holder: Redelivered(count[holder], least[holder], end[holder], finished[holder])
        for holder in count
    }


def windows_of(
    history: History,
    depths: Mapping[str, pa.Table],
    values: Mapping[str, pa.Table],
    most: int = MAX_WINDOWS,
) -> Windows:
    """Runs of repeated offsets per assignment, cause and previous holder, of rows in figures.

    Where there are more than ``most``, the largest of each queue and cause are kept, as many of
    each. Smaller ones may be left out already, where they were too many.
    """
    key = list(families.WINDOWS.stored)
    begins = {
        tuple(of): begin
        for *of, begin in columns_of(families.WINDOW_BEGINS.of(values), *key, "value")
    }
    fids = fault_ids(history)
    windows = []
    runs, left_out = _largest(_runs(families.WINDOWS.of(depths)), most)
    for *of, lo, hi in columns_of(runs, *key, "lo", "hi"):
        grp, broker, topic, qid, inc, holder, cause, prev_inc, fault = of
        number = None if holder == NULL_NUMBER else holder
        t = begins[tuple(of)] if number is None else history.assignments[number].t
        fid = None if fault == NULL_NUMBER else fids[fault]
        place = GroupQueue(grp, broker, topic, qid)
        windows.append(
            Window(number, place, lo, hi, hi - lo, cause_of(cause), prev_inc, inc, t, fid)
        )
    for *at, count in columns_of(families.WINDOWS_LEFT_OUT.of(values), *_QUEUE, "value"):
        queue = GroupQueue(*at)
        left_out[queue] = left_out.get(queue, 0) + count
    windows.sort(key=lambda w: (w.key, w.t, w.lo, w.cause or "", w.from_proc, w.to_proc))
    return Windows(windows, left_out)


def fault_ids(history: History) -> list[str]:
    """The faults by their numbers in partial rows: by their first step."""
    return list(dict.fromkeys(step.fid for step in history.faults))


def _runs(table: pa.Table) -> pa.Table:
    """Key, ``lo`` and ``hi`` of ranges whose offsets follow each other, of any depth."""
    key = list(families.WINDOWS.stored)
    c = Columns(table)
    if not c.count:
        return table.select([*key, "lo", "hi"])
    rows, lo, hi = joined(c.dense(*key), c.ints("lo"), c.ints("hi"))
    found = table.select(key).take(pa.array(rows))
    return found.append_column("lo", pa.array(lo)).append_column("hi", pa.array(hi))


def _largest(runs: pa.Table, most: int) -> tuple[pa.Table, dict[GroupQueue, int]]:
    """The largest of each queue and cause, and how many others each queue has."""
    if runs.num_rows <= most:
        return runs, {}
    c = Columns(runs)
    of, lo = c.dense(*_QUEUE, "cause"), c.ints("lo")
    order = np.lexsort((lo, lo - c.ints("hi"), of))  # a stable sort of rows in one order
    begins = np.flatnonzero(np.diff(of[order], prepend=-1))
    place = np.arange(c.count) - np.repeat(begins, np.diff(begins, append=c.count))
    kept = np.zeros(c.count, bool)
    kept[order[place < max(1, most // begins.size)]] = True
    others = runs.filter(pa.array(~kept)).group_by(list(_QUEUE)).aggregate([([], "count_all")])
    left_out = {
        GroupQueue(*place): count for *place, count in columns_of(others, *_QUEUE, "count_all")
    }
    return runs.filter(pa.array(kept)), left_out


def columns_of(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of some columns, as tuples."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)
