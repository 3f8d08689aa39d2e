"""What a table is, and its four printers: Parquet, CSV, a page, Markdown. Pure.

A column has a ``field`` where the files have it, and a ``heading`` where the page shows it. Fields
end in their unit: ``_s`` seconds after run zero or long, ``_ms`` milliseconds; other numbers are
messages or counts. What was not measured is empty in files and a dash on the page.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from failback.analytics.report.measures.numbers import NS
from failback.analytics.report.wording import UNKNOWN, number, percent
from failback.common.text import csv_cell

Row = Mapping[str, Any]
Report = Mapping[str, Any]

MAX_TABLE_ROWS: Final = 500
"""Rows of a page's table; the files have all."""
_TYPES: Final = {"s": pa.utf8(), "i": pa.int64(), "f": pa.float64(), "b": pa.bool_()}
_UNITS: Final = {"_s": " (s)", "_ms": " (ms)"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the files, of the page, or of both."""

    field: str
    """Its name in CSV and Parquet; empty where only the page has it."""
    heading: str
    """Its name on the page; empty where only the files have it."""
    type: str
    """``s`` text, ``i`` integer, ``f`` float, ``b`` flag."""
    unit: str = ""
    """``share`` is shown in percent."""
    text: Callable[[Row], object] | None = None
    """Makes the page's cell, where it is not the field's value."""
    term: str = ""
    """Key of the word in ``words.TERMS`` that the heading explains."""

    @property
    def is_number(self) -> bool:
        return self.type in "if"

    def cell(self, row: Row) -> object:
        """The value that the page shows."""
        return row.get(self.field) if self.text is None else self.text(row)


def both(field: str, heading: str, **more: Any) -> Column:
    """A column ``name:type`` of files and page."""
    name, _, kind = field.partition(":")
    return Column(name, heading, kind or "s", **more)


def files(fields: str) -> list[Column]:
    """Columns ``name:type`` that only the files have."""
    return [both(field, "") for field in fields.split()]


def page(heading: str, text: Callable[[Row], object], kind: str = "s", **more: Any) -> Column:
    """A column that only the page has."""
    return Column("", heading, kind, text=text, **more)


def alike(fields: str) -> list[Column]:
    """Columns whose heading is their field in words."""
    return [both(field, _heading(field.partition(":")[0])) for field in fields.split()]


def _heading(name: str) -> str:
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " ") + unit
    return name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; ``empty`` is said where there are none."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str = ""
    order: Callable[[Row], Any] | None = None
    """How the page sorts; files keep the report's order."""

    @property
    def names(self) -> list[str]:
        return [column.field for column in self.columns if column.field]

    @property
    def shown(self) -> list[Column]:
        """The columns of the page."""
        return [column for column in self.columns if column.heading]

    @property
    def headings(self) -> list[str]:
        return [column.heading for column in self.shown]

    @property
    def numeric(self) -> frozenset[int]:
        """Which columns of the page stand at the right."""
        return frozenset(at for at, column in enumerate(self.shown) if column.is_number)

    def values(self, most: int = MAX_TABLE_ROWS) -> list[tuple[object, ...]]:
        """The page's cells as values."""
        rows = self.rows if self.order is None else sorted(self.rows, key=self.order)
        return [tuple(column.cell(row) for column in self.shown) for row in rows[:most]]

    def cells(self, most: int = MAX_TABLE_ROWS) -> list[tuple[str, ...]]:
        """The page's cells as texts."""
        return [
            tuple(show(cell, column.unit) for cell, column in zip(row, self.shown, strict=True))
            for row in self.values(most)
        ]


def show(value: object, unit: str = "") -> str:
    """A cell's text: ``2,400``, ``6.6``, ``60.3 %``; a dash for what was not measured."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return percent(value) if unit == "share" else number(value)
    return str(value)


def to_arrow(table: Table) -> pa.Table:
    """The rows of the files; a column has the same type in every run."""
    columns = [column for column in table.columns if column.field]
    arrays = [
        pa.array([_typed(row.get(each.field), kind) for row in table.rows], kind)
        for each in columns
        for kind in [_TYPES[each.type]]
    ]
    return pa.table(arrays, names=[column.field for column in columns])


def _typed(cell: object, kind: pa.DataType) -> object:
    if cell is None:
        return None
    if pa.types.is_string(kind):
        return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False)
    return float(cell) if pa.types.is_floating(kind) else cell  # type: ignore[arg-type]


def csv_bytes(table: Table) -> bytes:
    """UTF-8 with a line of names; empty cells for what was not measured."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(table.names)
    for row in to_arrow(table).to_pylist():
        writer.writerow(["" if cell is None else csv_cell(cell) for cell in row.values()])
    return sink.getvalue().encode()


def markdown(table: Table, most: int, plain: Callable[[str], str]) -> list[str]:
    """Lines of a Markdown table; ``plain`` takes out of a text what is markup."""
    lines = [" | ".join(table.headings), " | ".join("---" for _ in table.shown)]
    lines += [" | ".join(plain(cell) for cell in row) for row in table.cells(most)]
    return [f"| {line} |" for line in lines]


def named(columns: Iterable[str], rows: Iterable[Sequence[object]]) -> list[dict[str, Any]]:
    """Rows by name, of tuples in the order of ``columns``."""
    names = list(columns)
    return [dict(zip(names, row, strict=True)) for row in rows]


def seconds(ns: int | None) -> float | None:
    """Nanoseconds as seconds."""
    return None if ns is None else ns / NS


def in_seconds(field: str) -> Callable[[Row], float | None]:
    """The page's cell of a field in milliseconds."""

    def cell(row: Row) -> float | None:
        value = row.get(field)
        return None if value is None or not math.isfinite(value) else value / 1000

    return cell
