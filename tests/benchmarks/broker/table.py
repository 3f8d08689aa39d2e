"""Verdicts of the broker's tables in short, and sizes as they show them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.benchmarks.documents import Table

SHORT: Final[tuple[tuple[str, str, dict[str, str], str], ...]] = (
    ("Sends, 64 threads, ASYNC_MASTER: messages/s", "(a)", {"threads": "64", "batch": "1"}, "rate"),
    ("The same: CPU per message", "(a)", {"threads": "64", "batch": "1"}, "CPU"),
    ("Sends, 64 threads, SYNC_MASTER: messages/s", "(b)", {"threads": "64", "batch": "1"}, "rate"),
    ("Push consumption: messages/s", "Push consumption", {}, "rate"),
    (
        "A new slave copies the log: bytes/s",
        "A fresh slave",
        {"master": "ours", "slave": "ours"},
        "",
    ),
    ("Memory of a broker at rest", "At rest", {"figure": "anonymous memory of a broker, MiB"}, ""),
)
"""What people ask first: words, table, row and which of its ratios."""
_RATIO: Final = ("ours/Apache", "ratio to two of Apache")


def in_short(tables: Sequence[Table], body: str = "1 KiB") -> str:
    """Return a table of the ratios that people ask for first, without targets."""
    short = Table("", ("with bodies of 1 KiB", "Failback / Apache"))
    for words, title, wanted, figure in SHORT:
        for table in tables:
            if table.title.startswith(title) and (found := _ratio(table, wanted, figure, body)):
                short.rows.append([words, found])
                break
    return short.markdown().partition("\n\n")[2]


def _ratio(table: Table, wanted: Mapping[str, str], figure: str, body: str) -> str:
    """Return the ratio in the row that has all ``wanted`` cells; nothing where there is none."""
    for row in table.rows:
        named = dict(zip(table.columns, row, strict=True))
        if named.get("body", body) != body or wanted.items() - named.items():
            continue
        for column, cell in named.items():
            if column.startswith(figure) and column.endswith(_RATIO):
                return cell.split()[0]
    return ""


def size(count: int) -> str:
    """Return a number of bytes in the unit that leaves it whole."""
    for unit, bytes_of in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_of and count % bytes_of == 0:
            return f"{count // bytes_of} {unit}"
    return f"{count} B"
