"""The tables and the report that ``jobs.reconsume`` writes, against a report of the same run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.jobs import reconsume
from failback.analytics.report.make_report import read_report, report
from failback.analytics.report.results import result_of
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.spark.spark_session import two_threads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    problem = why_not()
    if problem:
        pytest.skip(problem)
    yield from two_threads(tmp_path_factory.mktemp("spark"))


def test_a_result_has_the_rows_and_the_report_of_the_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(rows=5_000, groups=2, seed=5)
    run = tmp_path / "run"
    truth = generate(plan, run)
    out = tmp_path / "out"
    given = ["--lake", str(run / "lake"), "--documents", str(run), "--out", str(out)]
    assert reconsume.main([*given, "--keep-rows", "none"]) == 0
    assert not list(out.rglob("class"))
    assert reconsume.main(given) == 0
    (group, *_) = truth["groups"]
    classes = pq.read_table(next(out.rglob("class")), partitioning=None)
    dups = classes.filter(pc.equal(classes.column("cls"), "DUP")).to_pylist()
    assert Counter(row["grp"] for row in dups)[group] == truth["groups"][group]["dup"]
    direct = read_report(report(run, "local", tmp_path / "direct").json)
    made = read_report(out / result_of(plan.run) / "report.json")
    for part in ("totals", "groups", "queues", "rollbacks", "checks", "verdict"):
        assert made[part] == direct[part], part
    assert reconsume.main([*given[:2], "--run", "nosuch", "--out", str(out)]) == 2
    assert "has no rows of run nosuch" in capsys.readouterr().err
    assert reconsume.main([*given, "--group", "nosuch"]) == 2
    known = ", ".join(sorted(truth["groups"]))
    assert f"--group nosuch has no delivery; groups: {known}\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        reconsume.main([*given, "--group", "a b"])
    assert "argument --group: " in capsys.readouterr().err
