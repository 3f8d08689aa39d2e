"""The queries of the page about lakes give the figures of the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.jobs.lake import main
from failback.analytics.run.query_paths import lake_paths, query_paths
from tests.support.docs.query_run import FOLDER, run_query, totals_of_run


@pytest.fixture
def totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return totals_of_run(tmp_path, monkeypatch)


@pytest.mark.parametrize("section", ["DuckDB", "pandas"])
def test_a_query_gives_the_figures_of_the_report(
    section: str, totals: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert totals["dup"]
    run_query(section)
    printed = {int(number) for number in re.findall(r"\b\d+\b", capsys.readouterr().out)}
    assert {totals["delivered"], totals["distinct"], totals["dup"]} <= printed


def test_the_command_names_the_same_files(
    totals: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = query_paths(FOLDER)
    assert main(["paths", FOLDER, "--table", "deliver"]) == 0
    assert capsys.readouterr().out.splitlines() == paths["deliver"]
    assert main(["paths", FOLDER, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tables"] == paths.tables
    assert told["figures_from"] == paths.figures_from
    assert main(["paths", f"{FOLDER}/lake", "--run", paths.run, "--table", "deliver"]) == 0
    assert capsys.readouterr().out.splitlines() == paths["deliver"]


def test_what_is_not_there_is_named(
    totals: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["paths", f"{FOLDER}/lake"]) == 2
    assert "--run ID" in capsys.readouterr().err
    assert main(["paths", FOLDER, "--table", "delivered"]) == 2
    assert "has no table delivered; it has" in capsys.readouterr().err
    with pytest.raises(ReportInputError, match="no rows of run other"):
        lake_paths(f"{FOLDER}/lake", "other")
