"""Rows that cannot be true are counted and left out, and harm no others."""

from __future__ import annotations

from pathlib import Path

from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.engines.candidates import Repeated, candidates_of
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import RunBuilder


def test_a_chunk_of_which_nothing_is_left_has_no_candidates() -> None:
    nothing, some = tables.DELIVERY.empty_table(), IntervalSet([(0, 9)])
    found = candidates_of(nothing, Repeated({("g", 7): some}, {("g", "broker-a", "T", 0, 0): some}))
    assert found.equals(tables.CODED.empty_table())


def test_rows_that_cannot_be_true_are_counted(tmp_path: Path) -> None:
    b = RunBuilder("impossible")
    b.assign(0, 0, end=(100, "REBALANCE"))
    b.run_of(range(4), 10)
    b.assign(200, 2, proc=2)
    b.run_of(range(2, 4), 210, proc=2)
    for _ in range(3):
        b.deliver(1, 300, 290, proc=3)  # ended before it began; process 3 has its own file
    b.deliver(-1, 300, 310, proc=3)
    analysis = analysed(b.write(tmp_path / "r"))
    assert analysis.rows.filter(analysis.rows.column("cause").is_valid()).num_rows == 2
    assert analysis.counts.dropped.et_before_bt == 3
    assert analysis.counts.dropped.negative_offset == 1
