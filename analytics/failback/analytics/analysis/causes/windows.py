"""What each assignment delivered again: counts, and runs of offsets by cause. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns, Flags, packed_of
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.run.history import GroupQueue, History

_PLACE = ("grp", "broker", "ptopic", "qid", "inc", "a_no", "cause", "prev_inc", "fid")


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


def redelivered_of(repeats: pa.Table, processed: Sequence[int | None]) -> dict[int, Redelivered]:
    """What each assignment delivered again. ``processed`` are frontiers, one per assignment."""
    found = repeats.select(["a_no", "qoff"]).filter(
        pc.and_(_again(repeats), repeats.column("a_no").is_valid())
    )
    frontier = np.array([-1 if each is None else each for each in processed], np.int64)
    number, qoff = found.column("a_no").to_numpy(), found.column("qoff").to_numpy()
    order = np.argsort(packed_of([number, qoff]), kind="stable")
    number, qoff = number[order], qoff[order]
    once = np.ones(order.size, bool)
    once[1:] = (number[1:] != number[:-1]) | (qoff[1:] != qoff[:-1])
    number, qoff = number[once], qoff[once]
    if not number.size:
        return {}
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    ends = np.append(starts[1:], number.size)
    done = np.add.reduceat((qoff < frontier[number]).astype(np.int64), starts)
    columns = (number[starts], ends - starts, qoff[starts], qoff[ends - 1] + 1, done)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {a_no: Redelivered(*figures) for a_no, *figures in rows}


def windows_of(history: History, repeats: pa.Table) -> list[Window]:
    """Runs of repeated offsets per assignment, cause and previous holder, of rows in figures."""
    bt = repeats.column("bt")
    in_figures = pc.and_(
        pc.greater_equal(bt, history.folder.warmup_end_ns), pc.less(bt, history.folder.until_ns)
    )
    shown = pc.and_(in_figures, pc.equal(repeats.column("cls"), "DUP"))
    found = repeats.select([*_PLACE, "qoff", "bt"]).filter(pc.and_(_again(repeats), shown))
    c = Columns(found)
    if not c.count:
        return []
    parts = [c.codes(name) for name in _PLACE]
    parts += [c.valid(name).astype(np.int8) for name in _PLACE if found.column(name).null_count]
    group, qoff = packed_of(parts), c.ints("qoff")
    order = np.lexsort((qoff, group))
    group, qoff = group[order], qoff[order]
    changed = np.ones(order.size, bool)
    changed[1:] = group[1:] != group[:-1]
    cut = changed.copy()
    cut[1:] |= np.diff(qoff) > 1  # equal offsets are in one run
    starts = np.flatnonzero(cut)
    ends = np.append(starts[1:], order.size) - 1
    begin = _least_of_each(c.ints("bt")[order], changed)[starts]
    rows = found.select(list(_PLACE)).take(pa.array(order[starts])).to_pylist()
    windows = []
    for row, lo, hi, first in zip(
        rows, qoff[starts].tolist(), (qoff[ends] + 1).tolist(), begin.tolist(), strict=True
    ):
        number = row["a_no"]
        t = first if number is None else history.assignments[number].t
        key = GroupQueue(row["grp"], row["broker"], row["ptopic"], row["qid"])
        windows.append(
            Window(number, key, lo, hi, hi - lo, row["cause"], row["prev_inc"], row["inc"], t,
                   row["fid"])
        )  # fmt: skip
    return sorted(windows, key=lambda w: (w.key, w.t, w.lo, w.cause or "", w.from_proc, w.to_proc))


def _least_of_each(values: Ints, changed: Flags) -> Ints:
    """For each row the least value of its group; groups begin where ``changed``."""
    least: Ints = np.minimum.reduceat(values, np.flatnonzero(changed))
    spread: Ints = least[np.cumsum(changed) - 1]
    return spread


def _again(repeats: pa.Table) -> pa.ChunkedArray:
    """Which deliver a copy that another holder had delivered before."""
    other = pc.or_(
        pc.not_equal(repeats.column("prev_inc"), repeats.column("inc")),
        pc.not_equal(repeats.column("prev_pqe"), repeats.column("pqe")),
    )
    again = pc.greater(repeats.column("nth_of_copy"), 1)
    return pc.fill_null(pc.and_(again, other), False)
