"""The Spark engine: stage N and B in SQL, stage A as numpy per Arrow batch.

``why_not`` says what is missing, :func:`session` starts or borrows a session, :class:`SparkEngine`
does the passes. Stage A sends only partial rows through the shuffle: intervals and sums, a few per
batch; stage B sees only rows of messages or offsets that occur more than once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

import failback
from failback.analytics import partials, tables
from failback.analytics.classify import CauseInputs, Columns
from failback.analytics.engines.base import Forbidden, StageA
from failback.analytics.engines.local import by_family
from failback.analytics.epochs import FOREVER
from failback.analytics.intervals import IntervalSet, sweep
from failback.analytics.lake import Lake
from failback.analytics.normalise import Dropped, has_foreign
from failback.analytics.partials import Context
from failback.analytics.xxh64 import SURROGATE_MASK
from failback.client.consumelog.schema import DELIVER_STATUSES, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

INSTALL_PYSPARK: Final = "--engine spark needs pyspark: pip install 'failback[spark]'"
INSTALL_JAVA: Final = "--engine spark needs Java 17: apt-get install openjdk-17-jre-headless"
MAX_PIECES: Final = 200_000
MAX_LITERALS: Final = 200
_MIN_BUCKET_BITS: Final = 8

_SPARK_TYPES: Final = {
    pa.int8(): "tinyint",
    pa.int64(): "bigint",
    pa.utf8(): "string",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
}


def why_not() -> str | None:
    """What to install before Spark can start here; ``None`` when it can."""
    if importlib.util.find_spec("pyspark") is None:
        return INSTALL_PYSPARK
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        return INSTALL_JAVA
    return None


@contextlib.contextmanager
def session() -> Iterator[SparkSession]:
    """The active session if there is one, else a new one that is stopped at the end.

    ``FAILBACK_SPARK_MASTER`` chooses the master (default ``local[*]``), ``FAILBACK_SPARK_MEMORY``
    the driver's heap (default 2g).
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with tempfile.TemporaryDirectory(prefix="failback-spark-") as scratch:
        started = start_session(scratch)
        try:
            yield started
        finally:
            started.stop()


