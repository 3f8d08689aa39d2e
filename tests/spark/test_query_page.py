"""What the page about lakes says for Spark: its query, and the table that it registers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from failback.analytics.analysis.engines.spark.session import why_not
from tests.spark.spark_session import two_threads
from tests.support.docs.query_run import FOLDER, run_query, statement_for, totals_of_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark's own sockets to its JVM are closed by its finalisers, after the test that used them.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SparkSession]:
    if reason := why_not():
        pytest.skip(reason)
    yield from two_threads(tmp_path)


def test_the_query_gives_the_figures_of_the_report(
    session: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    totals = totals_of_run(tmp_path, monkeypatch)
    run_query("Spark")
    numbers = re.findall(r"\b\d+(?:\.\d+)?\b", capsys.readouterr().out)
    wanted = {totals[each] for each in ("delivered", "distinct", "dup", "dup_ratio")}
    assert wanted <= {float(number) for number in numbers}


def test_the_statements_register_the_rows_with_their_days_and_runs(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = totals_of_run(tmp_path, monkeypatch)
    text = statement_for("Spark").replace("s3a://messaging/lake", f"{tmp_path}/{FOLDER}/lake")
    for statement in text.strip().rstrip(";").split(";"):
        session.sql(statement)
    rows = session.table("deliver")
    assert {"date", "run"} <= set(rows.columns)
    assert rows.select("did").distinct().count() >= totals["delivered"]
    assert rows.where("run IS NULL OR date IS NULL OR bt IS NULL").count() == 0
