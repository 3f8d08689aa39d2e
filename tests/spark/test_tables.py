"""Rows that Spark itself reads: tables of the session's catalog, and the files of an open lake."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from failback.analytics.analysis.analysis import analyse
from failback.analytics.analysis.counting.normalise import BASE_COLUMNS
from failback.analytics.analysis.engines.base import Spans
from failback.analytics.analysis.engines.spark.catalog import source_in_tables
from failback.analytics.analysis.engines.spark.runner import spark_engine
from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.analysis.engines.spark.sources import Tables, catalog_tables
from failback.analytics.analysis.results import Analysis
from failback.analytics.errors import ReportInputError
from failback.analytics.run.log_source import source_of_logs
from failback.cli.__main__ import main
from failback.client.consumelog.schema import RUN, TABLES, spark_ddl
from tests.spark.spark_session import two_threads
from tests.support.analytics.collector_lab import write_log
from tests.support.analytics.histories import random_history
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import merged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark's own sockets to its JVM are closed by its finalisers, after the test that used them.
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


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, whose rows are in the schema ``log`` of the catalog as well, beside others."""
    whole = merged([random_history(Random(seed), warmup=False) for seed in range(30, 45)])
    folder = whole.write(tmp_path_factory.mktemp("runs") / "merged", parts=2, manifest=False)
    spark.sql("CREATE DATABASE log")
    for table in TABLES:
        files = [str(path) for path in folder.glob(f"lake/table={table}/**/*.parquet")]
        if files:
            rows = spark.read.schema(spark_ddl(table)).parquet(*files)
            mine = rows.selectExpr("* EXCEPT (run)", "'merged' AS run", "1 AS more")
            other = rows.selectExpr("* EXCEPT (run)", "'other' AS run", "2 AS more")
            mine.unionByName(other).write.partitionBy("run").saveAsTable(f"log.{table}")
    return folder


@pytest.mark.few(1, 1)
@pytest.mark.parametrize("schema", ["spark_catalog.log", "lake"])
def test_what_spark_reads_gives_what_the_lake_gives(
    schema: str, run: Path, spark: SparkSession
) -> None:
    wanted = analysed(run)
    source = source_in_tables(spark, schema, run / "lake", documents=run)
    found = analyse(source.folder, source.lake, spark_engine(source.lake, spark))
    assert found.repeats == wanted.repeats
    assert wanted.rows.num_rows > 0
    assert_equal_counts(found, wanted)


def assert_equal_counts(found: Analysis, wanted: Analysis) -> None:
    assert found.order.equals(wanted.order)
    assert found.distances == wanted.distances
    assert found.windows == wanted.windows
    for mine, theirs in (
        (found.counts.values, wanted.counts.values),
        (found.counts.depths, wanted.counts.depths),
    ):
        assert set(mine) == set(theirs)
        for family, table in mine.items():
            assert table.equals(theirs[family]), family


def test_columns_partitions_and_filters_are_sparks(run: Path, spark: SparkSession) -> None:
    assert run.exists()
    tables = Tables(spark, "merged", catalog_tables(spark, "log"))
    spans: Spans = [{"lane": (3, 3), "lseq": (100, 200)}, {"broker": ("a", "a"), "qoff": (5, 9)}]
    plan = plan_of(tables, spans)
    partition, pushed, schema = (
        next(line for line in plan.splitlines() if line.strip().startswith(name))
        for name in ("PartitionFilters", "PushedFilters", "ReadSchema")
    )
    assert "merged" in partition
    for part in ("IsNull(lane)", "lseq,100", "lseq,200", "EqualTo(broker,a)", "qoff,9"):
        assert part.replace("EqualTo(broker,a)", "broker,a") in pushed, part
    columns = {each.split(":")[0] for each in schema.split("struct<")[1].rstrip(">").split(",")}
    assert columns == set(BASE_COLUMNS)


def plan_of(tables: Tables, spans: Spans) -> str:
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        tables.read("deliver", BASE_COLUMNS, spans).explain("formatted")
    return told.getvalue()


