"""Counts repeats while a run goes on: closed segments in, totals per group and queue out.

    python -m failback.analytics.jobs.stream --lake URI --checkpoint DIR --out URI [--run ID]

Each trigger reads the segments that are new in ``table=deliver``. It keeps which offsets were
delivered, per (grp, broker, ptopic, qid), as
:mod:`failback.analytics.analysis.counting.queue_state`. It writes the totals of all queues since
the beginning to ``OUT/totals.json``, whole or not at all. So a segment that comes late or out of
order counts, and a trigger that is repeated after a crash changes nothing. A run that is being read
must not be compacted or migrated: its rows would be new files. Rows of a run that is not open yet
are not seen before it is.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.counting.partials.sums import Key, Partials
from failback.analytics.analysis.counting.queue_state import QueueState
from failback.analytics.analysis.engines.spark.reading_errors import naming_files
from failback.analytics.analysis.engines.spark.session import check_reach, session
from failback.analytics.jobs.options import guarded, parser_of
from failback.analytics.lake.store import LakeStore, open_store
from failback.client.consumelog.schema import lake_ddl

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

KEY: Final = ("grp", "broker", "ptopic", "qid")
COLUMNS: Final = (*KEY, "qoff", "client_id", "bt", "et")
TOTALS: Final = "totals.json"
SCHEMA: Final = "failback.live/1"
_RUNS_DDL: Final = (
    "grp string, broker string, ptopic string, qid bigint, lo bigint, hi bigint, weight bigint"
)
_TOTALS_DDL: Final = (
    "grp string, broker string, ptopic string, qid bigint, delivered bigint, distinct bigint,"
    " repeated bigint, state_bytes bigint"
)
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main(argv: Sequence[str] | None = None) -> int:
    """Run until it is ended, or with ``--once`` until nothing is new."""
    parser = parser_of("stream", "Count repeats while a run goes on.")
    parser.add_argument("--lake", required=True, help="a folder or s3://bucket/prefix")
    parser.add_argument("--run", help="only this run of the lake")
    parser.add_argument("--checkpoint", required=True, help="a folder, or a URI that Spark knows")
    parser.add_argument("--out", required=True, help="where totals.json is to be")
    parser.add_argument("--trigger", default="10 seconds", help="how often to look for segments")
    parser.add_argument("--max-files", type=int, default=1000, help="segments per trigger at most")
    parser.add_argument(
        "--broadcasting", action="append", default=[], help="a group whose members get everything"
    )
    parser.add_argument("--once", action="store_true", help="end when nothing is new")
    return guarded(lambda: _run(parser.parse_args(argv)))


def _run(options: argparse.Namespace) -> int:
    lake = open_store(options.lake)
    out = open_store(options.out)
    for store in (lake, out):
        store.check()  # Spark would say it in a hundred lines of Java
    lake.folders("table=deliver")
    check_reach(options.master, [lake])
    with session(options.master, [lake]) as spark, naming_files():
        query = start(
            spark,
            lake,
            options.checkpoint,
            out,
            run=options.run,
            broadcasting=frozenset(options.broadcasting),
            max_files=options.max_files,
            trigger=None if options.once else options.trigger,
        )
        query.awaitTermination()
    return 0


def start(
    spark: SparkSession,
    lake: LakeStore,
    checkpoint: str | Path,
    out: LakeStore,
    *,
    run: str | None = None,
    broadcasting: frozenset[str] = frozenset(),
    max_files: int = 1000,
    trigger: str | None = None,
) -> StreamingQuery:
    """Start the query; without ``trigger`` it ends when every segment that is there is counted."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    spark.conf.set("spark.sql.streaming.schemaInference", "false")
    # A checkpoint keeps the number of its partitions, whatever cluster goes on with it.
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1048576")
    # A pattern of files: Spark asks nothing about folders, which an object store may not have.
    name = run or "*"
    where = lake.spark_uri(f"table=deliver/{{date=*/run={name},run={name}}}/*.parquet")
    deliveries = (
        spark.readStream.schema(lake_ddl("deliver"))
        .option("maxFilesPerTrigger", max_files)
        .parquet(where)
        .select(*COLUMNS)
    )
    writer = (
        totals_of(deliveries, broadcasting)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(lambda batch, number: write_totals(batch, number, out))
    )
    if trigger is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=trigger).start()


