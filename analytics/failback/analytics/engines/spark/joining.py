"""Adds up partial rows in Spark: sums and extremes by key, interval rows to depths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from failback.analytics import partials, tables
from failback.analytics.columns import Columns
from failback.analytics.engines.joins import by_family
from failback.analytics.engines.spark.tasks import ddl_of
from failback.analytics.intervals import sweep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def joined_values(rows: DataFrame) -> dict[str, pa.Table]:
    from pyspark.sql import functions as fn

    op = fn.col("op")
    joined = (
        rows.where(op != partials.INTERVAL)
        .groupBy("op", *tables.KEY)
        .agg(fn.sum("lo").alias("sum"), fn.max("lo").alias("max"), fn.min("lo").alias("min"))
        .select(
            *tables.KEY,
            fn.when(op == partials.SUM, fn.col("sum"))
            .when(op == partials.MAX, fn.col("max"))
            .otherwise(fn.col("min"))
            .alias("value"),
        )
    )
    return by_family(joined.toArrow(), tables.VALUES)


def joined_depths(rows: DataFrame) -> tuple[dict[str, pa.Table], int]:
    from pyspark.sql import functions as fn

    runs = rows.where(fn.col("op") == partials.INTERVAL).select(
        *tables.KEY, "lo", "hi", "weight", "figure"
    )
    swept = runs.groupBy(*tables.KEY).applyInArrow(_sweep_group, ddl_of(tables.DEPTHS))
    return by_family(swept.toArrow(), tables.DEPTHS), int(runs.count())


def _sweep_group(runs: pa.Table) -> pa.Table:
    """Depths of one history."""
    c = Columns(runs)
    nothing = np.zeros(c.count, np.int64)
    found = sweep(nothing, c.ints("lo"), c.ints("hi"), c.ints("weight"), c.ints("figure"))
    keys = runs.select(list(tables.KEY)).take(pa.array(found.number))
    columns = [*keys.columns, found.lo, found.hi, found.depth, found.figure_depth]
    return pa.table(columns, names=tables.DEPTHS.names).cast(tables.DEPTHS)
