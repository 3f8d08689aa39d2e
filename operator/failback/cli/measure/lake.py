"""``failback lake``: look after a lake.

    show LAKE                       list its runs, tables and files
    query LAKE SQL                  ask with DuckDB; views have the figures of reports
    paths RUN|LAKE --run ID         the files of a run, for queries with other tools
    fsck LAKE                       make the catalogue agree with the files
    compact LAKE [--run ID]         merge the small files of closed runs into large ones

LAKE is a folder or ``s3://bucket/prefix``.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from failback.analytics.errors import ReportInputError, StoreUnusable
from failback.analytics.lake.catalogue import StoredCatalogue
from failback.analytics.lake.compact import MIB, compact_run
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.layout import check_lake, partitions, runs
from failback.analytics.lake.store import LakeStore, open_store
from failback.analytics.run.lake_sql import Answer, asked, lake_tables
from failback.analytics.run.query_paths import lake_paths, query_paths
from failback.client.program import CommandParser
from failback.common import numbers
from failback.common.text import csv_cell, visible

LAKE: Final = "A folder, or s3://bucket/prefix."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 1 if something is gone or damaged, 2 for bad input."""
    options = parser().parse_args(argv)
    try:
        return int(options.call(options))
    except ReportInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parser() -> CommandParser:
    """Return what reads the command line."""
    made = CommandParser(
        "failback lake",
        "Look after a lake: all rows of runs as Parquet, in a folder or an object store.",
        examples=("failback lake show lake", "failback lake compact s3://bucket/lake"),
    )
    _add_reading(made)
    _add_query(made)
    _add_paths(made)
    _add_compact(made)
    return made


def _add_reading(lake: CommandParser) -> None:
    show = lake.add_command(
        "show", "List the runs and tables of a lake.", "failback lake show lake"
    )
    fsck = lake.add_command(
        "fsck", "Make the catalogue agree with the files.", "failback lake fsck lake"
    )
    for command, call in ((show, _show), (fsck, _fsck)):
        command.add_argument("lake", metavar="LAKE", help=LAKE)
        command.set_defaults(call=call)


def _add_paths(lake: CommandParser) -> None:
    command = lake.add_command(
        "paths",
        "Print the files of a run, table by table, for queries with DuckDB, pandas or Spark.",
        "failback lake paths runs/latest/handover --table deliver",
        "failback lake paths s3://bucket/lake --run kill-0 --json",
    )
    add = command.add_argument
    add("source", metavar="RUN|LAKE", help="A run folder; or with --run a lake.")
    add("--run", metavar="ID", help="The run in the lake.")
    add("--table", metavar="NAME", help="Only the files of this table (default: all).")
    add("--json", action="store_true", help="Print JSON, for machines.")
    command.set_defaults(call=_paths)


def _add_compact(lake: CommandParser) -> None:
    command = lake.add_command(
        "compact",
        "Merge the small files of closed runs into large ones.",
        "failback lake compact s3://bucket/lake --run kill-0",
    )
    add = command.add_argument
    add("lake", metavar="LAKE", help=LAKE)
    add("--run", action="append", metavar="ID", help="Only this run (default: all).")
    add("--least-mib", type=float, default=64, metavar="MIB", help="Leave larger files alone.")
    add("--most-mib", type=float, default=256, metavar="MIB", help="Most that becomes one file.")
    add("--also-open", action="store_true", help="Runs that are not closed, too.")
    command.set_defaults(call=_compact)


def _paths(options: argparse.Namespace) -> int:
    if not options.run and not Path(options.source, "run.json").exists():
        raise ReportInputError("is no run folder; of a lake name the run: --run ID", options.source)
    found = lake_paths(options.source, options.run) if options.run else query_paths(options.source)
    tables = found.tables
    code = _said_left_out(found.unreadable)
    if options.table:
        if options.table not in tables:
            known = ", ".join(sorted(tables))
            raise ReportInputError(f"run {found.run} has no table {options.table}; it has {known}")
        tables = {options.table: tables[options.table]}
    if options.json:
        print(json.dumps({"run": found.run, "figures_from": found.figures_from, "tables": tables}))
        return code
    for name, files in tables.items():
        for file in files:
            print(file if options.table else f"{name}\t{file}")
    return code


def _existing(named: str) -> LakeStore:
    store = open_store(named)
    if store.folder is not None and not store.folder.is_dir():
        raise ReportInputError("no such folder", store.folder)
    store.check()
    return store


def _lake(named: str) -> LakeStore:
    store = _existing(named)
    check_lake(store)
    return store


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _show(options: argparse.Namespace) -> int:
    store = _lake(options.lake)
    found: dict[str, dict[str, list[int]]] = {}
    where: dict[str, str] = {}
    for each in partitions(store):
        sizes = [file.size for file in store.files(each.folder)]
        found.setdefault(each.run, {}).setdefault(each.table, []).extend(sizes)
        where[each.run] = each.day or "waits to be opened"
    print(
        f"{store}: {numbers.counted(len(found), 'run')},"
        " rows in table=TABLE/date=DAY/run=ID/[!._]*.parquet"
    )
    for run, tables in sorted(found.items()):
        print(f"{run}: {where[run]}, {numbers.size(sum(map(sum, tables.values())))}")
        for table, sizes in sorted(tables.items()):
            print(f"  {table}: {numbers.counted(len(sizes), 'file')}, {numbers.size(sum(sizes))}")
    return 0


