"""A run that version 0.1.0 recorded and reported: read, with the same figures.

``of-0-1.tar.gz`` is a run folder of a kill with a restart of consumers on the local runtime at a
tenth of all timers, as 0.1.0 closed it, with the ``report.json`` that 0.1.0 made of it.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from failback.analytics.report.make_report import report_many
from failback.analytics.report.schema import read_report
from failback.chaos.experiment.generate import validate
from failback.chaos.faults.experiments import load_experiment
from failback.chaos.run.summary import summarize

ARCHIVE = Path(__file__).parents[2] / "data/runs/of-0-1.tar.gz"
FIGURES = (
    *("faults", "totals", "groups", "queues", "rollbacks", "resume_points", "offset_drops"),
    *("divergence", "loss", "order", "rto", "bounds", "handover", "exposure", "producer"),
)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "of-0-1"


def test_its_report_is_read_with_todays_names(run_dir: Path) -> None:
    report = read_report(run_dir / "report" / "report.json")
    assert [fault["proved"] for fault in report["faults"]] == [True, True]
    assert not any("honest" in fault for fault in report["faults"])


def test_it_is_reported_with_the_same_figures(run_dir: Path, tmp_path: Path) -> None:
    before = read_report(run_dir / "report" / "report.json")
    (paths,) = report_many([run_dir], "local", tmp_path / "report")
    after = read_report(paths.json)
    assert {name: after[name] for name in FIGURES} == {name: before[name] for name in FIGURES}
    for name in ("value", "sentence"):
        assert after["verdict"][name] == before["verdict"][name]
    codes = [[reason["code"] for reason in each["verdict"]["reasons"]] for each in (after, before)]
    assert codes[0] == codes[1]


def test_its_experiment_is_still_one(run_dir: Path) -> None:
    document = json.loads((run_dir / "experiment.json").read_bytes())
    assert document["controls"][0]["provider"]["module"] == "failback.chaos.controls"
    validate(document)
    assert load_experiment(run_dir / "experiment.yaml").name == "of-0-1"


def test_its_summary_says_what_was_proved(run_dir: Path) -> None:
    outcome = json.loads((run_dir / "outcome.json").read_bytes())
    lines = (run_dir / "evidence.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    summary = summarize(outcome, rows, exit_code=0, verdict="Pass", reasons=())
    assert [fault["proved"] for fault in summary["faults"]] == [True, True]
