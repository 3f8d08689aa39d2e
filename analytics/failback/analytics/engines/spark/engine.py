"""The Spark engine's passes.

Stage A sends only partial rows through the shuffle: intervals and sums, a few per batch; stage B
sees only rows of messages or offsets that occur more than once, and is plain SQL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics import partials, tables
from failback.analytics.business_keys import joined_links, links_of, produced_by_key
from failback.analytics.classify import CauseInputs, with_producer_causes
from failback.analytics.definitions import BUSINESS_KEY
from failback.analytics.engines import passes
from failback.analytics.engines.base import Forbidden, StageA
from failback.analytics.engines.candidates import Candidates, Repeated, Sent
from failback.analytics.engines.joins import interval_sets, produced_of
from failback.analytics.engines.spark.joining import joined_depths, joined_values
from failback.analytics.engines.spark.tasks import Pass, mapped, small, take_unreadable
from failback.analytics.lake import Lake
from failback.analytics.normalise import Dropped, Ends, deliver_columns, normalise, read_ends
from failback.analytics.partials import Context, Phase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION_ROWS: Final = 250_000
"""Candidates that one task sorts."""


class SparkEngine:
    """Passes over one run's lake in a session."""

    name = "spark"

    def __init__(self, lake: Lake, spark: SparkSession) -> None:
        self._lake = lake
        self._spark = spark
        self._ends: Ends | None = None

    @property
    def _late_ends(self) -> Ends:
        if self._ends is None:
            self._ends = read_ends(self._lake)
        return self._ends

    def _small(self, table: pa.Table) -> DataFrame:
        return small(self._spark, table)

    def _partials(self, *each: Pass) -> DataFrame:
        return mapped(self._spark, self._lake, each, partials.SCHEMA)

    def known(self, boots: Mapping[str, Sequence[int]]) -> pa.Table:
        boots = {broker: list(times) for broker, times in boots.items()}
        found = self._partials(
            *(
                Pass(table, columns, partial(passes.known_of, table, boots=boots))
                for table, columns in passes.KNOWN_COLUMNS.items()
            )
        )
        values = take_unreadable(joined_values(found), self._lake)
        return values.get("known", tables.VALUES.empty_table())

    def stage_a(self, context: Context) -> StageA:
        ends = self._late_ends
        found = self._partials(
            Pass(
                "deliver",
                deliver_columns(self._lake, context.definitions, full=False),
                lambda chunk: _deliver_partials(chunk, context, ends),
            ),
            *(
                Pass(table, columns, partial(function, context=context))
                for table, columns, function in (
                    ("produce", partials.PRODUCE_COLUMNS, partials.produce_partials),
                    ("pull", partials.PULL_COLUMNS, partials.pull_partials),
                    ("commit", partials.COMMIT_COLUMNS, partials.commit_partials),
                    ("scan", partials.SCAN_COLUMNS, partials.scan_partials),
                )
            ),
        ).persist()
        try:
            values = take_unreadable(joined_values(found), self._lake)
            depths, runs = joined_depths(found)
        finally:
            found.unpersist()
        bad = {row["n1"]: row["value"] for row in values.pop("bad", _NOTHING).to_pylist()}
        begun = {row["n1"] for row in values.pop("end_begun", _NOTHING).to_pylist()}
        dropped = Dropped(bad.get(1, 0), bad.get(2, 0), bad.get(3, 0))
        orphans = sum(did not in begun for did in ends.did.tolist())
        return StageA(depths, values, dropped, orphans, runs)

    def resumed(self, context: Context, forbidden: Sequence[Forbidden]) -> pa.Table:
        limits = [(each.first_bad, each.lo, each.hi) for each in forbidden]
        found = self._partials(
            Pass(
                "produce",
                passes.RESUMED_COLUMNS,
                lambda chunk: partials.resumed_partials(chunk, context, limits),
            )
        )
        values = take_unreadable(joined_values(found), self._lake)
        return values.get("resumed", tables.VALUES.empty_table())

    def phase_rows(self, context: Context, wanted: Sequence[Phase]) -> pa.Table:
        found = self._partials(
            *(
                Pass(
                    table,
                    partials.PHASE_COLUMNS,
                    partial(partials.phase_partials, table, context=context, wanted=list(wanted)),
                )
                for table in partials.PHASE_TABLES
            )
        )
        values = take_unreadable(joined_values(found), self._lake)
        return values.get("phase", tables.VALUES.empty_table())

    def links(self, context: Context, messages: pa.Table) -> pa.Table:
        ends = self._late_ends
        repeated = interval_sets(messages, "grp", "n1")
        rows = Pass(
            "deliver",
            deliver_columns(self._lake, context.definitions, full=False),
            lambda chunk: links_of(normalise(chunk, context, ends, Dropped()), repeated),
        )
        found = mapped(self._spark, self._lake, [rows], tables.LINKS).distinct().toArrow()
        return joined_links([found.cast(tables.LINKS)])

    def stage_b(
        self, context: Context, messages: pa.Table, copies: pa.Table, inputs: CauseInputs
    ) -> pa.Table:
        repeated = Repeated.of(messages, copies)
        if not repeated:
            return tables.CLASSIFIED.empty_table()
        rows = max(map(deliveries_of, (messages, copies)))
        with set_for_now(self._spark, settings_for(self._spark, rows)):
            return self._classified(context, repeated, inputs)

    def _classified(self, context: Context, repeated: Repeated, inputs: CauseInputs) -> pa.Table:
        found = Candidates(repeated, context, self._late_ends)
        columns = deliver_columns(self._lake, context.definitions, full=True)
        rows = Pass(
            "deliver",
            columns,
            lambda chunk: found.of(chunk).cast(tables.DELIVERY),
            found.may_be_in,
        )
        self._views(context, inputs)
        mapped(self._spark, self._lake, [rows], tables.DELIVERY).createOrReplaceTempView("cand")
        classified = tables.columns_of(self._spark.sql(_sql("stage_b")).toArrow())
        produced = partial(self._produced, context.definitions.key, inputs.links)
        named = with_producer_causes(classified, produced)
        return tables.sorted_away(named, tables.CLASSIFIED)

    def _views(self, context: Context, inputs: CauseInputs) -> None:
        for name in ("assigned", "cover", "reset", "sent_back"):
            self._small(getattr(inputs, name)).createOrReplaceTempView(name)
        errors = pa.table(
            {
                "host": pa.array(list(context.clocks.error), pa.utf8()),
                "error_ns": pa.array(list(context.clocks.error.values()), pa.int64()),
            }
        )
        self._small(errors).createOrReplaceTempView("clock_error")

    def _produced(self, key: str, links: pa.Table, asked: pa.Table) -> pa.Table:
        """Send attempts of some messages, summed up."""
        sent = Sent.of(asked, links, key)
        sends = Pass("produce", passes.ATTEMPT_COLUMNS, sent.among, sent.may_be_in)
        attempts = mapped(self._spark, self._lake, [sends], passes.ATTEMPTS).toArrow()
        produced = produced_of(attempts.cast(passes.ATTEMPTS))
        return produced_by_key(produced, links) if key == BUSINESS_KEY else produced

    def order(self, context: Context, topics: frozenset[str], classified: pa.Table) -> pa.Table:
        if not topics:
            return tables.ORDER.empty_table()
        from pyspark.sql import functions as fn
        from pyspark.sql.window import Window

        later = passes.repeated_dids(classified)
        ordered = Pass(
            "deliver",
            passes.ORDER_COLUMNS,
            lambda chunk: passes.inversion_rows(chunk, context, topics, later),
        )
        rows = mapped(self._spark, self._lake, [ordered], passes.INVERSION_ROWS)
        before = (
            Window.partitionBy("grp", "topic", "okey")
            .orderBy("bt", "did")
            .rowsBetween(Window.unboundedPreceding, -1)
        )
        late = (
            (fn.col("kseq") < fn.max("kseq").over(before))
            & (fn.col("bt") >= fn.lit(context.warmup_end_ns))
            & (fn.col("bt") < fn.lit(context.until_ns))
        )
        rows = rows.withColumn("late", fn.coalesce(late, fn.lit(False)))
        first = fn.col("late") & ~fn.col("later")
        replay = fn.col("late") & fn.col("later")
        found = rows.groupBy("grp", "topic").agg(
            fn.sum(first.cast("bigint")).alias("ooo_first"),
            fn.sum(replay.cast("bigint")).alias("ooo_replay"),
            fn.min(fn.when(first, fn.col("okey"))).alias("first_key"),
        )
        return tables.sorted_table(found.toArrow(), tables.ORDER)


