"""Tables and progress: rich on a terminal, plain lines elsewhere, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from failback.common.text import visible

console = Console(highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """Print one line."""
    console.print(Text(_lines(line)))


def note(line: str) -> None:
    """Print one line to stderr, beside an output that may go into a file."""
    print(_lines(line), file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print a value for machines, on one line."""
    print(json.dumps(value), flush=True)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print rows: a drawn table on a terminal, aligned columns elsewhere.

    An empty cell is a dash, so that columns are the same for programs such as awk. A name that a
    peer brought ends no line and moves no cursor.
    """
    cells = [["-" if cell in (None, "") else visible(str(cell)) for cell in row] for row in rows]
    if console.is_terminal:
        from rich.table import Table

        table = Table(title=title or None)
        for header in headers:
            table.add_column(header)
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        return
    if title:
        print(title)
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    for line_cells in (list(headers), *cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(line_cells, widths, strict=True))
        print(line.rstrip(), flush=True)


def _lines(text: str) -> str:
    """Return a text of lines with escapes for what cannot be seen."""
    return "\n".join(map(visible, text.split("\n")))
