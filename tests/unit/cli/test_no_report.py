"""A run whose report cannot be made leaves what the harness knows of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from failback.chaos.run.outcome import RunOutcome
from failback.cli.experiment.running import _conclude
from failback.cli.shared.termination import VARIABLE
from tests.support.analytics.cases import c2


@pytest.mark.parametrize(
    ("verdict", "code", "told"), [("Pass", 0, "Inconclusive"), ("Fail", 1, "Fail")]
)
def test_the_run_is_named_where_its_report_is_not_there(
    verdict: str, code: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = c2()[0].write(tmp_path / "kill" / "stay-000")
    (folder / "run.json").write_text("{")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "said"))
    outcome = RunOutcome("kill-stay-0-1", str(folder), "stay", 0, verdict, code)
    with pytest.raises(typer.Exit) as ended:
        _conclude([outcome], "local", json=False)
    assert ended.value.exit_code > code
    said = json.loads((tmp_path / "said").read_text())
    assert (said["run"], said["verdict"], said["exit"]) == (
        "kill-stay-0-1",
        told,
        ended.value.exit_code,
    )
    (reason,) = said["reasons"]
    assert reason.startswith("NO_REPORT: ")
    assert "run.json" in reason
