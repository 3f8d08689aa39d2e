"""Raw rows to rows that can be queried as they are: one clock, late ends joined, epochs numbered.

    python -m failback.analytics.jobs.normalise --lake URI --run ID --out URI [--documents RUN]

Writes ``OUT/aligned/table=<t>/date=<day>/run=ID/``. Every time is ns after run zero, and
``warmup`` says which rows no figure has. Deliveries are normalised: with an identity for foreign
messages and the epoch of the log, without rows that cannot be true.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.counting.normalise import (
    END_COLUMNS,
    Dropped,
    Ends,
    deliver_columns,
    normalise,
)
from failback.analytics.analysis.counting.partials.context import Context, context_of
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.engines.base import Pass
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.spark.runner import spark_engine
from failback.analytics.analysis.engines.spark.session import check_reach, session, why_not
from failback.analytics.analysis.engines.spark.tasks import mapped
from failback.analytics.errors import EngineUnavailable
from failback.analytics.jobs.options import guarded, parser_of
from failback.analytics.lake.store import LakeStore, open_store
from failback.analytics.run.epochs import Queue
from failback.analytics.run.history import History
from failback.analytics.run.history_reading import add_events, read_history, starts
from failback.analytics.run.run_source import RunSource, source_in_lake
from failback.client.consumelog.schema import TABLES
from failback.client.consumelog.upload.lake_files import lake_rows, parquet_bytes
from failback.client.consumelog.upload.layout import day_of, folder_of

ALIGNED: Final = pa.schema([*tables.DELIVERY, ("warmup", pa.bool_())])
"""Columns of aligned deliveries."""
_JOINED: Final = frozenset({"deliver", "deliver_end"})
_BEGIN: Final = ("bt", "t0", "t", "observed")
"""What says when a row began, the first that its table has."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run it on Spark."""
    parser = parser_of("normalise", "Put the rows of runs on one clock.")
    parser.add_argument("--lake", required=True, help="a folder or s3://bucket/prefix")
    parser.add_argument("--run", help="the run's id; that of --documents by default")
    parser.add_argument("--documents", type=Path, help="a run folder with run.json")
    parser.add_argument("--out", required=True, help="a folder or s3://bucket/prefix")
    return guarded(lambda: run(parser.parse_args(argv)))


def run(options: argparse.Namespace) -> int:
    """Write the aligned rows of the run that the options name."""
    problem = why_not()
    if problem:
        raise EngineUnavailable(problem)
    source = source_in_lake(options.lake, options.run, options.documents)
    out = open_store(options.out)
    out.check()
    check_reach(options.master, [source.lake.store, out])
    with session(options.master, [out]) as spark:
        history, context = context_in(source, spark_engine(source.lake, spark))
        ends = Ends.of(source.lake.read("deliver_end", END_COLUMNS))
        rows = Pass(
            "deliver",
            deliver_columns(context.definitions, foreign=source.lake.has_foreign, full=True),
            partial(aligned_deliveries, context=context, ends=ends),
        )
        found = mapped(spark, source.lake, [rows], ALIGNED)
        found.write.mode("overwrite").parquet(out.spark_uri(_folder("deliver", source)))
    for table in source.lake.parts:
        if table not in _JOINED:
            align_table(source, history, table, out)
    print(f"{source.folder.run_id}: aligned rows are in {out}/aligned")
    return 0


def context_in(source: RunSource, engine: Engine) -> tuple[History, Context]:
    """Clocks, epochs and incarnations of a run."""
    history = read_history(source.folder, source.lake)
    boots: dict[str, list[int]] = defaultdict(list)
    for start in starts(history):
        boots[start.broker].append(start.boot_ms)
    rows = engine.known(boots).to_pylist() if boots else []
    add_events(
        history,
        {
            (Queue(row["broker"], row["topic"], row["qid"]), row["boot_ms"]): row["value"]
            for row in rows
        },
    )
    return history, context_of(history, [])


def aligned_deliveries(chunk: pa.Table, context: Context, ends: Ends) -> pa.Table:
    """Normalised deliveries as :data:`ALIGNED`."""
    found = normalise(chunk, context, ends, Dropped())
    warmup = np.asarray(found.column("bt").to_numpy()) < context.warmup_end_ns
    found = found.append_column("warmup", pa.array(warmup))
    columns: list[Any] = [found.column(field.name).cast(field.type) for field in ALIGNED]
    return pa.table(columns, schema=ALIGNED)


def align_table(source: RunSource, history: History, table: str, out: LakeStore) -> None:
    """One of the smaller tables, its times shifted, in files of a million rows.

    What an earlier job wrote beyond them is deleted: its rows would be there twice.
    """
    written = set()
    times = [column.name for column in TABLES[table].columns if column.kind == "T"]
    begin = next((name for name in _BEGIN if name in times), None)
    for number, chunk in enumerate(source.lake.chunks(table)):
        shift = pa.array(Rows(chunk).shifts(history.clocks))
        for name in times:
            at = chunk.schema.get_field_index(name)
            chunk = chunk.set_column(at, name, pc.add(chunk.column(name), shift))
        warmup: Any = pa.array([False] * chunk.num_rows)
        if begin is not None:
            warmup = pc.fill_null(pc.less(chunk.column(begin), source.folder.warmup_end_ns), False)
        chunk = chunk.append_column("warmup", warmup)
        name = f"{_folder(table, source)}/part-{number:05d}.parquet"
        out.write(name, parquet_bytes(lake_rows(chunk, table, aligned=True)))
        written.add(name)
    for found in out.files(_folder(table, source)):
        if found.name not in written:
            out.delete(found.name)


def _folder(table: str, source: RunSource) -> str:
    day = day_of(source.folder.zero_wall_ns) or day_of(0)
    return f"aligned/{folder_of(table, source.folder.run_id, day)}"


if __name__ == "__main__":
    raise SystemExit(main())
