"""A lake as Spark sees it by itself, without a hint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from failback.analytics.analysis.engines.spark.session import why_not
from failback.client.consumelog.upload.layout import GUARD
from tests.spark.spark_session import two_threads
from tests.support.analytics.many_runs import DELIVERIES, many_runs
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


@pytest.mark.soak
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
