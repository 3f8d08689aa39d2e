"""From the rows of runs to result tables: what was consumed again, and why.

    python -m failback.analytics.jobs.reconsume --lake URI --run ID --out URI [--documents RUN]
        [--key lid|messageId|businessKey] [--since T] [--until T]

Writes ``OUT/result/run=ID/``: a Parquet file per table (copy_depth, msg_depth, rollback, windows,
loss, order, rto, counters), a folder ``class`` of Parquet files with the repeated deliveries one by
one, and ``report.json`` and ``points.parquet``, from which ``jobs.report`` makes the readable
outputs. ``report.json`` is written last: with it the result is whole.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from failback.analytics.analysis.analysis import analyse
from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.engines.spark.runner import spark_engine
from failback.analytics.analysis.engines.spark.session import check_reach, session, why_not
from failback.analytics.analysis.results import Analysis
from failback.analytics.analysis.rows_in_files import RowsInFiles
from failback.analytics.errors import EngineUnavailable
from failback.analytics.jobs.options import guarded, parser_of
from failback.analytics.lake.store import LakeStore, open_store
from failback.analytics.report.make_report import build_report
from failback.analytics.report.measures.numbers import Row
from failback.analytics.report.schema import report_bytes
from failback.analytics.run.definitions import KEYS, LID, Wanted
from failback.analytics.run.run_source import RunSource, source_in_lake

CANDIDATES: Final = "candidates"


def _schema(texts: str, numbers: str, fractions: str = "") -> pa.Schema:
    kinds = ((texts, pa.utf8()), (numbers, pa.int64()), (fractions, pa.float64()))
    return pa.schema([(name, kind) for names, kind in kinds for name in names.split()])


_WINDOWS: Final = _schema(
    "grp broker ptopic cause fid", "qid assignment lo hi size from_proc to_proc t"
)
_ROLLBACK: Final = _schema(
    "grp broker topic src explained_by explained_rows fid",
    "qid t_ns start src_bid src_binc committed confirmed processed d_commit d_proc redelivered",
    "age_seconds",
)
_RTO: Final = _schema(
    "fid broker consume_ms phases phase_rows",
    "queues_never",
    "produce_ms second_stall_ms ttfr_kill_ms ttfr_accept_ms",
)
"""What is nested is JSON text: a table has columns, not trees."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run it on Spark."""
    parser = parser_of("reconsume", "Count what runs delivered twice, and say why.")
    parser.add_argument("--lake", required=True, help="a folder or s3://bucket/prefix")
    parser.add_argument("--run", action="append", default=[], help="a run's id; repeatable")
    parser.add_argument(
        "--documents", type=Path, action="append", default=[], help="a run folder with run.json"
    )
    parser.add_argument("--out", required=True, help="a folder or s3://bucket/prefix")
    parser.add_argument("--group", help="only the rows of this group in the tables of results")
    parser.add_argument(
        "--keep-rows",
        choices=(CANDIDATES, "none"),
        default=CANDIDATES,
        help="whether the folder class has the repeated deliveries one by one",
    )
    parser.add_argument("--key", choices=KEYS, default=LID, help="what messages are the same by")
    parser.add_argument("--since", metavar="T", help="second after run zero, or an ISO time")
    parser.add_argument("--until", metavar="T", help="the same; figures are of what begins between")
    return guarded(lambda: _run(parser, parser.parse_args(argv)))


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if not options.run and not options.documents:
        parser.error("name a run: --run ID, or --documents RUN")
    problem = why_not()
    if problem:
        raise EngineUnavailable(problem)
    sources = [source_in_lake(options.lake, each) for each in options.run]
    sources += [source_in_lake(options.lake, documents=each) for each in options.documents]
    wanted = Wanted(key=options.key, since=options.since, until=options.until)
    sources = [source.counted_as(wanted) for source in sources]
    out = open_store(options.out)
    out.check()
    check_reach(options.master, [source.lake.store for source in sources])
    with session(options.master) as spark:
        for source in sources:
            engine = spark_engine(source.lake, spark)
            where = result_of(source.folder.run_id)
            rows = RowsInFiles(options.out, f"{where}/class", options.group)
            rows.clear()
            kept = rows if options.keep_rows == CANDIDATES else None
            analysis = analyse(source.folder, source.lake, engine, kept)
            document, points = build_report(analysis, engine.name)
            found = result_tables(analysis, document, options.group)
            write_result(out, source, document, {**found, "points": points})
            print(f"{document['run']}: result is in {out}/{where}")
    return 0


def result_of(run: str) -> str:
    """Where the result of a run is, below the root of the results."""
    return f"result/run={run}"


def write_result(
    out: LakeStore, source: RunSource, document: Row, found: Mapping[str, pa.Table]
) -> str:
    """Write the tables and then the report; returns the folder."""
    content = report_bytes(document)
    where = result_of(source.folder.run_id)
    for name, table in found.items():
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        out.write(f"{where}/{name}.parquet", sink.getvalue())
    out.write(f"{where}/report.json", content)
    return where


def result_tables(
    analysis: Analysis, document: Mapping[str, Any], group: str | None = None
) -> dict[str, pa.Table]:
    """The result tables of an analysed run, as far as they are of ``group``."""
    values, depths = analysis.counts.values, analysis.counts.depths
    counters = [values[family] for family in sorted(values)]
    found = {
        "copy_depth": depths.get(families.COPY.name, tables.DEPTHS.empty_table()),
        "msg_depth": depths.get(families.MESSAGE.name, tables.DEPTHS.empty_table()),
        "order": analysis.order.rename_columns(["grp", *analysis.order.column_names[1:]]),
        "counters": pa.concat_tables(counters) if counters else tables.VALUES.empty_table(),
        "windows": _windows(analysis),
        "rollback": _rows(document["rollbacks"], _ROLLBACK),
        "loss": _losses(document),
        "rto": _rows(document["rto"], _RTO),
    }
    if group is None:
        return found
    return {
        name: table.filter(pc.equal(table.column("grp"), group))
        if "grp" in table.column_names
        else table
        for name, table in found.items()
    }


def _windows(analysis: Analysis) -> pa.Table:
    rows = [
        {name: getattr(window, name, None) for name in _WINDOWS.names} | window.key._asdict()
        for window in analysis.windows.kept
    ]
    return pa.Table.from_pylist(rows, _WINDOWS)


def _rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows of the report as a table, its ``group`` under the name that the other tables have."""
    return pa.Table.from_pylist([_flat({"grp": row.get("group"), **row}) for row in rows], schema)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        for key, value in row.items()
    }


def _losses(document: Mapping[str, Any]) -> pa.Table:
    by_group = document["loss"].get("groups") or {}
    rows = [
        {"grp": group, "fate": fate, "messages": count}
        for group, fates in sorted(by_group.items())
        for fate, count in sorted(fates.items())
    ]
    schema = pa.schema([("grp", pa.utf8()), ("fate", pa.utf8()), ("messages", pa.int64())])
    return pa.Table.from_pylist(rows, schema)


if __name__ == "__main__":
    raise SystemExit(main())
