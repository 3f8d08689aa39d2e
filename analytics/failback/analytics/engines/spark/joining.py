"""Stage A's passes: numpy on every Arrow batch, then sums and sweeps of what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from failback.analytics import partials, tables
from failback.analytics.columns import Columns
from failback.analytics.engines.local import by_family
from failback.analytics.engines.spark.reading import ddl_of
from failback.analytics.intervals import sweep
from failback.analytics.partials import Context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def bound(
    function: Callable[[pa.Table, Context], pa.Table], context: Context
) -> Callable[[pa.Table], pa.Table]:
    return lambda batch: function(batch, context)


def deliver_batch(batch: pa.Table, context: Context) -> pa.Table:
    """Stage A of a batch, and how many rows stage N found bad."""
    bad = np.asarray(batch.column("bad").to_numpy(), np.int64)
    out = partials.Partials()
    odd = bad > 0
    if odd.any():
        ones = np.ones(int(odd.sum()), np.int64)
        out.values(partials.SUM, "bad", partials.Key(n1=bad[odd]), ones)
    impossible = (bad == 1) | (bad == 2)
    good = batch.filter(pa.array(~impossible)) if impossible.any() else batch
    return pa.concat_tables([out.table(), partials.deliver_partials(good, context)])


def mapped(rows: DataFrame, function: Callable[[pa.Table], pa.Table]) -> DataFrame:
    """Partial rows of every Arrow batch."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from function(pa.Table.from_batches([batch])).to_batches()

    return rows.mapInArrow(work, ddl_of(partials.SCHEMA))


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
