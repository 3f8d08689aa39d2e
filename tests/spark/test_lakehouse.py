"""Reports from tables of Iceberg, Delta and Hive, with result tables: equal to the local one.

The formats follow Spark's minor versions some months behind, so this is another Spark than that of
the other tests: the one that both are made for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tools.setup import SetupError
from tools.setup_spark import ensure_lakehouse

from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.report.compare import differences
from failback.analytics.report.make_report import read_report
from failback.cli.__main__ import main
from tests.spark.lakehouse.reports import SCHEMAS
from tests.support.analytics.histories import random_history
from tests.support.analytics.run_builder import merged
from tests.support.common.polling import SCALE
from tests.support.processes.child_process import ROOT, failback_environment

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]  # it fetches a Spark, the first time
EXTENSIONS = (
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "io.delta.sql.DeltaSparkSessionExtension",
)


def settings(jars: Path, scratch: Path) -> str:
    """``PYSPARK_SUBMIT_ARGS``: the jars, three catalogs, and where each keeps its tables."""
    found = {
        "spark.sql.extensions": ",".join(EXTENSIONS),
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(scratch / "ice"),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "hive",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={scratch / 'metastore'};create=true"
        ),
    }
    words = ["--jars", ",".join(sorted(map(str, jars.glob("*.jar"))))]
    for name, value in found.items():
        words += ["--conf", f"{name}={value}"]
    return " ".join([*words, "pyspark-shell"])


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a report by the local engine and one for each format."""
    if problem := why_not():
        pytest.skip(problem)
    try:
        jars, python = ensure_lakehouse()
    except SetupError as error:
        pytest.skip(str(error))
    scratch = tmp_path_factory.mktemp("lakehouse")
    whole = merged([random_history(Random(seed), warmup=False) for seed in range(30, 33)])
    run = whole.write(scratch / "merged", manifest=False)
    out = scratch / "out"
    local = out / "local"
    words = ["report", str(run), "--engine", "local", "--out", str(local)]
    assert main([*words, "--results", str(local / "results")]) in (0, 1, 3)
    paths = [str(python), str(ROOT), failback_environment()["PYTHONPATH"]]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.lakehouse.reports", str(run), str(out)],
        cwd=scratch,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_SUBMIT_ARGS": settings(jars, scratch),
            "FAILBACK_SPARK_MASTER": "local[2]",
            "FAILBACK_SPARK_MEMORY": "1g",
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",  # all that runs is short
        },
        capture_output=True,
        text=True,
        timeout=1200 * SCALE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.parametrize("form", SCHEMAS)
def test_tables_of_a_format_give_the_report_of_the_lake(form: str, reports: Path) -> None:
    local = read_report(reports / "local" / "report.json")
    found = read_report(reports / form / "report.json")
    assert (found["engine"], found["totals"]["dup"] > 0) == ("spark", True)
    assert differences(local, found) == []


@pytest.mark.parametrize("form", SCHEMAS)
def test_the_result_tables_are_those_of_the_lake(form: str, reports: Path) -> None:
    local, found = (
        reports / each / "results" / "result" / "run=merged" for each in ("local", form)
    )
    names = {path.name for path in local.glob("*.parquet")}
    assert {path.name for path in found.glob("*.parquet")} == names
    for name in names:
        assert pq.read_table(found / name).equals(pq.read_table(local / name)), name
    assert repeats_in(found).num_rows
    assert repeats_in(found).equals(repeats_in(local))


def repeats_in(result: Path) -> pa.Table:
    """The repeated deliveries, one by one, in an order of their own."""
    rows = pa.concat_tables(map(pq.read_table, sorted((result / "class").glob("*.parquet"))))
    return tables.sorted_table(rows, tables.ATTRIBUTED)
