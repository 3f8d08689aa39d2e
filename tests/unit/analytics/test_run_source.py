"""Runs whose rows are in a lake: documents given, found beside the rows, or made from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.report.make_report import read_report, report_many
from failback.analytics.run.run_source import source_in_lake
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.run_documents import put_documents

PLAN = Plan(rows=2_000, groups=2, seed=9)
SAME = ("totals", "groups", "queues", "rollbacks", "loss", "rto", "verdict")


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A run folder without its rows, and the lake that has them."""
    monkeypatch.setattr("failback.analytics.report.make_report._html_can_be_made", lambda: False)
    run = tmp_path / "run"
    generate(PLAN, run)
    (run / "manifest.json").unlink(missing_ok=True)
    shutil.copytree(run, tmp_path / "whole")
    shutil.move(run / "lake", tmp_path / "collected")
    return run, tmp_path / "collected"


def test_documents_and_rows_may_be_apart(apart: tuple[Path, Path], tmp_path: Path) -> None:
    run, lake = apart
    (whole,) = report_many([tmp_path / "whole"], "local")
    wanted = read_report(whole.json)
    (given,) = report_many([source_in_lake(str(lake), documents=run)], "local", tmp_path / "given")
    put_documents(lake, run)
    (found,) = report_many([source_in_lake(lake, PLAN.run)], "local", tmp_path / "found")
    for paths in (given, found):
        document = read_report(paths.json)
        assert {name: document[name] for name in SAME} == {name: wanted[name] for name in SAME}


def test_rows_alone_are_counted_and_never_pass(apart: tuple[Path, Path], tmp_path: Path) -> None:
    _, lake = apart
    (whole,) = report_many([tmp_path / "whole"], "local")
    (alone,) = report_many([source_in_lake(lake, PLAN.run)], "local", tmp_path / "alone")
    document, wanted = read_report(alone.json), read_report(whole.json)
    for name in ("delivered", "distinct", "dup"):
        assert document["totals"][name] == wanted["totals"][name], name
    assert document["totals"]["lost"] is None
    assert document["verdict"]["value"] != "Pass"


def test_what_is_not_there_is_named(apart: tuple[Path, Path]) -> None:
    run, lake = apart
    with pytest.raises(ReportInputError, match="no rows of run nosuch"):
        source_in_lake(lake, "nosuch")
    with pytest.raises(ReportInputError, match="--run"):
        source_in_lake(lake)
    with pytest.raises(ReportInputError, match=f"is of run {PLAN.run}, not other"):
        source_in_lake(lake, "other", run)
    (lake / "_runs" / f"run={PLAN.run}").mkdir(parents=True)
    (lake / "_runs" / f"run={PLAN.run}" / "run.json").write_text("[]")
    with pytest.raises(ReportInputError, match="must hold an object"):
        source_in_lake(lake, PLAN.run)