def start_session(scratch: str | Path) -> SparkSession:
    """Start a session with the settings that the engine relies on."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = os.cpu_count() or 2
    roots = os.pathsep.join(str(Path(path).parent) for path in failback.__path__)
    master = os.environ.get("FAILBACK_SPARK_MASTER", "local[*]")
    settings = {
        "spark.driver.memory": os.environ.get("FAILBACK_SPARK_MEMORY", "2g"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(Path(scratch, "warehouse")),
        "spark.executorEnv.PYTHONPATH": roots,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1048576",
        "spark.sql.files.maxPartitionBytes": "128m",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.filterPushdown": "true",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(master).appName("failback")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_of_children_to(Path(scratch, "spark.log")):
        started: SparkSession = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


@contextlib.contextmanager
def _stderr_of_children_to(log: Path) -> Iterator[None]:
    """Let the JVM that starts inside write its chatter to ``log``; show it if the start fails.

    The launcher and log4j speak before any setting reaches them. The JVM keeps the descriptor it
    was started with, this process gets its own back.
    """
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("wb") as sink:
            os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(ours, 2)
    except BaseException:
        sys.stderr.write(log.read_text(errors="replace")[-4000:])
        raise
    finally:
        os.close(ours)


class SparkEngine:
    """Passes over one run's lake in a session."""

    name = "spark"

    def __init__(self, lake: Lake, spark: SparkSession) -> None:
        self._lake = lake
        self._spark = spark

    # --- reading ---------------------------------------------------------------------------------

    def _raw(self, table: str) -> DataFrame:
        files = self._lake.files(table)
        reader = self._spark.read.schema(spark_ddl(table))
        if not files:
            return self._spark.createDataFrame([], spark_ddl(table))
        if self._lake.unreadable:
            return reader.parquet(*files)
        folder = self._lake.root / f"table={table}" / f"run={self._lake.run}"
        return reader.parquet(str(folder))  # one listing instead of thousands of paths

    def _small(self, table: pa.Table) -> DataFrame:
        ddl = ", ".join(f"{f.name} {_SPARK_TYPES[f.type]}" for f in table.schema)
        if not table.num_rows:
            return self._spark.createDataFrame([], ddl)
        return self._spark.createDataFrame(table, ddl)

    def _deliveries(self, context: Context) -> DataFrame:
        """Stage N of ``deliver``. Column ``bad``: 0 good, 1 backwards, 2 negative, 3 odd status."""
        from pyspark.sql import functions as fn

        rows = self._raw("deliver")
        shift = _shift(context, fn.col("host"))
        et, status = fn.col("et") + shift, fn.col("status")
        if self._lake.rows("deliver_end"):
            ends = self._raw("deliver_end").select(
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

        if not has_foreign(self._lake):
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

    # --- passes ----------------------------------------------------------------------------------

    def known(self, boots: Mapping[str, Sequence[int]]) -> pa.Table:
        from pyspark.sql import functions as fn

        deliver = self._raw("deliver").select(
            "broker", "ptopic", "qid", "qoff", fn.col("store_ms").alias("when_ms")
        )
        produce = (
            self._raw("produce")
            .where(fn.col("res").startswith("OK"))
            .select(
                "broker", "topic", "qid", "queue_offset",
                fn.expr("wall_ns div 1000000").alias("when_ms"),
            )
        )  # fmt: skip
        boots = {broker: list(times) for broker, times in boots.items()}
        found = [
            _mapped(deliver, lambda batch: partials.known_partials(batch, "qoff", "ptopic", boots)),
            _mapped(
                produce,
                lambda batch: partials.known_partials(batch, "queue_offset", "topic", boots),
            ),
        ]
        values = _joined_values(found[0].unionByName(found[1]))
        return values.get("known", tables.VALUES.empty_table())

    def stage_a(self, context: Context) -> StageA:
        from pyspark.sql import functions as fn

        deliver = self._deliveries(context)
        deliver = deliver.withColumn("done", fn.col("status") == "SUCCESS")
        deliver = deliver.select(*partials.DELIVER_COLUMNS, "bad")
        found = _mapped(deliver, lambda batch: _deliver_batch(batch, context))
        for table, columns, function in (
            ("produce", partials.PRODUCE_COLUMNS, partials.produce_partials),
            ("pull", partials.PULL_COLUMNS, partials.pull_partials),
            ("commit", partials.COMMIT_COLUMNS, partials.commit_partials),
            ("scan", partials.SCAN_COLUMNS, partials.scan_partials),
        ):
            if self._lake.rows(table):
                rows = self._raw(table).select(*columns)
                found = found.unionByName(_mapped(rows, _bound(function, context)))
        found = found.persist()
        try:
            values = _joined_values(found)
            depths, runs = _joined_depths(found)
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
        ends = fn.broadcast(self._raw("deliver_end").select("did"))
        begun = self._raw("deliver").select("did").join(ends, "did").distinct()
        return count - int(begun.count())

    def resumed(self, context: Context, forbidden: Sequence[Forbidden]) -> pa.Table:
        limits = [(each.first_bad, each.lo, each.hi) for each in forbidden]
        rows = self._raw("produce").select("host", "broker", "res", "t0", "t1")
        found = _mapped(rows, lambda batch: partials.resumed_partials(batch, context, limits))
        return _joined_values(found).get("resumed", tables.VALUES.empty_table())

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
        message_bits, message_pieces = _pieces(messages, ("grp", "n1"))
        copy_bits, copy_pieces = _pieces(copies, ("grp", "broker", "topic", "n1", "n2"))
        self._small(message_pieces).createOrReplaceTempView("repeated")
        self._small(copy_pieces).createOrReplaceTempView("recopied")
        self._deliveries(context).createOrReplaceTempView("normalised")
        columns = ", ".join(f"d.{name}" for name in tables.DELIVERY.names)
        coarse = _coarse(messages, copies)
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
        bits, pieces = _pieces(_union_of_lanes(messages), ("n1",))
        self._small(pieces).createOrReplaceTempView("wanted")
        self._raw("produce").createOrReplaceTempView("produce")
        coarse = _coarse(messages, messages.slice(0, 0))
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
            self._small(getattr(inputs, name)).createOrReplaceTempView(name)
        errors = pa.table(
            {
                "host": pa.array(list(context.clocks.error), pa.utf8()),
                "error_ns": pa.array(list(context.clocks.error.values()), pa.int64()),
            }
        )
        self._small(errors).createOrReplaceTempView("clock_error")
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
        later = self._small(repeats.select(["did"])).withColumn("later", fn.lit(True))
        rows = self._deliveries(context).where(
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


def _bound(
    function: Callable[[pa.Table, Context], pa.Table], context: Context
) -> Callable[[pa.Table], pa.Table]:
    return lambda batch: function(batch, context)


def _deliver_batch(batch: pa.Table, context: Context) -> pa.Table:
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


def _mapped(rows: DataFrame, function: Callable[[pa.Table], pa.Table]) -> DataFrame:
    """Partial rows of every Arrow batch."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from function(pa.Table.from_batches([batch])).to_batches()

    ddl = ", ".join(f"{f.name} {_SPARK_TYPES[f.type]}" for f in partials.SCHEMA)
    return rows.mapInArrow(work, ddl)


def _joined_values(rows: DataFrame) -> dict[str, pa.Table]:
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


def _joined_depths(rows: DataFrame) -> tuple[dict[str, pa.Table], int]:
    from pyspark.sql import functions as fn

    runs = rows.where(fn.col("op") == partials.INTERVAL).select(
        *tables.KEY, "lo", "hi", "weight", "figure"
    )
    ddl = ", ".join(f"{f.name} {_SPARK_TYPES[f.type]}" for f in tables.DEPTHS)
    swept = runs.groupBy(*tables.KEY).applyInArrow(_sweep_group, ddl)
    return by_family(swept.toArrow(), tables.DEPTHS), int(runs.count())


def _sweep_group(runs: pa.Table) -> pa.Table:
    """Depths of one history."""
    c = Columns(runs)
    nothing = np.zeros(c.count, np.int64)
    found = sweep(nothing, c.ints("lo"), c.ints("hi"), c.ints("weight"), c.ints("figure"))
    keys = runs.select(list(tables.KEY)).take(pa.array(found.number))
    columns = [*keys.columns, found.lo, found.hi, found.depth, found.figure_depth]
    return pa.table(columns, names=tables.DEPTHS.names).cast(tables.DEPTHS)


def _union_of_lanes(messages: pa.Table) -> pa.Table:
    """What any group got twice, per lane."""
    c = Columns(messages)
    lane, lo, hi = c.ints("n1"), c.ints("lo"), c.ints("hi")
    found = [
        (one, *pair)
        for one in np.unique(lane[lane >= 0]).tolist()
        for pair in IntervalSet.of(lo[lane == one], hi[lane == one])
    ]
    columns = zip(*found, strict=True) if found else ([], [], [])
    return pa.table(
        dict(zip(("n1", "lo", "hi"), (pa.array(x, pa.int64()) for x in columns), strict=True))
    )


def _coarse(messages: pa.Table, copies: pa.Table) -> str:
    """A predicate that every candidate meets and that row-group statistics can judge."""
    lanes = _spans(messages, ("n1",))
    queues = _spans(copies, ("n1",))
    if not (lanes or queues) or len(lanes) + len(queues) > MAX_LITERALS:
        return "true"
    parts = [f"d.lane = {n} AND d.lseq >= {lo} AND d.lseq < {hi}" for n, lo, hi in lanes]
    parts += [f"d.qid = {n} AND d.qoff >= {lo} AND d.qoff < {hi}" for n, lo, hi in queues]
    return " OR ".join(f"({part})" for part in parts)


def _spans(depths: pa.Table, names: Sequence[str]) -> list[tuple[int, int, int]]:
    """Least and greatest of the ranges of each key."""
    joined = depths.group_by(list(names)).aggregate([("lo", "min"), ("hi", "max")])
    columns = (joined.column(name).to_pylist() for name in (*names, "lo_min", "hi_max"))
    return sorted(zip(*columns, strict=True))


def _pieces(depths: pa.Table, names: Sequence[str]) -> tuple[int, pa.Table]:
    """Ranges cut at multiples of 2**bits, so that a range join can be an equality join.

    Returns:
        The bits, and rows of ``names``, ``piece``, ``lo``, ``hi``.
    """
    c = Columns(depths)
    lo, hi = c.ints("lo"), c.ints("hi")
    bits = _MIN_BUCKET_BITS
    while int(((hi - 1 >> bits) - (lo >> bits) + 1).sum()) > MAX_PIECES and bits < 40:
        bits += 2
    count = (hi - 1 >> bits) - (lo >> bits) + 1
    of = np.repeat(np.arange(lo.size), count)
    step = np.arange(of.size) - np.repeat(np.cumsum(count) - count, count)
    piece = (lo >> bits)[of] + step
    kept = depths.select(list(names)).take(pa.array(of))
    columns: dict[str, Any] = {name: kept.column(name) for name in names}
    return bits, pa.table(columns | {"piece": piece, "lo": lo[of], "hi": hi[of]})
