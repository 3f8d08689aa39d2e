"""SQL over a lake: what a report says, names that are near, and what a lake says of itself."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from failback.analytics.errors import ReportInputError
from failback.analytics.report.make_report import read_report, report_many
from failback.analytics.report.measures.loss import LOST_FATES
from failback.analytics.run.lake_sql import GROUPS, RUNS, VIEWS, asked, lake_tables, view_sql
from failback.cli.measure.lake import main
from failback.client.consumelog.schema import TABLES
from tests.support.analytics.histories import random_history
from tests.support.analytics.run_builder import MS, RunBuilder, merged
from tests.support.analytics.run_documents import put_documents

SEED = 4100


def history(seed: int, *, warmup_ns: int | None) -> RunBuilder:
    """Ten groups, each with a history of its own."""
    builders = [random_history(Random(seed * 100 + n), warmup=False) for n in range(10)]
    for builder in builders:
        builder.run["warmup_end_ns"] = warmup_ns
    return merged(builders, f"run-{seed}")


def rows_of(source: Path, sql: str, run: str | None = None) -> list[dict[str, Any]]:
    with asked(lake_tables(source, run), sql) as answer:
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


@pytest.fixture(scope="module", params=[(SEED, None), (SEED + 1, 20 * MS), (SEED + 2, 60 * MS)])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run folder, and its report."""
    seed, warmup = request.param
    folder = tmp_path_factory.mktemp("run") / "r"
    history(seed, warmup_ns=warmup).write(folder, parts=2, manifest=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("failback.analytics.report.make_report._html_can_be_made", lambda: False)
        (made,) = report_many([folder], "local")
    return folder, read_report(made.json)


@pytest.mark.few(1)
def test_totals_of_groups_are_those_of_the_report(told: Any) -> None:
    folder, report = told
    found = {row["grp"]: row for row in rows_of(folder, "SELECT * FROM totals")}
    names = {
        "delivered": "delivered",
        "distinct_messages": "distinct",
        "primary_deliveries": "primary",
        "retries": "retry",
        "duplicates": "dup",
        "abandoned": "abandoned",
    }
    groups = [group for group in report["groups"] if group["delivered"]]
    assert {group["group"] for group in groups} == set(found)
    for group in groups:
        row = found[group["group"]]
        assert {name: row[name] for name in names} == {
            name: group[figure] for name, figure in names.items()
        }, group["group"]
        assert round(row["dup_ratio"], 4) == group["dup_ratio"]
        assert (row["wasted_seconds"] or 0) == pytest.approx(group["wasted_seconds"], abs=2e-6)
    total = rows_of(folder, "SELECT sum(delivered) AS n, sum(duplicates) AS dup FROM totals")
    assert total == [{"n": report["totals"]["delivered"], "dup": report["totals"]["dup"]}]
    assert total[0]["dup"] > 10


def joined(ranges: list[dict[str, int]]) -> list[list[int]]:
    """Ranges of equal depth that touch are one: a report splits them where the warm-up ends."""
    found: list[list[int]] = []
    for each in sorted(ranges, key=lambda each: each["lo"]):
        if found and found[-1][1:] == [each["lo"], each["depth"]]:
            found[-1][1] = each["hi"]
        else:
            found.append([each["lo"], each["hi"], each["depth"]])
    return found


@pytest.mark.few(1)
def test_queues_and_their_intervals_are_those_of_the_report(told: Any) -> None:
    folder, report = told
    key = ("grp", "broker", "ptopic", "qid")
    queues = {
        tuple(row[name] for name in key): row
        for row in rows_of(folder, "SELECT * FROM queue_totals")
    }
    depths: dict[Any, list[list[int]]] = {}
    for row in rows_of(folder, "SELECT * FROM redelivered ORDER BY lo"):
        depths.setdefault(tuple(row[name] for name in key), []).append(
            [row["lo"], row["hi"], row["depth"]]
        )
    assert depths
    checked = 0
    for queue in report["queues"]:
        if not queue["delivered"]:
            continue
        at = (queue["group"], queue["broker"], queue["topic"], queue["qid"])
        assert queues[at]["delivered"] == queue["delivered"]
        if queue["epochs"] == 1:
            assert queues[at]["distinct_offsets"] == queue["distinct"], at
            assert depths.get(at, []) == joined(queue["depth_ranges"]), at
            checked += 1
    assert checked > 3


def test_rows_can_be_asked_for_by_long_names(told: Any) -> None:
    folder, report = told
    sql = """SELECT consumer_group, count(*) AS n, max(end_ns - begin_ns) AS longest
             FROM deliveries WHERE counted AND class = 'DUP' GROUP BY consumer_group"""
    found = {row["consumer_group"]: row["n"] for row in rows_of(folder, sql)}
    assert found == {each["group"]: each["dup"] for each in report["groups"] if each["dup"]}
    for view, table, column in (("sends", "produce", "begin_ns"), ("commits", "commit", "at_ns")):
        ((count, filled),) = (
            row.values()
            for row in rows_of(folder, f"SELECT count(*) AS n, count({column}) AS m FROM {view}")
        )
        (row,) = rows_of(folder, f'SELECT count(*) AS n FROM "{table}"')
        assert count == filled == row["n"]


@pytest.mark.full
def test_losses_and_counts_of_redelivery_are_those_of_the_report(told: Any) -> None:
    folder, report = told
    found = {(row["grp"], row["fate"]): row["messages"] for row in rows_of(folder, "FROM losses")}
    assert found == {
        (group, fate): count
        for group, fates in report["loss"]["groups"].items()
        for fate, count in fates.items()
        if count and fate in LOST_FATES and "@" not in group
    }
    assert found
    for group in report["groups"]:
        counted = rows_of(
            folder, f"SELECT times, messages FROM redelivery_counts WHERE grp = '{group['group']}'"
        )
        times = {str(row["times"]): row["messages"] for row in counted}
        assert times == {k: n for k, n in group["redelivery_counts"].items() if n}


def many(folder: Path, count: int = 3) -> Path:
    """A lake of several runs, with their documents."""
    lake = folder / "lake"
    for seed in range(count):
        run = history(SEED + seed, warmup_ns=20 * MS).write(folder / str(seed), manifest=False)
        shutil.copytree(run / "lake", lake, dirs_exist_ok=True)
        put_documents(lake, run)
    return lake


@pytest.mark.full
def test_one_query_asks_all_runs_or_one(tmp_path: Path) -> None:
    lake = many(tmp_path)
    sql = "SELECT run, sum(delivered) AS n FROM totals GROUP BY run ORDER BY run"
    whole = rows_of(lake, sql)
    assert len(whole) == 3
    for each in whole:
        assert rows_of(lake, sql, each["run"]) == [each]


@pytest.mark.full
def test_what_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(many(tmp_path))
    sql = "SELECT run, '\\xAB'::BLOB AS b, 1 AS one, date, NULL AS none FROM runs ORDER BY run"
    assert main(["query", lake, sql, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    first = {"run": "run-4100", "b": "ab", "one": "1", "date": "2023-11-14", "none": ""}
    assert rows[0] == first
    assert main(["query", lake, sql, "--format", "json"]) == 0
    objects = json.loads(capsys.readouterr().out)
    assert objects[0] == first | {"one": 1, "none": None}
    assert main(["query", lake, sql, "--run", "run-4101"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["run       b   one  date        none", "run-4101  ab    1  2023-11-14"]
    assert main(["query", lake, "SELECT 1 AS n WHERE false", "--format", "json"]) == 0
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT * FROM delivr", 'Table with name delivr does not exist! Did you mean "deliver"?'),
        ("SELECT * FROM total", 'Table with name total does not exist! Did you mean "totals"?'),
        ("SELECT qof FROM deliver", 'column "qof" not found in FROM clause! Candidate bindings: '),
        ("SELECT d.duplicate FROM totals d", 'not have a column named "duplicate"'),
        ("SELEC 1", "Parser Error"),
    ],
)  # fmt: skip
def test_a_name_that_is_unknown_is_told_with_the_nearest(
    sql: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", str(many(tmp_path, 1)), sql]) == 2
    message = capsys.readouterr().err
    assert told in message
    assert len(message.splitlines()) == 1


def test_without_duckdb_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["query", str(many(tmp_path, 1)), "SELECT 1"]) == 2
    assert capsys.readouterr().err.count("pip install '.[query]'") == 1


@pytest.mark.full
def test_a_lake_says_what_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(many(tmp_path))
    assert main(["query", lake, "SHOW TABLES", "--format", "json"]) == 0
    names = {row["name"] for row in json.loads(capsys.readouterr().out)}
    assert names == {*TABLES, *VIEWS, RUNS, GROUPS}
    for table in ("deliver", "totals"):
        assert main(["query", lake, f"DESCRIBE {table}", "--format", "json"]) == 0
        columns = {row["column_name"] for row in json.loads(capsys.readouterr().out)}
        assert columns >= {"run", "grp"}, table
    with pytest.raises(ReportInputError, match="no rows of run other"):
        lake_tables(lake, "other")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_about_ten_lines(view: str) -> None:
    code = [line for line in view_sql(view).splitlines() if not line.startswith("--")]
    assert len(code) <= 20
