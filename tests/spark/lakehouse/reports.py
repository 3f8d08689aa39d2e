"""Reports of a run whose rows are tables of Iceberg, Delta and Hive, in one session of Spark.

``python -m tests.spark.lakehouse.reports RUN OUT``: each report goes to a folder of OUT. It runs in
the Spark that both formats are made for, whose settings are in ``PYSPARK_SUBMIT_ARGS``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from failback.analytics.analysis.engines.spark.session import session
from failback.cli.__main__ import main as failback
from failback.client.consumelog.schema import TABLES, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMAS: Final = {
    "iceberg": "ice.log",
    "delta": "spark_catalog.delta_log",
    "orc": "spark_catalog.hive_log",
}
"""Format of the tables, and the schema that they are in; Hive's own have ORC files."""
DELETES: Final = ("iceberg", "delta")
_OTHER: Final = "other"
_DELETED: Final = "deleted"


def fill(spark: SparkSession, run: Path, form: str) -> None:
    """Put the rows of a run into tables, beside those of another run.

    Where the format can delete, files have each delivery twice, and half of them is deleted.
    """
    schema = SCHEMAS[form]
    spark.sql(f"CREATE DATABASE {schema}")
    for table in TABLES:
        files = [str(path) for path in run.glob(f"lake/table={table}/**/*.parquet")]
        if not files:
            continue
        rows = spark.read.schema(spark_ddl(table)).parquet(*files)
        mine = rows.selectExpr("* EXCEPT (run)", "'merged' AS run", "1 AS more")
        whole = mine.unionByName(
            rows.selectExpr("* EXCEPT (run)", f"'{_OTHER}' AS run", "2 AS more")
        )
        doubled = table == "deliver" and form in DELETES
        if doubled:
            extra = mine.selectExpr("* EXCEPT (host)", f"'{_DELETED}' AS host")
            whole = whole.unionByName(extra)
        _store(whole, f"{schema}.{table}", form)
        if doubled:
            spark.sql(f"DELETE FROM {schema}.{table} WHERE host = '{_DELETED}'")


def _store(rows: DataFrame, name: str, form: str) -> None:
    if form in DELETES:
        rows.writeTo(name).using(form).partitionedBy("run").create()
    else:
        rows.write.format("hive").option("fileFormat", form).saveAsTable(name)


def main(run: Path, out: Path) -> int:
    """Fill the tables, then report of each; returns how many commands did not do it."""
    failed = 0
    with session() as spark:
        for form, schema in SCHEMAS.items():
            fill(spark, run, form)
            words = ["report", str(run), "--tables", schema, "--out", str(out / form)]
            failed += failback([*words, "--results", str(out / form / "results")]) not in (0, 1, 3)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
