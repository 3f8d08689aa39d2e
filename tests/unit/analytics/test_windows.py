"""Intervals that were re-consumed: put together from partial rows, and the largest of very many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from failback.analytics.analysis.arrays.columns import NULL_NUMBER
from failback.analytics.analysis.causes.windows import Windows, windows_of
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.rows import Codes
from failback.analytics.analysis.counting.partials.sums import Key, Partials
from failback.analytics.analysis.engines.joins import join_depths, join_values
from failback.analytics.run.history import GroupQueue

HISTORY: Any = SimpleNamespace(faults=[], assignments=[])


def found(offsets: list[int], queues: list[int], most: int) -> Windows:
    """Of repeats of no assignment that began at 7 ns and later; two to each call of a worker."""
    parts = []
    for at in range(0, len(offsets), 2):
        out, size = Partials(), len(offsets[at : at + 2])
        one = np.zeros(size, np.int64)
        name = Codes(one, ["x"])
        nothing = one + NULL_NUMBER
        key = Key(
            grp=name, broker=name, topic=name, qid=np.array(queues[at : at + 2]), inc=one + 1,
            holder=nothing, cause=nothing, prev_inc=one + 2, fault=nothing,
        )  # fmt: skip
        out.intervals(families.WINDOWS, key, np.array(offsets[at : at + 2]), np.ones(size, bool))
        out.values(families.WINDOW_BEGINS, key, np.arange(size) + 7 + at)
        parts.append(out.table())
    return windows_of(HISTORY, join_depths(parts)[0], join_values(parts), most)


def sizes(windows: Windows) -> list[tuple[int, int, int]]:
    return [(window.key.qid, window.lo, window.size) for window in windows.kept]


def test_offsets_that_follow_each_other_are_one_window_however_often_each_came() -> None:
    windows = found([3, 4, 4, 5, 4, 8], [0] * 6, 10)
    assert sizes(windows) == [(0, 3, 3), (0, 8, 1)]
    assert {window.t for window in windows.kept} == {7}
    assert not windows.left_out


def test_of_too_many_the_largest_of_each_queue_are_kept_and_the_others_counted() -> None:
    offsets = [0, 2, 3, 5, 6, 7, 20, 22, 23, 30]
    windows = found(offsets, [0] * 6 + [1] * 4, 5)
    assert sizes(windows) == [(0, 2, 2), (0, 5, 3), (1, 20, 1), (1, 22, 2)]
    assert windows.left_out == {GroupQueue("x", "x", "x", qid): 1 for qid in (0, 1)}


def test_of_very_many_queues_each_keeps_one() -> None:
    windows = found([0, 2, 3, 0, 2, 3], [0] * 3 + [1] * 3, 1)
    assert sizes(windows) == [(0, 2, 2), (1, 2, 2)]
