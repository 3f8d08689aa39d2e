"""The Python API: runs of a lake and of a folder, figures by path, tables, comparisons."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from failback.analytics.api import (
    Lake,
    ReportInputError,
    Result,
    Run,
    analyse,
    compare,
    open_lake,
    open_run,
    predict,
    read_result,
)
from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from failback.analytics.run.run_source import source_at
from failback.client.consumelog.schema import TABLES
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.lake_of_runs import lake_of_runs
from tests.support.processes.child_process import failback_environment

CHANGING = ("created", "timings")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    generate(Plan(rows=2_000, groups=2, seed=9), run)
    return run


@pytest.fixture(scope="module")
def result(folder: Path) -> Result:
    return analyse(folder, "local")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return open_lake(lake_of_runs(tmp_path_factory.mktemp("lake")))


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


def said(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in CHANGING}


def test_a_result_is_what_failback_report_writes(
    folder: Path, result: Result, tmp_path: Path, no_page: None
) -> None:
    by_command = report(folder, "local", tmp_path / "command")
    written = result.write(tmp_path / "api")
    assert said(read_report(written.json)) == said(read_report(by_command.json))
    tables = sorted(path.stem for path in (by_command.folder / "tables").glob("*.parquet"))
    assert list(result.tables) == tables
    again = read_result(written.folder)
    assert said(again.document) == said(read_report(by_command.json))
    assert again.points.equals(result.points)
    for name in tables:
        assert again.table(name).equals(result.table(name))
        assert (written.folder / f"tables/{name}.csv").read_bytes() == (
            by_command.folder / f"tables/{name}.csv"
        ).read_bytes()


def test_a_run_of_a_folder_has_a_place_for_its_report(
    folder: Path, result: Result, lake: Lake, no_page: None
) -> None:
    assert result.write().folder == folder / "report"
    run = lake.runs()[0]
    with pytest.raises(ReportInputError, match="has no folder: name one"):
        analyse(run, "local").write()


def test_figures_are_found_by_path(result: Result) -> None:
    document = result.document
    assert result["totals.dup"] == document["totals"]["dup"] > 0
    assert result.report.totals.dup == document["totals"]["dup"]
    assert result["groups.g1.dup"] == document["groups"][1]["dup"]
    assert result["groups", "g1", "dup"] == document["groups"][1]["dup"]
    assert result["groups.0.group"] == "g0"
    assert result["verdict.value"] == result.verdict
    assert result["compare.baseline"] is None
    assert result["loss.groups.g0.OK"] == document["loss"]["groups"]["g0"]["OK"]
    assert result.block("groups.g0")["group"] == "g0"
    assert result.verdict in repr(result)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("totals.dupe", 'totals has no "dupe", did you mean "dup"?'),
        ("total.dup", 'the report has no "total", did you mean "totals"?'),
        ("groups.g2.dup", 'groups has no "g2", one of g0, g1'),
        ("groups.billing.dup", 'groups has no "billing", one of g0, g1'),
        ("groups.9.dup", "one of g0, g1"),
        ("totals.dup.more", 'totals.dup has no "more"'),
        ("groups", '"groups" is no single figure; it has g0, g1'),
        ("totals", "is no single figure; it has produced, "),
        ("", 'has no ""'),
    ],
)
def test_a_path_that_leads_nowhere_is_told_with_what_is_there(
    path: str, words: str, result: Result
) -> None:
    with pytest.raises(ReportInputError) as error:
        result[path]
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_that_is_not_there_is_told_with_the_nearest(result: Result) -> None:
    with pytest.raises(ReportInputError, match='no table "cause", did you mean "causes"'):
        result.table("cause")


def test_rows_are_those_of_the_lake(folder: Path) -> None:
    run = open_run(folder)
    rows = source_at(folder).lake
    assert run.tables == {name: rows.rows(name) for name in sorted(rows.parts)}
    for name in run.tables:
        assert run.table(name).to_pylist() == rows.read(name).to_pylist(), name
    billing = run.table("deliver", ["qoff"], pc.field("grp") == "g1")
    listed = run.table("deliver", ["qoff"], [("grp", "=", "g1")])
    groups = rows.read("deliver", ["grp", "qoff"])
    wanted = groups.filter(pc.equal(groups.column("grp"), "g1")).select(["qoff"])
    assert billing.to_pylist() == listed.to_pylist() == wanted.to_pylist()
    assert wanted.num_rows


def test_a_table_without_rows_has_its_columns(folder: Path) -> None:
    run = open_run(folder)
    (name, *_) = set(TABLES) - set(run.tables)
    assert run.table(name).num_rows == 0
    assert run.table(name).column_names == run.dataset(name).schema.names


def test_what_a_run_does_not_have_is_told_with_the_nearest(folder: Path) -> None:
    run = open_run(folder)
    with pytest.raises(ReportInputError, match='no table "delivr", did you mean "deliver"'):
        run.table("delivr")
    with pytest.raises(ReportInputError, match='deliver has no column "qof", did you mean "qoff"'):
        run.table("deliver", ["qof"])
    with pytest.raises(ReportInputError, match='deliver has no column "qof", did you mean "qoff"'):
        run.table("deliver", filter=pc.field("qof") > 3)


def test_a_file_that_is_cut_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    generate(Plan(rows=2_000, groups=2, seed=9), copy)
    run = open_run(copy)
    assert run.tables  # footers are read; then the file goes
    for part in run.source.lake.parts["deliver"]:
        path = copy / "lake" / part.name
        path.write_bytes(path.read_bytes()[: part.size // 3])
    with pytest.raises(ReportInputError, match="deliver: cannot be read"):
        run.table("deliver")
    again = open_run(copy)
    assert len(again.unreadable) == len(run.source.lake.parts["deliver"])
    assert again.table("deliver").num_rows == 0


def test_integers_stay_exact_in_pandas(folder: Path) -> None:
    run = open_run(folder)
    frame = run.frame("produce", ["wall_ns", "lane", "t0"])
    assert {str(kind) for kind in frame.dtypes} == {"Int64"}
    assert frame["wall_ns"].max() == pc.max(run.table("produce").column("wall_ns")).as_py()


def test_a_lake_lists_its_runs(lake: Lake) -> None:
    runs = list(lake)
    assert len(lake) == len(runs) == 6
    assert [run.id for run in runs] == lake.ids()
    assert {run.arm for run in runs} == {"handover", "stay"}
    assert all(run.closed and run.experiment == "comparison" for run in runs)
    assert len({run.started for run in runs}) == 6
    listed = lake.listing().to_pylist()
    assert [row["run"] for row in listed] == lake.ids()
    assert [row["started"].to_pydatetime() for row in listed] == [run.started for run in runs]
    assert [run.id for run in lake.runs(arm="stay")] == [
        row["run"] for row in listed if row["arm"] == "stay"
    ]
    assert lake.runs(experiment="nosuch") == []
    assert lake[runs[2].id] == runs[2]
    assert len(lake.frame()) == 6


@pytest.mark.full
def test_a_lake_answers_sql(lake: Lake) -> None:
    found = lake.query("select run, grp, duplicates from totals order by run")
    assert found.column_names == ["run", "grp", "duplicates"]
    reports = [analyse(run, "local").report.totals.dup for run in lake]
    assert found.column("duplicates").to_pylist() == reports
    assert lake.query("select run from runs where false").num_rows == 0
    with pytest.raises(ReportInputError, match="totals"):
        lake.query("select * from total")


def test_a_run_without_documents_is_listed(folder: Path) -> None:
    (run,) = open_lake(folder / "lake")
    assert (run.started, run.experiment, run.arm, run.repetition) == (None,) * 4
    assert not run.closed
    assert analyse(run, "local")["totals.delivered"] == analyse(folder, "local")["totals.delivered"]
    with pytest.raises(ReportInputError, match=r"has no run\.json"):
        predict(run)


def test_what_is_no_lake_and_no_run_is_told(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ReportInputError, match="no such folder"):
        open_lake(tmp_path / "nosuch")
    with pytest.raises(ReportInputError, match="not gs"):
        open_lake("gs://bucket/lake")
    with pytest.raises(ReportInputError, match=r"run\.json: is missing"):
        open_run(tmp_path)
    with pytest.raises(ReportInputError, match='no rows of run "stay-9", did you mean "stay-'):
        lake.run("stay-9")


@pytest.mark.full
def test_runs_are_compared_by_arm(lake: Lake, tmp_path: Path, no_page: None) -> None:
    results = [analyse(run, "local") for run in lake]
    found = compare(results, baseline="stay")
    assert found.baseline == "stay"
    assert found.runs().num_rows == 6
    arms = {row["arm"]: row for row in found.arms().to_pylist() if row["metric"] == "dup"}
    dups = {arm: [r.report.totals.dup for r in results if r["arm"] == arm] for arm in arms}
    for arm, row in arms.items():
        assert (row["least"], row["most"]) == (min(dups[arm]), max(dups[arm]))
        assert row["runs"] == 3
    (difference,) = [row for row in found.difference().to_pylist() if row["metric"] == "dup"]
    assert difference["arm"] == "handover"
    assert difference["median"] == arms["handover"]["median"] - arms["stay"]["median"] > 0
    files = [result.write(tmp_path / result.run).json for result in results]
    assert compare(files, baseline="stay") == found
    assert compare(results).baseline == results[0]["arm"]


def test_a_comparison_that_cannot_be_is_refused(result: Result, tmp_path: Path) -> None:
    with pytest.raises(ReportInputError, match="two results or more, not 1"):
        compare([result])
    with pytest.raises(ReportInputError, match='no result is of arm "stay"'):
        compare([result, result], baseline="stay")
    with pytest.raises(ReportInputError, match="cannot be read"):
        read_result(tmp_path)


def test_arguments_of_an_analysis_are_those_of_the_command(folder: Path, result: Result) -> None:
    limited = analyse(folder, "local", expect=["totals.dup <= 0"])
    assert limited.verdict == "Fail"
    half = result["window.end_ns"]
    assert isinstance(half, int)
    later = analyse(folder, "local", since=str(half / 2e9))
    assert later["definitions.since_ns"] == round(half / 2)
    assert 0 < int(str(later["totals.delivered"])) < int(str(result["totals.delivered"]))
    assert analyse(folder, "local", key="messageId")["definitions.key"] == "messageId"
    with pytest.raises(ReportInputError, match="dupe"):
        analyse(folder, expect=["totals.dupe <= 0"])
    with pytest.raises(ReportInputError, match="engine must be one of"):
        analyse(folder, "duckdb")  # type: ignore[arg-type]
    with pytest.raises(ReportInputError, match="given to the local engine"):
        analyse(folder, "local", spark=object())  # type: ignore[arg-type]


def test_a_prediction_is_that_of_the_command(lake: Lake) -> None:
    environment = {**os.environ, **failback_environment()}
    words = ["predict", "--rate", "400", "--members", "4", "--fault", "handover", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "failback.cli", *words],
        env=environment, capture_output=True, check=True,
    )  # fmt: skip
    found = predict(fault="handover", rate=400, members=4)
    wanted = json.loads(done.stdout)
    assert found.document["cases"][0]["predictions"] == wanted["cases"][0]["predictions"]
    assert found.document["cases"][0]["knobs"] == wanted["cases"][0]["knobs"]
    (row,) = found.table().to_pylist()
    assert (row["fault"], row["median"]) == (
        "handover",
        wanted["cases"][0]["predictions"][0]["median"],
    )
    assert found.knobs().num_rows == len(wanted["cases"][0]["knobs"])
    assert len(found.frame()) == 1


def test_a_run_is_predicted_beside_what_it_counted(lake: Lake) -> None:
    run = lake.runs(arm="handover")[0]
    counted = analyse(run, "local")
    found = predict(run, observed=counted)
    assert [row["observed"] for row in found.table().to_pylist()] == [counted["groups.g0.dup"]]
    assert found.cases[0].name == "handover/g0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fault": "handovr"}, 'did you mean "handover"'),
        ({"ratte": 3}, "ratte"),
        ({"group": "billing"}, "name a run"),
        ({"down_seconds": -1.0}, "must be above 0"),
        ({"draws": 0}, "must be between 1"),
    ],
)
def test_a_prediction_that_cannot_be_made_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ReportInputError) as error:
        predict(**arguments)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_importing_it_starts_and_loads_nothing_large() -> None:
    code = (
        "import sys, threading; import failback.analytics.api;"
        "print([m for m in ('pandas', 'pyspark', 'duckdb', 'plotly') if m in sys.modules],"
        " threading.active_count())"
    )
    environment = {**os.environ, **failback_environment()}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == "[] 1"


def test_a_run_says_from_where_its_figures_are(folder: Path) -> None:
    run = open_run(folder)
    assert isinstance(run, Run)
    rows = run.table("deliver", ["bt"], pc.field("bt") >= run.figures_from)
    assert rows.num_rows == analyse(run, "local")["totals.delivered"]