def _fsck(options: argparse.Namespace) -> int:
    store = _existing(options.lake)
    catalogue = StoredCatalogue(store)
    code = 0
    named = sorted({*runs(store), *catalogue.runs()})
    _say_if_empty(store, named)
    for run in named:
        found = check_run(store, catalogue, run, _now_ms())
        print(
            f"{run}: {found.segments} segments, {len(found.added)} added, "
            f"{len(found.vanished)} vanished, {len(found.unreadable)} unreadable"
        )
        for name in (*found.vanished, *found.unreadable):
            print(f"  {name}")
            code = 1
    return code


def _say_if_empty(store: object, found: Collection[str]) -> None:
    """Refuse a folder that is no lake, where there is nothing to do."""
    if not found:
        print(f"{visible(str(store))} holds no run: is it a lake?", file=sys.stderr)


def _compact(options: argparse.Namespace) -> int:
    store = _existing(options.lake)
    named = options.run or runs(store)
    _say_if_empty(store, named)
    code = 0
    for run in named:
        try:
            done = compact_run(
                store,
                run,
                _now_ms(),
                least_bytes=round(options.least_mib * MIB),
                most_bytes=round(options.most_mib * MIB),
                also_open=options.also_open,
            )
        except StoreUnusable:
            raise
        except ReportInputError as error:
            if options.run:
                raise
            print(f"{run}: left alone: {error}")
            continue
        print(
            f"{run}: {done.before} files of {done.bytes_before} bytes are now "
            f"{done.after} of {done.bytes_after}"
        )
    return code


_LAKE: Final = "A folder, s3://bucket/prefix, or a run folder."
_TABLE_ROWS: Final = 1000
"""Most rows that are laid out as a table: its widths need all of them."""
_NUMBERS: Final = (int, float, Decimal)


def _add_query(lake: CommandParser) -> None:
    command = lake.add_command(
        "query",
        "Ask a lake in SQL. Its tables have their names, runs has a row per run, and views such as"
        " totals have the figures of reports. Needs DuckDB: pip install '.[query]' in a checkout.",
        'failback lake query lake "SELECT * FROM totals" --run kill-0',
        'failback lake query lake "DESCRIBE deliver"',
    )
    add = command.add_argument
    add("lake", metavar="LAKE", help=_LAKE)
    add("sql", metavar="SQL", help="One statement.")
    add("--run", metavar="ID", help="Only rows of this run (default: all).")
    add("--format", choices=("table", "csv", "json"), default="table", help="Form of the output.")
    command.set_defaults(call=_query)


def _query(options: argparse.Namespace) -> int:
    tables = lake_tables(options.lake, options.run)
    if tables.unseen:
        unseen = numbers.counted(len(tables.unseen), "run")
        print(f"{unseen} not seen, not open: name one by --run ID", file=sys.stderr)
    with asked(tables, options.sql) as answer:
        first = list(islice(answer.rows, 1))
        _print(replace(answer, rows=chain(first, answer.rows)), options.format)
    if not first and tables.is_observed:
        where = "its report has them, in observation.returns of report/report.json"
        print(f"no row: an observation counts by return; {where}", file=sys.stderr)
    return _said_left_out(sorted(set(tables.left_out)))


def _said_left_out(files: Collection[object]) -> int:
    """Name the files that an answer lacks; return the exit code."""
    for file in files:
        print(f"left out, it cannot be read: {file}", file=sys.stderr)
    return 1 if files else 0


def _print(answer: Answer, form: str) -> None:
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([csv_cell(_plain(value)) for value in row] for row in answer.rows)
    elif form == "json":
        _print_json(answer)
    else:
        _print_table(answer.columns, answer.rows)


def _print_json(answer: Answer) -> None:
    """A list with an object per row, written row by row."""
    start = "["
    for row in answer.rows:
        values = dict(zip(answer.columns, map(_plain, row), strict=True))
        print(f"{start}{json.dumps(values, ensure_ascii=False)}", end="")
        start = ",\n "
    print("]" if start != "[" else "[]")


def _print_table(columns: Sequence[str], found: Iterator[tuple[Any, ...]]) -> None:
    rows = list(islice(found, _TABLE_ROWS + 1))
    shown = [["" if value is None else str(_plain(value)) for value in row] for row in rows]
    cut = len(shown) > _TABLE_ROWS
    lines = [list(columns), *shown[:_TABLE_ROWS]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    right = [rows != [] and all(isinstance(r[at], _NUMBERS) or r[at] is None for r in rows)
             for at in range(len(columns))]  # fmt: skip
    for line in lines:
        cells = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(cells).rstrip())
    if cut:
        print(f"more than {_TABLE_ROWS:,} rows: --format csv or json prints all", file=sys.stderr)


def _plain(value: Any) -> Any:
    """What JSON and CSV can say: bytes as hex, dates as ISO 8601."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