def test_what_the_catalog_lacks_is_named(run: Path, spark: SparkSession) -> None:
    with pytest.raises(ReportInputError, match=r"--tables nosuch: .*nosuch\.deliver"):
        source_in_tables(spark, "nosuch", run / "lake", documents=run)
    with pytest.raises(ReportInputError, match="no rows of run another"):
        source_in_tables(spark, "log", run / "lake", "another")
    spark.sql("CREATE DATABASE IF NOT EXISTS bare")
    spark.sql("CREATE OR REPLACE TEMP VIEW nothing AS SELECT 'merged' AS run, 1 AS qid")
    spark.table("nothing").write.saveAsTable("bare.deliver")
    with pytest.raises(ReportInputError, match=r"table deliver has no column \w+"):
        source_in_tables(spark, "bare", run / "lake", "merged")


def test_a_process_is_whole_if_its_rows_add_up(spark: SparkSession, tmp_path: Path) -> None:
    """Tables do not say which segments came; a joined begin and end are two records of a log."""
    from pyspark.sql.functions import lit

    last = write_log(tmp_path / "logged", deliveries=40)
    rows = tmp_path / "rows"
    lake = source_of_logs(tmp_path / "logged", rows).lake
    spark.sql("CREATE DATABASE logged")
    for table, parts in lake.parts.items():
        files = [str(rows / part.name) for part in parts]
        read = spark.read.schema(spark_ddl(table)).parquet(*files).drop(RUN)
        read.withColumn(RUN, lit(lake.run)).write.saveAsTable(f"logged.{table}")
    whole = source_in_tables(spark, "logged", rows, lake.run).lake
    assert lake.rows("deliver_end"), "ends that lie in another file than their begin"
    assert sum(each["records"] for each in whole.segments()) == last
    spark.sql("DROP TABLE logged.deliver_end")
    lacking = source_in_tables(spark, "logged", rows, lake.run).lake
    assert sum(each["records"] for each in lacking.segments()) < last


def test_deliveries_that_were_loaded_twice_are_refused(run: Path, spark: SparkSession) -> None:
    spark.sql("CREATE DATABASE twice")
    spark.table("log.deliver").write.saveAsTable("twice.deliver")
    assert source_in_tables(spark, "twice", run / "lake", documents=run).lake.rows("deliver")
    spark.table("log.deliver").where("proc_no = 1").write.insertInto("twice.deliver")
    with pytest.raises(ReportInputError, match=r"twice\.deliver has deliveries twice: .*process 1"):
        source_in_tables(spark, "twice", run / "lake", documents=run)


@pytest.mark.few(1, 1)
@pytest.mark.parametrize("schema", ["damaged", "lake"])
def test_a_damaged_file_is_named(
    schema: str,
    run: Path,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The footer is whole, the rows are not. Those of a lake are looked at before, and left out."""
    copy = shutil.copytree(run, tmp_path / "run")
    files = copy / "lake" / "table=deliver"
    if schema != "lake":
        files = tmp_path / "files"
        spark.sql("CREATE DATABASE damaged")
        rows = spark.table("log.deliver").where("run = 'merged'").coalesce(1)
        rows.write.option("path", str(files)).saveAsTable("damaged.deliver")
    victim = max(files.rglob("*.parquet"), key=lambda path: path.stat().st_size)
    whole = victim.read_bytes()
    footer = 8 + int.from_bytes(whole[-8:-4], "little")
    victim.write_bytes(b"PAR1" + b"\xff" * (len(whole) - footer - 4) + whole[-footer:])
    victim.with_name(f".{victim.name}.crc").unlink(missing_ok=True)
    code = main(["report", str(copy), "--tables", schema, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    if schema == "lake":
        (made,) = (tmp_path / "out").rglob("report.json")
        assert (code, said, victim.name in made.read_text()) == (1, "", True)
        return
    assert (code, said.count("\n")) == (2, 1), said
    assert said.startswith("error: file:")
    assert f"{victim.name}: Spark cannot read it: " in said
    assert "; restore the file, or load its rows again" in said
