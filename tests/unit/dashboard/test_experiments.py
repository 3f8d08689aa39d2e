"""Nothing is started that the audit log does not have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from failback.analytics.dashboard.experiments import Experiments
from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.settings import Scenario


def experiments(folder: Path, audit: Path, program: str) -> Experiments:
    mark = str(folder / "started")
    scenario = Scenario(
        "touch", "t", "w", False, (), (),
        lambda _: [program, "-c", "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()", mark],
    )  # fmt: skip
    return Experiments([scenario], folder / "logs", audit, lambda _: None)


def test_an_audit_log_that_cannot_be_written_lets_nothing_start(tmp_path: Path) -> None:
    found = experiments(tmp_path, tmp_path / "gone" / "audit.jsonl", sys.executable)
    with pytest.raises(DashboardProblem, match="the audit log"):
        found.start("touch", {}, "ann")
    assert found.job("touch") is None
    assert not (tmp_path / "logs").exists()


def test_what_did_not_start_is_in_the_log_too(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    found = experiments(tmp_path, audit, str(tmp_path / "no-such-program"))
    with pytest.raises(DashboardProblem, match="cannot start touch"):
        found.start("touch", {}, "ann")
    notes = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(note["what"], note["by"]) for note in notes] == [
        ("started", "ann"),
        ("did not start", "ann"),
    ]
