"""What each assignment delivered again: counts, and runs of offsets by cause. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.causes.labels import cause_of
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.rows import NULL_NUMBER
from failback.analytics.run.history import GroupQueue, History


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
    depths: Mapping[str, pa.Table], processed: Sequence[int | None]
) -> dict[int, Redelivered]:
    """What each assignment delivered again. ``processed`` are frontiers, one per assignment."""
    found: dict[int, Redelivered] = {}
    table = families.REDELIVERED.of(depths)
    for number, lo, hi in columns_of(table, "holder", "lo", "hi"):
        frontier = processed[number]
        done = 0 if frontier is None else max(0, min(hi, frontier) - lo)
        known = found.get(number, Redelivered(0, lo, hi, 0))
        found[number] = Redelivered(
            known.messages + hi - lo, min(known.low, lo), max(known.high, hi), known.finished + done
        )
    return found


def windows_of(
    history: History, depths: Mapping[str, pa.Table], values: Mapping[str, pa.Table]
) -> list[Window]:
    """Runs of repeated offsets per assignment, cause and previous holder, of rows in figures."""
    key = list(families.WINDOWS.stored)
    begins = {
        tuple(of): begin
        for *of, begin in columns_of(families.WINDOW_BEGINS.of(values), *key, "value")
    }
    fids = fault_ids(history)
    windows = []
    for *of, lo, hi in _runs(families.WINDOWS.of(depths), key):
        grp, broker, topic, qid, inc, holder, cause, prev_inc, fault = of
        number = None if holder == NULL_NUMBER else holder
        t = begins[tuple(of)] if number is None else history.assignments[number].t
        fid = None if fault == NULL_NUMBER else fids[fault]
        place = GroupQueue(grp, broker, topic, qid)
        windows.append(
            Window(number, place, lo, hi, hi - lo, cause_of(cause), prev_inc, inc, t, fid)
        )
    return sorted(windows, key=lambda w: (w.key, w.t, w.lo, w.cause or "", w.from_proc, w.to_proc))


def fault_ids(history: History) -> list[str]:
    """The faults by their numbers in partial rows: by their first step."""
    return list(dict.fromkeys(step.fid for step in history.faults))


def _runs(table: pa.Table, key: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Key, ``lo`` and ``hi`` of ranges whose offsets follow each other, of any depth."""
    c = Columns(table)
    if not c.count:
        return
    code, lo, hi = c.dense(*key), c.ints("lo"), c.ints("hi")
    order = np.lexsort((lo, code))
    code, lo, hi = code[order], lo[order], hi[order]
    cut = np.ones(c.count, bool)
    cut[1:] = (code[1:] != code[:-1]) | (lo[1:] != hi[:-1])
    starts = np.flatnonzero(cut)
    ends = np.append(starts[1:], c.count) - 1
    names = columns_of(table.take(pa.array(order[starts])), *key)
    for of, first, last in zip(names, lo[starts].tolist(), hi[ends].tolist(), strict=True):
        yield *of, first, last


def columns_of(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of some columns, as tuples."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)