def totals_of(deliveries: DataFrame, broadcasting: frozenset[str] = frozenset()) -> DataFrame:
    """Totals of each queue that has new deliveries, since the beginning.

    Args:
        deliveries: The columns :data:`COLUMNS` of raw deliveries, a stream.
        broadcasting: Groups of which every member gets every message: counted per client id.
    """

    def runs_of_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Intervals instead of rows: what goes through the shuffle is small."""
        for batch in batches:
            yield from runs_of(pa.Table.from_batches([batch]), broadcasting).to_batches()

    runs = deliveries.mapInArrow(runs_of_batches, _RUNS_DDL)
    found: DataFrame = runs.groupBy(*KEY).transformWithStateInPandas(
        statefulProcessor=_processor(),
        outputStructType=_TOTALS_DDL,
        outputMode="Update",
        timeMode="None",
    )
    return found


def runs_of(rows: pa.Table, broadcasting: frozenset[str] = frozenset()) -> pa.Table:
    """Runs of consecutive offsets of each queue; rows that cannot be true are left out."""
    wanted = Rows(rows)
    good = (wanted["qoff"] >= 0) & ~(wanted.valid("et") & (wanted["et"] < wanted["bt"]))
    if not good.all():
        wanted = Rows(rows.filter(pa.array(good)))
    wanted.rename_broadcast(broadcasting)
    names = {"grp": "grp", "broker": "broker", "topic": "ptopic"}
    key = Key(**{name: wanted.codes(column) for name, column in names.items()})
    out = Partials()
    everything = np.ones(wanted.count, bool)
    queue = key.and_(qid=wanted["qid"], epoch=np.zeros(wanted.count, np.int64))
    out.intervals(families.COPY, queue, wanted["qoff"], everything)
    found = families.COPY.named(out.table(), "lo", "hi", "weight").drop_columns(["epoch"])
    return found.rename_columns([*KEY, "lo", "hi", "weight"])


def _processor() -> StatefulProcessor:
    """Made here, because its base class needs pyspark."""
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    class QueueProcessor(StatefulProcessor):
        """Keeps the state of one queue per key."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._state = handle.getValueState("queue", "content binary")

        def handleInputRows(  # noqa: N802 - Spark's name
            self,
            key: Any,
            rows: Iterator[pd.DataFrame],
            timerValues: Any,  # noqa: N803
        ) -> Iterator[pd.DataFrame]:
            import pandas

            known = self._state.get()
            state = QueueState() if known is None else QueueState.decode(bytes(known[0]))
            for frame in rows:
                columns = (frame[name].to_numpy(np.int64) for name in ("lo", "hi", "weight"))
                state = state.add(*columns)
            content = state.encode()
            self._state.update((content,))
            figures = (state.delivered, state.distinct, state.repeated, len(content))
            names = [*KEY, "delivered", "distinct", "repeated", "state_bytes"]
            yield pandas.DataFrame([(*key, *figures)], columns=names)

        def close(self) -> None:
            """Nothing is held."""

    return QueueProcessor()


def write_totals(batch: DataFrame, number: int, out: LakeStore) -> None:
    """Put the totals of a trigger's queues in the place of their older ones."""
    names = [*KEY, "delivered", "distinct", "repeated", "state_bytes"]
    changed = [row.asDict() for row in batch.select(*names).collect()]
    queues = {tuple(row[name] for name in KEY): row for row in read_totals(out)["queues"]}
    queues |= {tuple(row[name] for name in KEY): row for row in changed}
    document = {
        "schema": SCHEMA,
        "batch": number,
        "queues": [queues[key] for key in sorted(queues)],
    }
    out.write(TOTALS, json.dumps(document, ensure_ascii=False).encode())


def read_totals(out: LakeStore) -> dict[str, Any]:
    """The totals that were written last; none before the first trigger."""
    try:
        found: dict[str, Any] = json.loads(out.read(TOTALS))
    except FileNotFoundError:
        return {"schema": SCHEMA, "batch": None, "queues": []}
    return found


if __name__ == "__main__":
    raise SystemExit(main())
