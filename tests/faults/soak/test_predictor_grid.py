"""The predictor over a grid of settings, on real local brokers: the table of docs/predictor.md."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chaos_lab import LocalCluster
from tests.support.predictor_grid import (
    ALL_CELLS,
    HEADER,
    REPETITIONS,
    Brokers,
    Cell,
    Result,
    cluster,
    run_cell,
)

pytestmark = [pytest.mark.faults, pytest.mark.soak]

LEAST_INSIDE = 0.9


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """What the cells of this session found, in the order in which they ran."""
    return []


@pytest.fixture(scope="module")
def lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    brokers: Brokers = request.param
    with cluster(tmp_path_factory.mktemp("grid") / str(brokers), brokers) as running:
        yield running


@pytest.mark.parametrize(
    ("lab", "cell"),
    [pytest.param(cell.brokers, cell, id=str(cell)) for cell in ALL_CELLS],
    indirect=["lab"],
)
def test_no_repetition_is_above_the_worst_case(
    lab: LocalCluster, cell: Cell, tmp_path: Path, results: list[Result]
) -> None:
    result = run_cell(lab, cell, tmp_path / "runs", REPETITIONS)
    results.append(result)
    if os.environ.get("FAILBACK_KEEP_GRID"):
        result.keep()
    print(f"\n{result.row()}")
    assert max(result.observed) <= result.predicted.worst, result.row()


def test_nine_medians_of_ten_lie_in_the_band(results: list[Result]) -> None:
    """Last in this file: it looks at the cells that ran before it."""
    if not results:
        pytest.skip("no cell was run")
    print(f"\n{HEADER}")
    for result in results:
        print(result.row())
    outside = [result.row() for result in results if not result.inside]
    assert len(outside) <= (1 - LEAST_INSIDE) * len(results), "\n".join(outside)


def test_the_grid_is_large_enough() -> None:
    assert len(ALL_CELLS) >= 24
    assert REPETITIONS >= 5
