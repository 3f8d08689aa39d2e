"""``failback lake query``: what a lake answers to SQL, as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from failback.analytics.run.lake_query import Answer, asked
from failback.analytics.run.lake_tables import LakeTables, lake_tables
from failback.client.program.command_line import CommandParser
from failback.common import numbers

_LAKE: Final = "A folder, s3://bucket/prefix, or a run folder."
_TABLE_ROWS: Final = 1000
"""Most rows that are laid out as a table: its widths need all of them."""
_NUMBERS: Final = (int, float, Decimal)


def add_query(lake: CommandParser) -> None:
    """Add ``query`` to ``failback lake``."""
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
    _warn_of_unseen(tables)
    with asked(tables, options.sql) as answer:
        _print(answer, options.format)
    return _said_left_out(tables)


def _said_left_out(tables: LakeTables) -> int:
    """Name the files that an answer lacks; return the exit code."""
    for file in sorted(set(tables.left_out)):
        print(f"left out, it cannot be read: {file}", file=sys.stderr)
    return 1 if tables.left_out else 0


def _warn_of_unseen(tables: LakeTables) -> None:
    if tables.unseen:
        unseen = numbers.counted(len(tables.unseen), "run")
        print(f"{unseen} not seen, not open: name one by --run ID", file=sys.stderr)


def _print(answer: Answer, form: str) -> None:
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([_plain(value) for value in row] for row in answer.rows)
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
