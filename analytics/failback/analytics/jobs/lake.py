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
import json
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from failback.analytics.errors import ReportInputError, StoreUnusable
from failback.analytics.jobs import lake_sql
from failback.analytics.lake.compact import MIB, StoredCatalogue, compact_run
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.layout import check_lake, partitions, runs
from failback.analytics.lake.store import LakeStore, open_store
from failback.analytics.run.query_paths import lake_paths, query_paths
from failback.client.program.command_line import CommandParser
from failback.common import numbers
from failback.common.text import visible

LAKE: Final = "A folder, or s3://bucket/prefix."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 1 if something is gone or damaged, 2 for bad input."""
    options = parser().parse_args(argv)
    try:
        code: int = options.call(options)
    except ReportInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def parser() -> CommandParser:
    """Return what reads the command line."""
    made = CommandParser(
        "failback lake",
        "Look after a lake: all rows of runs as Parquet, in a folder or an object store.",
        examples=("failback lake show lake", "failback lake compact s3://bucket/lake"),
    )
    _add_reading(made)
    lake_sql.add_query(made)
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
        "failback lake paths runs/demo/handover --table deliver",
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
    for file in found.unreadable:
        print(f"left out, it cannot be read: {file}", file=sys.stderr)
    code = 1 if found.unreadable else 0
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
        " rows in table=TABLE/date=DAY/run=ID/*.parquet"
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
