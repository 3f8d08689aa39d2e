"""A lake as Spark sees it by itself: without a hint, and by the statements that register it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.run.lake_query import asked
from failback.analytics.run.lake_statements import statements
from failback.analytics.run.lake_tables import VIEWS, lake_tables
from failback.analytics.run.run_source import put_documents, source_at
from failback.client.consumelog.upload.layout import GUARD
from tests.spark.spark_session import two_threads
from tests.support.analytics.histories import random_history
from tests.support.analytics.many_runs import DELIVERIES, many_runs
from tests.support.analytics.run_builder import MS, merged
from tests.support.common.polling import SCALE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
RUNS = 2_000
SECONDS = 60 * SCALE


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    problem = why_not()
    if problem:
        pytest.skip(problem)
    yield from two_threads(tmp_path_factory.mktemp("spark"))


def test_two_thousand_runs_open_without_a_hint(spark: SparkSession, tmp_path: Path) -> None:
    lake = many_runs(tmp_path, RUNS)
    begun = time.monotonic()
    deliver = spark.read.parquet(f"{lake}/table=deliver")
    assert {"date", "run", "bt"} <= set(deliver.columns)
    assert deliver.where("run = 'r7'").count() == DELIVERIES
    assert deliver.where("date = DATE '2025-10-10'").count() == 50 * DELIVERIES
    assert time.monotonic() - begun < SECONDS
    one = deliver.where("run = 'r7'").select("qoff")
    plan = one._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(run" in plan
    assert "ReadSchema: struct<qoff:bigint>" in plan
    with pytest.raises(Exception, match=GUARD):
        spark.read.parquet(str(lake)).count()


def test_the_statements_for_spark_give_what_duckdb_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    for seed in range(2):
        builders = [random_history(Random(5_000 + 10 * seed + n), warmup=False) for n in range(6)]
        for builder in builders:
            builder.run["warmup_end_ns"] = 20 * MS
        run = merged(builders, f"run-{seed}").write(tmp_path / f"run-{seed}", manifest=False)
        shutil.copytree(run / "lake", lake, dirs_exist_ok=True)
        put_documents(lake_tables(lake).store, source_at(run).folder)
    tables = lake_tables(lake)
    for statement in statements(tables, "spark"):
        spark.sql(statement)
    for view in VIEWS:
        with asked(tables, f"FROM {view}") as answer:
            columns, wanted = answer.columns, list(answer.rows)
        assert wanted, view
        quoted = ", ".join(f"`{name}`" for name in columns)
        found = [tuple(row) for row in spark.sql(f"SELECT {quoted} FROM {view}").collect()]
        assert sorted(map(repr, found)) == sorted(map(repr, wanted)), view