_NOTHING = tables.VALUES.empty_table()


def deliveries_of(depths: pa.Table) -> int:
    """Rows that lie in the ranges of a depth table."""
    length = pc.subtract(depths.column("hi"), depths.column("lo"))
    return int(pc.sum(pc.multiply(length, depths.column("depth"))).as_py() or 0)


def settings_for(spark: SparkSession, rows: int) -> dict[str, str]:
    """What the session needs for so many candidates.

    They are wide and are sorted several times: a task that sorts too many finds no memory for its
    next step, with two threads and a heap of 2 GB at about two million. All of them go to the
    driver, where Spark takes one GiB at most: their names shrink to a tenth there.
    """
    parts = int(str(spark.conf.get("spark.sql.shuffle.partitions")))
    return {
        "spark.sql.shuffle.partitions": str(max(parts, -(-rows // PARTITION_ROWS))),
        "spark.sql.execution.arrow.compression.codec": "zstd",
        "spark.sql.execution.arrow.compression.zstd.level": "1",
        # A batch of them is some hundred bytes a row, outside of the heap.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    }


@contextmanager
def set_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have settings of the session changed, and put them back."""
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _deliver_partials(chunk: pa.Table, context: Context, ends: Ends) -> pa.Table:
    """Stage N and A of raw deliveries, with the rows that cannot be true and the late ends met."""
    dropped = Dropped()
    found = partials.deliver_partials(normalise(chunk, context, ends, dropped), context)
    out = partials.Partials()
    counts = (dropped.et_before_bt, dropped.negative_offset, dropped.unknown_status)
    for reason, count in enumerate(counts, 1):
        if count:
            key = partials.Key(n1=np.array([reason]))
            out.values(partials.SUM, "bad", key, np.array([count]))
    met = ends.did[np.isin(ends.did, chunk.column("did").to_numpy())]
    out.values(partials.MAX, "end_begun", partials.Key(n1=met), np.ones(met.size, np.int64))
    return pa.concat_tables([found, out.table()])


def _sql(name: str) -> str:
    return resources.files("failback.analytics.engines").joinpath(f"{name}.sql").read_text("utf-8")
