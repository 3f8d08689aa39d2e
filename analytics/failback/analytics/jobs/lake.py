"""``python -m failback.analytics.lake``: look after a lake.

    fsck LAKE                       make the catalogue agree with the files
    compact LAKE [--run ID]         merge the small files of closed runs into large ones
    convert FILE.jsonl... --to LAKE write JSON Lines into a lake
    put-documents RUN --to LAKE     copy run.json and closed.json of a run folder beside its rows

LAKE is a folder or ``s3://bucket/prefix``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from failback.analytics.errors import ReportInputError, StoreUnusable
from failback.analytics.lake.compact import MIB, StoredCatalogue, compact_run
from failback.analytics.lake.convert import convert
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.store import LakeStore, open_store
from failback.analytics.run.folder_reading import read_run_folder
from failback.analytics.run.run_source import put_documents


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 1 if something is gone or damaged, 2 for bad input."""
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        code: int = options.call(options)
    except ReportInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m failback.analytics.lake")
    commands = parser.add_subparsers(dest="command", required=True)
    fsck = commands.add_parser("fsck", help="make the catalogue agree with the files")
    fsck.add_argument("lake", help="a folder with table=*/run=*/, or s3://bucket/prefix")
    fsck.set_defaults(call=_fsck)
    compact = commands.add_parser("compact", help="merge the small files of closed runs")
    compact.add_argument("lake", help="a folder with table=*/run=*/, or s3://bucket/prefix")
    compact.add_argument("--run", action="append", help="only this run; may be repeated")
    compact.add_argument("--least-mib", type=float, default=64, help="leave larger files alone")
    compact.add_argument("--most-mib", type=float, default=256, help="most that becomes one file")
    compact.add_argument("--also-open", action="store_true", help="runs that are not closed, too")
    compact.set_defaults(call=_compact)
    to_lake = commands.add_parser("convert", help="write JSON Lines into a lake")
    to_lake.add_argument("files", nargs="+", type=Path, help="<table>.jsonl or <table>-*.jsonl")
    to_lake.add_argument("--to", required=True, dest="lake", help="a folder or a URI")
    to_lake.set_defaults(call=_convert)
    documents = commands.add_parser("put-documents", help="copy a run's documents into a lake")
    documents.add_argument("folder", type=Path, help="a run folder")
    documents.add_argument("--to", required=True, dest="lake", help="a folder or a URI")
    documents.set_defaults(call=_put_documents)
    return parser


def _existing(named: str) -> LakeStore:
    store = open_store(named)
    if store.folder is not None and not store.folder.is_dir():
        raise ReportInputError("no such folder", store.folder)
    store.check()
    return store


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _fsck(options: argparse.Namespace) -> int:
    store = _existing(options.lake)
    catalogue = StoredCatalogue(store)
    code = 0
    for run in sorted({*store.runs(), *catalogue.runs()}):
        found = check_run(store, catalogue, run, _now_ms())
        print(
            f"{run}: {found.segments} segments, {len(found.added)} added, "
            f"{len(found.vanished)} vanished, {len(found.unreadable)} unreadable"
        )
        for name in (*found.vanished, *found.unreadable):
            print(f"  {name}")
            code = 1
    return code


def _compact(options: argparse.Namespace) -> int:
    store = _existing(options.lake)
    named = options.run or store.runs()
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


def _convert(options: argparse.Namespace) -> int:
    rows = convert(open_store(options.lake), options.files)
    for table, count in sorted(rows.items()):
        print(f"{table}: {count} rows")
    return 0


def _put_documents(options: argparse.Namespace) -> int:
    folder = read_run_folder(options.folder)
    store = open_store(options.lake)
    put_documents(store, folder)
    print(f"{folder.run_id}: documents are in {store}")
    return 0
