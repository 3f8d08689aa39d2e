"""The Spark engine's passes.

Counting sends only partial rows through the shuffle: intervals and sums, a few per batch.
Classifying sends only rows of messages or offsets that occur more than once, in blocks of whole
messages. Both call the same functions as the local engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.causes.business_keys import joined_links, links_of, produced_by_key
from failback.analytics.analysis.causes.classify import CauseInputs, classify, joined
from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.counting.normalise import (
    END_COLUMNS,
    Dropped,
    Ends,
    deliver_columns,
    normalise,
)
from failback.analytics.analysis.counting.partials.commits import COMMIT_COLUMNS, commit_partials
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.deliveries import deliver_partials
from failback.analytics.analysis.counting.partials.phases import (
    PHASE_COLUMNS,
    PHASE_TABLES,
    Phase,
    phase_partials,
)
from failback.analytics.analysis.counting.partials.pulls import PULL_COLUMNS, pull_partials
from failback.analytics.analysis.counting.partials.sends import (
    PRODUCE_COLUMNS,
    SCAN_COLUMNS,
    produce_partials,
    resumed_partials,
    scan_partials,
)
from failback.analytics.analysis.counting.partials.sums import SCHEMA, Key, Partials
from failback.analytics.analysis.engines import passes
from failback.analytics.analysis.engines.base import Forbidden
from failback.analytics.analysis.engines.candidates import Candidates, Repeated, Sent
from failback.analytics.analysis.engines.joins import interval_sets, produced_of
from failback.analytics.analysis.engines.spark import blocks
from failback.analytics.analysis.engines.spark.joining import joined_depths, joined_values
from failback.analytics.analysis.engines.spark.tasks import Pass, ddl_of, mapped, take_unreadable
from failback.analytics.analysis.results import Counts
from failback.analytics.lake.lake import Lake
from failback.analytics.run.definitions import BUSINESS_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_ROWS: Final = 250_000
"""Candidates that are classified together."""


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
            self._ends = Ends.of(self._lake.read("deliver_end", END_COLUMNS))
        return self._ends

    def _partials(self, *each: Pass) -> DataFrame:
        return mapped(self._spark, self._lake, each, SCHEMA)

    def known(self, boots: Mapping[str, Sequence[int]]) -> pa.Table:
        boots = {broker: list(times) for broker, times in boots.items()}
        found = self._partials(
            *(
                Pass(table, columns, partial(passes.known_of, table, boots=boots))
                for table, columns in passes.KNOWN_COLUMNS.items()
            )
        )
        return families.KNOWN_OFFSETS.of(take_unreadable(joined_values(found), self._lake))

    def count(self, context: Context) -> Counts:
        ends = self._late_ends
        found = self._partials(
            Pass(
                "deliver",
                deliver_columns(context.definitions, foreign=self._lake.has_foreign, full=False),
                lambda chunk: _counted(chunk, context, ends),
            ),
            *(
                Pass(table, columns, partial(function, context=context))
                for table, columns, function in (
                    ("produce", PRODUCE_COLUMNS, produce_partials),
                    ("pull", PULL_COLUMNS, pull_partials),
                    ("commit", COMMIT_COLUMNS, commit_partials),
                    ("scan", SCAN_COLUMNS, scan_partials),
                )
            ),
        ).persist()
        try:
            values = take_unreadable(joined_values(found), self._lake)
            depths, runs = joined_depths(found)
        finally:
            found.unpersist()
        bad = {row["reason"]: row["value"] for row in families.DROPPED.rows(values)}
        begun = {row["did"] for row in families.LATE_ENDS.rows(values)}
        for family in (families.DROPPED, families.LATE_ENDS):
            values.pop(family.name, None)
        dropped = Dropped(bad.get(1, 0), bad.get(2, 0), bad.get(3, 0))
        orphans = sum(did not in begun for did in ends.did.tolist())
        return Counts(depths, values, dropped, orphans, runs)

    def resumed(self, context: Context, forbidden: Sequence[Forbidden]) -> pa.Table:
        limits = [(each.first_bad, each.lo, each.hi) for each in forbidden]
        found = self._partials(
            Pass(
                "produce",
                passes.RESUMED_COLUMNS,
                lambda chunk: resumed_partials(chunk, context, limits),
            )
        )
        return families.RESUMED.of(take_unreadable(joined_values(found), self._lake))

    def phase_rows(self, context: Context, wanted: Sequence[Phase]) -> pa.Table:
        found = self._partials(
            *(
                Pass(
                    table,
                    PHASE_COLUMNS,
                    partial(phase_partials, table, context=context, wanted=list(wanted)),
                )
                for table in PHASE_TABLES
            )
        )
        return families.PHASE_ROWS.of(take_unreadable(joined_values(found), self._lake))

    def links(self, context: Context, messages: pa.Table) -> pa.Table:
        ends = self._late_ends
        repeated = interval_sets(messages, "grp", "lane")
        rows = Pass(
            "deliver",
            deliver_columns(context.definitions, foreign=self._lake.has_foreign, full=False),
            lambda chunk: links_of(normalise(chunk, context, ends, Dropped()), repeated),
        )
        found = mapped(self._spark, self._lake, [rows], tables.LINKS).distinct().toArrow()
        return joined_links([found.cast(tables.LINKS)])

    def classify(
        self, context: Context, messages: pa.Table, copies: pa.Table, inputs: CauseInputs
    ) -> pa.Table:
        repeated = Repeated.of(messages, copies)
        if not repeated:
            return tables.CLASSIFIED.empty_table()
        rows = max(map(deliveries_of, (messages, copies)))
        found = Candidates(repeated, context, self._late_ends)
        parts = max(self._spark.sparkContext.defaultParallelism, -(-rows // PART_ROWS))
        columns = deliver_columns(context.definitions, foreign=self._lake.has_foreign, full=True)
        chosen = Pass(
            "deliver",
            columns,
            lambda chunk: _by_message(found.of(chunk), parts),
            found.may_be_in,
        )
        candidates = mapped(self._spark, self._lake, [chosen], blocks.BLOCKS)
        classified = candidates.groupBy("part").applyInArrow(
            lambda part: _classified(part, inputs, context), ddl_of(blocks.BLOCKS)
        )
        produced = partial(self._produced, context.definitions.key, inputs.links)
        return joined(blocks.unpacked(classified.toArrow()), produced)

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


def deliveries_of(depths: pa.Table) -> int:
    """Rows that lie in the ranges of a depth table."""
    length = pc.subtract(depths.column("hi"), depths.column("lo"))
    return int(pc.sum(pc.multiply(length, depths.column("depth"))).as_py() or 0)


def _by_message(candidates: pa.Table, parts: int) -> pa.Table:
    """Candidates in blocks that hold all deliveries of a message, and so of a copy."""
    c = Columns(candidates)
    return blocks.split(candidates, blocks.parts_of(c.ints("lane"), c.ints("lseq"), parts))


def _classified(part: pa.Table, inputs: CauseInputs, context: Context) -> pa.Table:
    """What ``classify`` says of one part's candidates."""
    found = classify(blocks.unpacked(part), inputs, context.clocks)
    block = pa.array([blocks.packed(found)], pa.binary())
    return pa.table([part.column("part").slice(0, 1), block], schema=blocks.BLOCKS)


def _counted(chunk: pa.Table, context: Context, ends: Ends) -> pa.Table:
    """Normalise and count raw deliveries, with the dropped rows and the late ends met."""
    dropped = Dropped()
    found = deliver_partials(normalise(chunk, context, ends, dropped), context)
    out = Partials()
    counts = (dropped.et_before_bt, dropped.negative_offset, dropped.unknown_status)
    for reason, count in enumerate(counts, 1):
        if count:
            key = Key(reason=np.array([reason]))
            out.values(families.DROPPED, key, np.array([count]))
    met = ends.did[np.isin(ends.did, chunk.column("did").to_numpy())]
    out.values(families.LATE_ENDS, Key(did=met), np.ones(met.size, np.int64))
    return pa.concat_tables([found, out.table()])
