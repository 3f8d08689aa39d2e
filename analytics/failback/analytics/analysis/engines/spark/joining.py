"""Adds up partial rows in Spark: sums and extremes by key, interval rows to depths."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.counting.partials.sums import SCHEMA
from failback.analytics.analysis.engines.condensing import BLOCK_BITS, HASH_BITS, as_partial
from failback.analytics.analysis.engines.joins import by_family, condensed, swept_runs
from failback.analytics.analysis.engines.spark.tasks import ddl_of, shared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CALL_RANGES: Final = 250_000
"""Ranges that one call of Python adds up, about."""


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


def joined_depths(
    rows: DataFrame, condense: Callable[[pa.Table], pa.Table] | None = None
) -> tuple[dict[str, pa.Table], dict[str, pa.Table], int]:
    """Depths, the values that condensing made of some, and how many ranges there were."""
    from pyspark.sql import functions as fn

    spark = rows.sparkSession
    runs = rows.where(fn.col("op") == families.INTERVAL).drop("op")
    count = int(runs.count())
    # Many histories per call: a call of Python costs more than most of them.
    calls = max(2 * spark.sparkContext.defaultParallelism, -(-count // CALL_RANGES))
    bits = f"IF(n1 < 0, {HASH_BITS}, {BLOCK_BITS})"
    first, last, begin, end = map(
        fn.expr,
        (
            f"shiftright(lo, {bits})",
            f"shiftright(hi - 1, {bits})",
            f"shiftleft(block, {bits})",
            f"shiftleft(block + 1, {bits})",
        ),
    )
    cut = (
        runs.withColumn("block", fn.explode(fn.sequence(first, last)))
        .withColumn("lo", fn.greatest("lo", begin))
        .withColumn("hi", fn.least("hi", end))
    )
    bucket = fn.pmod(fn.xxhash64("n1", "block"), fn.lit(calls))
    work = shared(spark, partial(_condensed_part, condense=condense or as_partial))
    swept = cut.groupBy(bucket).applyInArrow(lambda part: work()(part), ddl_of(SCHEMA))
    values, depths = condensed([swept.toArrow().cast(SCHEMA)])
    return depths, values, count


def _condensed_part(part: pa.Table, condense: Callable[[pa.Table], pa.Table]) -> pa.Table:
    return condense(swept_runs(part))
