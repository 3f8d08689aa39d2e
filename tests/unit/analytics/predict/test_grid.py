"""The grid of real runs that the predictor is checked on: what is asked, kept and concluded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failback.analytics.report.measures.forecast import grid_cells
from failback.chaos.experiment.schedule import plan_run
from failback.chaos.faults.catalogue import parse_experiment
from tests.support.analytics.predictor_grid import (
    ALL_CELLS,
    FAULTS,
    KEPT,
    LEAST_INSIDE,
    SETTINGS,
    Cell,
    Kept,
    Result,
    Setting,
    shortcomings,
    summary,
    table,
)
from tests.support.processes.child_process import ROOT

SETTING = SETTINGS[0]
NONE_LATE = dict.fromkeys(FAULTS, 0)


def expected(setting: Setting) -> dict[str, int]:
    return {cell.fault: round(cell.predicted().median) for cell in setting.cells()}


def test_the_grid_is_as_large_as_it_has_to_be() -> None:
    assert len(set(ALL_CELLS)) >= 24


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_faults_of_a_setting_share_a_run(setting: Setting) -> None:
    experiment = parse_experiment(json.dumps(setting.document(7, "-3")))
    (arm,) = experiment.arms
    assert [fault.fault for fault in arm.faults] == ["kill", *["kill-consumer"] * 3]
    waits = [each.after for each in plan_run(experiment, arm, 0).faults]
    assert waits == ["", "gone:f1", "slave-serving:f1", "accept:f1"]
    assert [group.topic for group in arm.workload.groups] == [f"{fault}-3" for fault in FAULTS]


def test_the_faults_of_a_setting_are_told_apart() -> None:
    medians = expected(SETTING)
    assert 0 < medians["kill"] < medians["restart-on-slave"] < medians["handover"]
    assert medians["handover"] < medians["restart-after-return"]
    guarded = Setting(SETTING.flush_ms, SETTING.commit_ms, "guarded")
    assert Cell(guarded, "handover").predicted().p95 == 0


def test_a_grid_that_was_cut_goes_on_where_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "grid.json"
    kept = Kept.read(file)
    assert (kept.results, kept.repetitions(SETTING)) == ([], 0)
    kept.add(SETTING, expected(SETTING), NONE_LATE)
    again = Kept.read(file)
    again.add(SETTING, expected(SETTING), {**NONE_LATE, "kill": 40})
    found = Kept.read(file)
    assert found.repetitions(SETTING) == 2
    assert found.repetitions(SETTINGS[1]) == 0
    assert [each.stall_ms for each in found.results] == [[0, 40], [0, 0], [0, 0], [0, 0]]
    assert found.results == again.results


@pytest.mark.full
def test_a_median_outside_and_a_number_above_the_worst_case_are_found() -> None:
    good = [Result(cell, [round(cell.predicted().median)] * 5, [0] * 5) for cell in ALL_CELLS]
    assert shortcomings(good) == []
    handover = next(each for each in good if each.cell.fault == "handover")
    handover.observed[:] = [1, 1, 1, *handover.observed[3:]]
    allowed = int((1 - LEAST_INSIDE) * len(good))
    assert shortcomings(good) == []  # one of ten may
    for each in good[: allowed + 1]:
        each.observed[:] = [each.cell.predicted().worst] * 5
    assert len(shortcomings(good)) > allowed
    handover.observed[0] = handover.cell.predicted().worst + 1
    assert "above the worst case: | handover" in shortcomings([handover])[0]


def test_the_table_has_a_line_for_each_cell() -> None:
    cell = Cell(SETTING, "handover")
    predicted = cell.predicted()
    lines = table([Result(cell, [9, 2, 5], [0] * 3)]).splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("| handover | 5000 | 5000 | compat |")
    assert lines[2].endswith(f"| {predicted.worst:,} | 2, 5, 9 | 5 | no |")


@pytest.mark.full
def test_what_the_package_keeps_is_what_this_predictor_says() -> None:
    """`bench_predictor --keep` writes it again."""
    for entry in grid_cells():
        cell = Cell(Setting(entry["flush_ms"], entry["commit_ms"], entry["rules"]), entry["fault"])
        now = Result(cell, entry["observed"], entry["stall_ms"]).to_dict()
        figures = ("p5", "p50", "p95", "worst")
        assert [now[name] for name in figures] == [entry[name] for name in figures], entry


def test_the_page_shows_what_the_package_keeps() -> None:
    """`bench_predictor --print` prints both."""
    page = (ROOT / "docs" / "explanation" / "predictor.md").read_text()
    results = Kept.read(KEPT).results
    assert table(results) in page
    assert summary(results) in page
