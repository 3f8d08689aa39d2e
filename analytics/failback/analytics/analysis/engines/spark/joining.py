"""Adds up partial rows in Spark: sums and extremes by key, interval rows to depths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.engines.joins import by_family, swept_runs
from failback.analytics.analysis.engines.spark.tasks import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def joined_values(rows: DataFrame) -> dict[str, pa.Table]:
    from pyspark.sql import functions as fn

    op = fn.col("op")
    joined = (
        rows.where(op != families.INTERVAL)
        .groupBy("op", *tables.KEY)
        .agg(
            # Of sums only: maxima are offsets, of which a few may be more than a number holds.
            fn.sum(fn.when(op == families.SUM, fn.col("lo"))).alias("sum"),
            fn.max("lo").alias("max"),
            fn.min("lo").alias("min"),
        )
        .select(
            *tables.KEY,
            fn.when(op == families.SUM, fn.col("sum"))
            .when(op == families.MAX, fn.col("max"))
            .otherwise(fn.col("min"))
            .alias("value"),
        )
    )
    return by_family(joined.toArrow(), tables.VALUES)


def joined_depths(rows: DataFrame) -> tuple[dict[str, pa.Table], int]:
    from pyspark.sql import functions as fn

    runs = rows.where(fn.col("op") == families.INTERVAL).select(
        *tables.KEY, "lo", "hi", "weight", "figure"
    )
    # Many histories per call: a call of Python costs more than most of them.
    calls = 2 * rows.sparkSession.sparkContext.defaultParallelism
    bucket = fn.pmod(fn.xxhash64(*tables.KEY), fn.lit(calls))
    swept = runs.groupBy(bucket).applyInArrow(swept_runs, ddl_of(tables.DEPTHS))
    return by_family(swept.toArrow(), tables.DEPTHS), int(runs.count())
