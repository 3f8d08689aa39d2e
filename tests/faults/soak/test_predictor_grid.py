"""The predictor over a grid of settings: the table of docs/explanation/predictor.md.

``FAILBACK_GRID_AT_ONCE`` says how many clusters run at a time.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.analytics.grid_runs import GridRuns
from tests.support.analytics.predictor_grid import (
    ALL_CELLS,
    REPETITIONS,
    Cell,
    Kept,
    shortcomings,
    table,
)

pytestmark = [pytest.mark.soak]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Every cell, run so often."""
    folder = tmp_path_factory.mktemp("grid")
    kept = Kept(folder / "grid.json")
    runs = GridRuns(kept, folder, print)
    runs.run(at_once=int(os.environ.get("FAILBACK_GRID_AT_ONCE", "2")))
    assert not runs.failures, runs.failures
    print(f"\n{table(kept.results)}")
    return kept


@pytest.mark.parametrize("cell", ALL_CELLS, ids=str)
def test_no_repetition_is_above_the_worst_case(kept: Kept, cell: Cell) -> None:
    (result,) = [each for each in kept.results if each.cell == cell]
    assert len(result.observed) >= REPETITIONS
    assert result.below_worst, result.row()


def test_nine_medians_of_ten_lie_in_the_band(kept: Kept) -> None:
    assert len(kept.results) >= 24
    assert not shortcomings(kept.results)


def test_what_is_kept_is_read_again(kept: Kept, tmp_path: Path) -> None:
    file = tmp_path / "again.json"
    again = Kept(file)
    for setting in {result.cell.setting for result in kept.results}:
        mine = {each.cell.fault: each for each in kept.results if each.cell.setting == setting}
        for number in range(REPETITIONS):
            again.add(
                setting,
                {fault: each.observed[number] for fault, each in mine.items()},
                {fault: each.stall_ms[number] for fault, each in mine.items()},
            )
    assert Kept.read(file).results == kept.results
