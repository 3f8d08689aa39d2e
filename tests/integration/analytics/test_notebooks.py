"""The notebooks of examples/ run as they are, and what they show is what the report says."""

from __future__ import annotations

import ast
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from failback.analytics.report.make_report import read_report, report_many
from failback.analytics.run.run_source import source_in_lake
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.lake_of_runs import ARMS, REPETITIONS, lake_of_runs
from tests.support.common.polling import SCALE
from tests.support.processes.child_process import ROOT, failback_environment

NOTEBOOKS = ROOT / "examples" / "notebooks"
PLOT = "application/vnd.plotly.v1+json"
Outputs = dict[str, dict[str, Any]]


def outputs_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Outputs:
    """Run a notebook in ``folder``; what each cell shows, by its last statement on one line."""
    for variable, value in failback_environment().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("PLOTLY_RENDERER", "plotly_mimetype")
    monkeypatch.setenv("IPYTHONDIR", str(folder / ".ipython"))
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells), "kept without outputs"
    client = NotebookClient(
        notebook,
        timeout=round(300 * SCALE),
        startup_timeout=round(60 * SCALE),
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()  # raises where a cell does
    found: Outputs = {}
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            last = ast.unparse(ast.parse(cell.source).body[-1])
            assert output.get("name") != "stderr", f"{last}: {output['text']}"
            found[last] = output.get("data", {"text/plain": output.get("text", "")})
    return found


def plot(found: Outputs, start: str) -> list[dict[str, Any]]:
    """The traces of the plot that the cell with this last statement draws."""
    (shown,) = [data for last, data in found.items() if last.startswith(start)]
    traces: list[dict[str, Any]] = json.loads(json.dumps(shown[PLOT]))["data"]
    return traces


def text(found: Outputs, start: str) -> str:
    (shown,) = [data for last, data in found.items() if last.startswith(start)]
    return str(shown["text/plain"])


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("failback.analytics.report.make_report._html_can_be_made", lambda: False)


def test_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "runs" / "demo" / "handover"
    generate(Plan(rows=2_000, groups=2, seed=9), run)
    (tmp_path / "runs" / "latest").symlink_to("demo")
    (by_command,) = report_many([run], "local", tmp_path / "by-command")
    report = read_report(by_command.json)
    found = outputs_of("one-run", tmp_path, monkeypatch)
    figures = ast.literal_eval(text(found, "{path: result[path]"))
    assert figures == {f"totals.{name.partition('.')[2]}": report["totals"][name.partition(".")[2]]
                       for name in figures}  # fmt: skip
    assert figures["totals.dup"] > 0
    assert text(found, "print(result.sentence)").strip() == report["verdict"]["sentence"]
    bars = plot(found, "px.bar(causes, x='messages'")
    assert {bar["name"] for bar in bars} == {row["group"] for row in report["groups"]}
    written = read_report(tmp_path / "report-of-the-notebook" / "report.json")
    assert written["totals"] == report["totals"]
    assert "report.json" in text(found, "sorted((path.name")


def test_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of_runs(tmp_path)
    ids = [f"{arm}-{number}" for arm in ARMS for number in range(REPETITIONS)]
    made = report_many([source_in_lake(lake, each) for each in ids], "local", tmp_path / "reports")
    reports = {each: read_report(paths.json) for each, paths in zip(ids, made, strict=True)}
    found = outputs_of("many-runs", tmp_path, monkeypatch)
    assert all(each in text(found, "lake.frame()") for each in ids)
    points = plot(found, "px.strip(")
    for arm in ARMS:
        mine = [report["totals"]["dup"] for each, report in reports.items() if report["arm"] == arm]
        shown = [
            value
            for trace in points
            for x, value in zip(trace["x"], values_of(trace["y"]), strict=True)
            if x == arm
        ]
        assert sorted(shown) == sorted(mine)
    of_run = reports["handover-0"]["groups"][0]
    assert str(of_run["dup"]) in text(found, "forecast.frame()")
    counted = text(found, "duckdb.sql(").splitlines()[-1].split()
    assert counted[1:] == ["g0", str(of_run["delivered"]), str(of_run["dup"])]
    assert "handover" in text(found, "predict(fault=")


def values_of(values: Any) -> list[float]:
    """The numbers of a trace, which plotly may pack."""
    packed = not isinstance(values, list)
    plain = np.frombuffer(b64decode(values["bdata"]), values["dtype"]) if packed else values
    return [float(value) for value in plain]
