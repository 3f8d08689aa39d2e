"""The queries of the page about lakes give the figures of the report."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.run.query_paths import lake_paths, query_paths
from failback.cli.measure.lake import main
from tests.support.analytics.run_builder import RunBuilder
from tests.support.analytics.run_documents import put_documents
from tests.support.docs.pages import blocks
from tests.support.docs.query_run import FOLDER, PAGE, report_totals, run_query, totals_of_run


@pytest.fixture
def totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return totals_of_run(tmp_path, monkeypatch)


def figures_of(section: str, capsys: pytest.CaptureFixture[str]) -> set[float]:
    run_query(section)
    return {float(number) for number in re.findall(r"\b\d+(?:\.\d+)?\b", capsys.readouterr().out)}


@pytest.mark.parametrize("section", ["DuckDB", "pandas"])
def test_a_query_gives_the_figures_of_the_report(
    section: str, totals: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {totals[each] for each in ("delivered", "distinct", "dup", "dup_ratio")}
    assert totals["dup"]
    assert wanted <= figures_of(section, capsys)


@pytest.mark.parametrize("section", ["DuckDB", "pandas"])
def test_retries_are_what_the_page_says_of_them(
    section: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    b = RunBuilder("retried")
    b.assign(0, 0)
    b.run_of(range(4), 10)
    b.deliver(4, 20, 21, status="LATER")
    b.assign(25, 0, ptopic="%RETRY%g")
    b.sendback(4, 22)
    for qoff in range(2):
        b.deliver(qoff, 30 + qoff, 32, lid=4, rt=1, topic="%RETRY%g")
    b.write(Path(FOLDER), manifest=False)
    totals = report_totals(monkeypatch)
    assert (totals["delivered"], totals["distinct"], totals["retry"], totals["dup"]) == (7, 5, 1, 1)
    assert figures_of(section, capsys) >= {7, 5, 2, 0.4}


def test_tables_of_your_own_open_as_the_page_says(totals: dict[str, Any]) -> None:
    before = PAGE.read_text().split("\n## As tables of your own\n")[0].count("\n")
    after = PAGE.read_text().split("\n## A lake with many runs\n")[0].count("\n")
    found = [block for block in blocks(PAGE) if before < block.line < after]
    arrow, frame, statement, *_ = [b.text for b in found if b.language in {"python", "sql"}]
    names: dict[str, Any] = {}
    exec(arrow, names)
    rows = names["deliver"].count_rows()
    assert rows >= totals["delivered"]
    exec(frame.replace("2026-01-01", "2000-01-01"), names)
    assert len(names["deliver"]) == rows
    with duckdb.connect(":memory:") as db:
        db.execute(statement.replace("'lake/", f"'{FOLDER}/lake/"))
        assert db.execute("SELECT count(*) FROM deliver").fetchall() == [(rows,)]
        shown = db.execute("SELECT * FROM deliver LIMIT 0").description or ()
        assert {"date", "run"} <= {column[0] for column in shown}


def test_a_lake_knows_the_warm_up_where_it_has_the_documents(
    totals: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_run = query_paths(FOLDER)
    assert of_run.figures_from
    lake = tmp_path / "lake"
    shutil.copytree(Path(FOLDER, "lake"), lake)
    assert lake_paths(lake, of_run.run).figures_from == 0
    put_documents(lake, Path(FOLDER))
    assert lake_paths(lake, of_run.run).figures_from == of_run.figures_from


def test_a_file_that_is_left_out_is_named(
    totals: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Path(query_paths(FOLDER)["produce"][0])
    broken.write_bytes(broken.read_bytes()[:-20])
    assert broken.name in query_paths(FOLDER).unreadable[0]
    assert main(["paths", FOLDER]) == 1
    told = capsys.readouterr()
    assert broken.name in told.err
    assert str(broken) not in told.out


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
