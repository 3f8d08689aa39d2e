"""Tables and progress: rich on a terminal, plain lines elsewhere, JSON for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

console = Console(highlight=False, soft_wrap=True)


def say(line: str) -> None:
    """Print one line."""
    console.print(Text(line))


def note(line: str) -> None:
    """Print one line to stderr, beside an output that may go into a file."""
    print(line, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print a value for machines, on one line."""
    print(json.dumps(value), flush=True)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """Print rows: a drawn table on a terminal, aligned columns elsewhere.

    An empty cell is a dash, so that columns are the same for programs such as awk.
    """
    cells = [["-" if cell in (None, "") else str(cell) for cell in row] for row in rows]
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
