"""The demo with its real timers, on our engine and on Apache RocketMQ: four minutes each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.brute_force import BruteForce
from tests.e2e.demo_checks import check_carried, check_handover, check_stay
from tests.e2e.demo_run import run_demo
from tests.support.java.apache import server_home
from tests.support.processes.leftovers import processes_of


@pytest.mark.soak
@pytest.mark.parametrize("guarded", [[], ["--secured"]])
def test_apache_gets_the_same_verdicts(tmp_path: Path, guarded: list[str]) -> None:
    server_home()  # fetched, or the test is skipped with the reason
    options = ("--engine", "apache", "--carry", "--no-spark", *guarded)
    demo = run_demo(tmp_path / "runs", *options, seconds=900)
    assert demo.done.code == 0, demo.done.output[-4000:] + demo.done.errors[-4000:]
    for arm in ("stay", "handover", "carried"):
        assert demo.report(arm)["system"]["engine"] == "apache"
    check_stay(demo.report("stay"), BruteForce(demo.run_dir("stay")))
    check_handover(demo.report("handover"), BruteForce(demo.run_dir("handover")))
    check_carried(demo.report("carried"), BruteForce(demo.run_dir("carried")))
    assert {arm: row["EVIDENCE"] for arm, row in demo.table().items()} == {
        "stay": "complete",
        "handover": "complete",
        "carried": "complete",
    }
    assert processes_of(demo.runs) == []


@pytest.mark.soak
def test_real_timers_get_the_same_verdicts(tmp_path: Path) -> None:
    demo = run_demo(tmp_path / "runs", "--no-spark", seconds=900)
    assert demo.done.code == 0, demo.done.output[-4000:] + demo.done.errors[-4000:]
    check_stay(demo.report("stay"), BruteForce(demo.run_dir("stay")))
    check_handover(demo.report("handover"), BruteForce(demo.run_dir("handover")))
    assert processes_of(demo.runs) == []
