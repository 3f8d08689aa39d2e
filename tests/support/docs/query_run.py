"""A run where the page about queries says that it is, and the queries of that page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.report.make_report import read_report, report_many
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.docs.pages import blocks
from tests.support.processes.child_process import ROOT

PAGE = ROOT / "docs" / "howto" / "query-the-lake.md"
FOLDER = "runs/latest/handover"


def totals_of_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Make a run below ``folder`` whose first half is warm-up; return its report's totals."""
    monkeypatch.chdir(folder)
    generate(Plan(rows=2_000, seed=9), Path(FOLDER))
    closed = Path(FOLDER, "closed.json")
    document = json.loads(closed.read_text())
    document["phases"]["warmup_end_ns"] = document["phases"]["end_ns"] // 2
    closed.write_text(json.dumps(document))
    Path(FOLDER, "manifest.json").unlink(missing_ok=True)
    return report_totals(monkeypatch)


def report_totals(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Report on the run folder, without the page; return the totals."""
    monkeypatch.setattr("failback.analytics.report.make_report._html_can_be_made", lambda: False)
    (made,) = report_many([Path(FOLDER)], "local")
    found: dict[str, Any] = read_report(made.json)["totals"]
    return found


def run_query(section: str) -> None:
    """Run the first Python of the page, which finds the files, and the block of a section."""
    before = PAGE.read_text().split(f"\n## {section}\n")[0].count("\n")
    found = [block for block in blocks(PAGE) if block.language == "python"]
    names: dict[str, Any] = {}
    exec(found[0].text, names)
    exec(next(block for block in found if block.line > before).text, names)


def statement_for(engine: str) -> str:
    """Return the SQL of the page that registers a table with an engine."""
    before = PAGE.read_text().split(f"\n{engine}")[0].count("\n")
    found = (block for block in blocks(PAGE) if block.language == "sql")
    return next(block for block in found if block.line > before).text
