"""Raw tables of a run as data frames, and stage N of deliveries in Spark SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from failback.analytics.epochs import FOREVER
from failback.analytics.lake import Lake
from failback.analytics.normalise import has_foreign
from failback.analytics.partials import Context
from failback.analytics.xxh64 import SURROGATE_MASK
from failback.client.consumelog.schema import DELIVER_STATUSES, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SPARK_TYPES: Final = {
    pa.int8(): "tinyint",
    pa.int64(): "bigint",
    pa.utf8(): "string",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
}


def ddl_of(schema: pa.Schema) -> str:
    """The schema as Spark says it."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)


class Reader:
    """The tables of one run's lake in a session."""

    def __init__(self, lake: Lake, spark: SparkSession) -> None:
        self.lake = lake
        self._spark = spark

    def raw(self, table: str) -> DataFrame:
        if not self.lake.parts.get(table):
            return self._spark.createDataFrame([], spark_ddl(table))
        return self._spark.read.schema(spark_ddl(table)).parquet(*self.lake.spark_paths(table))

    def small(self, table: pa.Table) -> DataFrame:
        ddl = ddl_of(table.schema)
        if not table.num_rows:
            return self._spark.createDataFrame([], ddl)
        return self._spark.createDataFrame(table, ddl)

    def deliveries(self, context: Context) -> DataFrame:
        """Stage N of ``deliver``. Column ``bad``: 0 good, 1 backwards, 2 negative, 3 odd status."""
        from pyspark.sql import functions as fn

        rows = self.raw("deliver")
        shift = _shift(context, fn.col("host"))
        et, status = fn.col("et") + shift, fn.col("status")
        if self.lake.rows("deliver_end"):
            ends = self.raw("deliver_end").select(
                fn.col("did").alias("e_did"),
                (fn.col("et") + _shift(context, fn.col("host"))).alias("e_et"),
                fn.col("status").alias("e_status"),
            )
            rows = rows.join(fn.broadcast(ends), fn.col("did") == fn.col("e_did"), "left")
            late = fn.col("et").isNull() & fn.col("e_did").isNotNull()
            et = fn.when(late, fn.col("e_et")).otherwise(et)
            status = fn.when(late, fn.col("e_status")).otherwise(status)
        lane, lseq, fkey = self._identity()
        odd = ~fn.col("status_n").isin(*DELIVER_STATUSES)
        rows = self._with_epochs(rows, context)
        rows = rows.withColumns(
            {
                "lane_n": lane,
                "lseq_n": lseq,
                "fkey": fkey,
                "grp_n": _group(context, fn.col("grp"), fn.col("client_id")),
                "bt_n": fn.col("bt") + shift,
                "et_n": et,
                "status_n": status,
            }
        )
        bad = (
            fn.when(fn.col("et_n") < fn.col("bt_n"), fn.lit(1))
            .when(fn.col("qoff") < 0, fn.lit(2))
            .when(odd, fn.lit(3))
            .otherwise(fn.lit(0))
        )
        wide = [
            fn.col(name).cast("bigint").alias(name)
            for name in ("qid", "inc", "pqe", "rt", "proc_no")
        ]
        return rows.select(
            "did", "host", "client_id", "broker", "ptopic", "ltopic", "epoch", "epoch_end", "qoff",
            "omid", "fkey", "okey", "kseq", "store_ms", *wide,
            fn.col("lane_n").alias("lane"),
            fn.col("lseq_n").alias("lseq"),
            fn.col("grp_n").alias("grp"),
            fn.col("bt_n").alias("bt"),
            fn.col("et_n").alias("et"),
            fn.when(odd, fn.lit("UNKNOWN")).otherwise(fn.col("status_n")).alias("status"),
            bad.alias("bad"),
        )  # fmt: skip

    def _identity(self) -> tuple[Column, Column, Column]:
        """(lane, lseq, fkey): the LAB_ID, else UNIQ_KEY, else KEYS, else the copy.

        Where every row has a LAB_ID the columns stay what they are: then filters on them reach the
        files, and the long keys are not read at all.
        """
        from pyspark.sql import functions as fn

        if not has_foreign(self.lake):
            return fn.col("lane"), fn.col("lseq"), fn.lit("")
        known = fn.col("lane").isNotNull() & fn.col("lseq").isNotNull()
        ukey = fn.when(fn.col("ukey") != "", fn.col("ukey"))
        keys = fn.when(fn.col("keys") != "", fn.col("keys"))
        place = [fn.col("qid").cast("string"), fn.col("qoff").cast("string")]
        copy = fn.concat_ws("/", "broker", "ptopic", *place, fn.lower(fn.hex("omid")))
        text = fn.coalesce(ukey, keys, copy)
        lane = (
            fn.when(known, fn.col("lane"))
            .when(ukey.isNotNull(), fn.lit(-1))
            .when(keys.isNotNull(), fn.lit(-2))
            .otherwise(fn.lit(-3))
        )
        surrogate = fn.xxhash64(text).bitwiseAND(fn.lit(SURROGATE_MASK))
        lseq = fn.when(known, fn.col("lseq")).otherwise(surrogate)
        fkey = fn.when(known, fn.lit("")).otherwise(text)
        return lane.cast("bigint"), lseq.cast("bigint"), fkey

    def _with_epochs(self, rows: DataFrame, context: Context) -> DataFrame:
        from pyspark.sql import functions as fn

        if not context.events:
            return rows.withColumns(
                {"epoch": fn.lit(0).cast("bigint"), "epoch_end": fn.lit(FOREVER).cast("bigint")}
            )
        events = self._spark.createDataFrame(
            [(*queue, list(e.boot_ms), list(e.cut)) for queue, e in context.events.items()],
            "e_broker string, e_topic string, e_qid int, boots array<bigint>, cuts array<bigint>",
        )
        same = (
            (fn.col("broker") == fn.col("e_broker"))
            & (fn.col("ptopic") == fn.col("e_topic"))
            & (fn.col("qid") == fn.col("e_qid"))
        )
        rows = rows.join(fn.broadcast(events), same, "left")
        rows = rows.withColumn(
            "epoch",
            fn.when(fn.col("boots").isNull(), fn.lit(0))
            .otherwise(fn.expr("size(filter(boots, b -> b <= store_ms))"))
            .cast("bigint"),
        )
        gone = "transform(cuts, (c, i) -> CASE WHEN i >= epoch AND qoff >= c THEN i END)"
        return rows.withColumn(
            "epoch_end",
            fn.coalesce(fn.expr(f"array_min({gone})"), fn.lit(FOREVER)).cast("bigint"),
        )


def _shift(context: Context, host: Column) -> Column:
    """What to add to a reading of ``host`` to get ns after run zero."""
    from pyspark.sql import functions as fn

    found = fn.lit(context.clocks.default_shift).cast("bigint")
    for name, shift in context.clocks.shift.items():
        found = fn.when(host == fn.lit(name), fn.lit(shift).cast("bigint")).otherwise(found)
    return found


def _group(context: Context, grp: Column, client: Column) -> Column:
    from pyspark.sql import functions as fn

    if not context.broadcasting:
        return grp
    each = fn.concat(grp, fn.lit("@"), fn.coalesce(client, fn.lit("")))
    return fn.when(grp.isin(*sorted(context.broadcasting)), each).otherwise(grp)
