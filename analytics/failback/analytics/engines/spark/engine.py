"""The Spark engine's passes.

Stage A sends only partial rows through the shuffle: intervals and sums, a few per batch; stage B
sees only rows of messages or offsets that occur more than once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

import pyarrow as pa

from failback.analytics import partials, tables
from failback.analytics.classify import CauseInputs
from failback.analytics.engines.base import Forbidden, StageA
from failback.analytics.engines.spark.joining import (
    bound,
    deliver_batch,
    joined_depths,
    joined_values,
    mapped,
)
from failback.analytics.engines.spark.ranges import coarse as coarse_of
from failback.analytics.engines.spark.ranges import pieces, union_of_lanes
from failback.analytics.engines.spark.reading import Reader
from failback.analytics.lake import Lake
from failback.analytics.normalise import Dropped
from failback.analytics.partials import Context

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkEngine:
    """Passes over one run's lake in a session."""

    name = "spark"

    def __init__(self, lake: Lake, spark: SparkSession) -> None:
        self._lake = lake
        self._spark = spark
        self._reader = Reader(lake, spark)

    def known(self, boots: Mapping[str, Sequence[int]]) -> pa.Table:
        from pyspark.sql import functions as fn

        deliver = self._reader.raw("deliver").select(
            "broker", "ptopic", "qid", "qoff", fn.col("store_ms").alias("when_ms")
        )
        produce = (
            self._reader.raw("produce")
            .where(fn.col("res").startswith("OK"))
            .select(
                "broker", "topic", "qid", "queue_offset",
                fn.expr("wall_ns div 1000000").alias("when_ms"),
            )
        )  # fmt: skip
        boots = {broker: list(times) for broker, times in boots.items()}
        found = [
            mapped(deliver, lambda batch: partials.known_partials(batch, "qoff", "ptopic", boots)),
            mapped(
                produce,
                lambda batch: partials.known_partials(batch, "queue_offset", "topic", boots),
            ),
        ]
        values = joined_values(found[0].unionByName(found[1]))
        return values.get("known", tables.VALUES.empty_table())

    def stage_a(self, context: Context) -> StageA:
        from pyspark.sql import functions as fn

        deliver = self._reader.deliveries(context)
        deliver = deliver.withColumn("done", fn.col("status") == "SUCCESS")
        deliver = deliver.select(*partials.DELIVER_COLUMNS, "bad")
        found = mapped(deliver, lambda batch: deliver_batch(batch, context))
        for table, columns, function in (
            ("produce", partials.PRODUCE_COLUMNS, partials.produce_partials),
            ("pull", partials.PULL_COLUMNS, partials.pull_partials),
            ("commit", partials.COMMIT_COLUMNS, partials.commit_partials),
            ("scan", partials.SCAN_COLUMNS, partials.scan_partials),
        ):
            if self._lake.rows(table):
                rows = self._reader.raw(table).select(*columns)
                found = found.unionByName(mapped(rows, bound(function, context)))
        found = found.persist()
        try:
            values = joined_values(found)
            depths, runs = joined_depths(found)
        finally:
            found.unpersist()
        counts = {
            row["n1"]: row["value"]
            for row in values.pop("bad", tables.VALUES.empty_table()).to_pylist()
        }
        dropped = Dropped(counts.get(1, 0), counts.get(2, 0), counts.get(3, 0))
        return StageA(depths, values, dropped, self._orphan_ends(), runs)

    def _orphan_ends(self) -> int:
        from pyspark.sql import functions as fn

        count = self._lake.rows("deliver_end")
        if not count:
            return 0
        ends = fn.broadcast(self._reader.raw("deliver_end").select("did"))
        begun = self._reader.raw("deliver").select("did").join(ends, "did").distinct()
        return count - int(begun.count())

    def resumed(self, context: Context, forbidden: Sequence[Forbidden]) -> pa.Table:
        limits = [(each.first_bad, each.lo, each.hi) for each in forbidden]
        rows = self._reader.raw("produce").select("host", "broker", "res", "t0", "t1")
        found = mapped(rows, lambda batch: partials.resumed_partials(batch, context, limits))
        return joined_values(found).get("resumed", tables.VALUES.empty_table())

    def stage_b(
        self, context: Context, messages: pa.Table, copies: pa.Table, inputs: CauseInputs
    ) -> pa.Table:
        if not messages.num_rows and not copies.num_rows:
            return tables.CLASSIFIED.empty_table()
        candidates = self._candidates(context, messages, copies).persist()
        try:
            self._views(context, candidates, messages, inputs)
            # A checkpoint and not a cache: both statements have a WITH clause, Spark joins the
            # clauses into one plan and finds nothing cached in it, so all windows ran three times.
            held = self._spark.sql(_sql("stage_b_class")).localCheckpoint()
            held.createOrReplaceTempView("held")
            found = self._spark.sql(_sql("stage_b_cause")).toArrow()
        finally:
            candidates.unpersist()
        return tables.sorted_table(found, tables.CLASSIFIED)

    def _candidates(self, context: Context, messages: pa.Table, copies: pa.Table) -> DataFrame:
        """Rows whose message, or whose queue offset, occurs more than once."""
        message_bits, message_pieces = pieces(messages, ("grp", "n1"))
        copy_bits, copy_pieces = pieces(copies, ("grp", "broker", "topic", "n1", "n2"))
        self._reader.small(message_pieces).createOrReplaceTempView("repeated")
        self._reader.small(copy_pieces).createOrReplaceTempView("recopied")
        self._reader.deliveries(context).createOrReplaceTempView("normalised")
        columns = ", ".join(f"d.{name}" for name in tables.DELIVERY.names)
        coarse = coarse_of(messages, copies)
        return self._spark.sql(
            f"""
            SELECT {columns} FROM normalised d
            WHERE d.bad NOT IN (1, 2) AND ({coarse}) AND (
              EXISTS (SELECT /*+ BROADCAST(r) */ 1 FROM repeated r
                      WHERE r.grp = d.grp AND r.n1 = d.lane
                        AND r.piece = shiftright(d.lseq, {message_bits})
                        AND r.lo <= d.lseq AND d.lseq < r.hi)
              OR EXISTS (SELECT /*+ BROADCAST(r) */ 1 FROM recopied r
                         WHERE r.grp = d.grp AND r.broker = d.broker AND r.topic = d.ptopic
                           AND r.n1 = d.qid AND r.n2 = d.epoch
                           AND r.piece = shiftright(d.qoff, {copy_bits})
                           AND r.lo <= d.qoff AND d.qoff < r.hi))
            """
        )

    def _sent_again(self, messages: pa.Table) -> DataFrame:
        """Send attempts of the candidates' messages."""
        bits, cut = pieces(union_of_lanes(messages), ("n1",))
        self._reader.small(cut).createOrReplaceTempView("wanted")
        self._reader.raw("produce").createOrReplaceTempView("produce")
        coarse = coarse_of(messages, messages.slice(0, 0))
        return self._spark.sql(
            f"""
            SELECT d.lane, d.lseq, d.att, d.ukey, d.res FROM produce d
            WHERE ({coarse}) AND EXISTS (
              SELECT /*+ BROADCAST(r) */ 1 FROM wanted r
              WHERE r.n1 = d.lane AND r.piece = shiftright(d.lseq, {bits})
                AND r.lo <= d.lseq AND d.lseq < r.hi)
            """
        )

    def _views(
        self, context: Context, candidates: DataFrame, messages: pa.Table, inputs: CauseInputs
    ) -> None:
        from pyspark.sql import functions as fn

        candidates.createOrReplaceTempView("cand")
        for name in ("assigned", "cover", "reset", "sent_back"):
            self._reader.small(getattr(inputs, name)).createOrReplaceTempView(name)
        errors = pa.table(
            {
                "host": pa.array(list(context.clocks.error), pa.utf8()),
                "error_ns": pa.array(list(context.clocks.error.values()), pa.int64()),
            }
        )
        self._reader.small(errors).createOrReplaceTempView("clock_error")
        doubtful = fn.col("res").isin(*sorted(partials.DOUBTFUL_RESULTS))
        degraded = fn.when(fn.col("res") == "OK_DEGRADED", fn.col("att"))
        (
            self._sent_again(messages)
            .groupBy("lane", "lseq")
            .agg(
                fn.countDistinct("ukey").alias("ukeys"),
                fn.bool_or(doubtful).alias("doubtful"),
                fn.coalesce(fn.min(degraded) < fn.max("att"), fn.lit(False)).alias(
                    "degraded_then_more"
                ),
            )
            .createOrReplaceTempView("produced")
        )

    def order(self, context: Context, topics: frozenset[str], classified: pa.Table) -> pa.Table:
        if not topics:
            return tables.ORDER.empty_table()
        from pyspark.sql import functions as fn
        from pyspark.sql.window import Window

        repeats = classified.filter(pa.compute.not_equal(classified.column("cls"), "PRIMARY"))
        later = self._reader.small(repeats.select(["did"])).withColumn("later", fn.lit(True))
        rows = self._reader.deliveries(context).where(
            ~fn.col("bad").isin(1, 2)
            & fn.col("ltopic").isin(*sorted(topics))
            & fn.col("okey").isNotNull()
            & fn.col("kseq").isNotNull()
        )
        rows = rows.join(fn.broadcast(later), "did", "left")
        before = (
            Window.partitionBy("grp", "ltopic", "okey")
            .orderBy("bt", "did")
            .rowsBetween(Window.unboundedPreceding, -1)
        )
        late = (fn.col("kseq") < fn.max("kseq").over(before)) & (
            fn.col("bt") >= fn.lit(context.warmup_end_ns)
        )
        rows = rows.withColumn("late", fn.coalesce(late, fn.lit(False)))
        first = fn.col("late") & fn.col("later").isNull()
        replay = fn.col("late") & fn.col("later").isNotNull()
        found = rows.groupBy("grp", fn.col("ltopic").alias("topic")).agg(
            fn.sum(first.cast("bigint")).alias("ooo_first"),
            fn.sum(replay.cast("bigint")).alias("ooo_replay"),
            fn.min(fn.when(first, fn.col("okey"))).alias("first_key"),
        )
        return tables.sorted_table(found.toArrow(), tables.ORDER)


def _sql(name: str) -> str:
    return resources.files("failback.analytics.engines").joinpath(f"{name}.sql").read_text("utf-8")
