"""Tables and progress: rich on a terminal, plain lines elsewhere, JSON for machines."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from failback.common.text import visible

FRAME: Final = 3
"""What a drawn table adds to each column."""
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


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows: a drawn table on a terminal, aligned columns elsewhere.

    Where a terminal is too narrow for the table each row is a card: no name is cut.
    An empty cell is a dash, so that columns are the same for programs such as awk. A name that a
    peer brought ends no line and moves no cursor.
    """
    cells = [["-" if cell in (None, "") else visible(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    if console.is_terminal and sum(widths) + FRAME * len(widths) >= console.width:
        name_width = max(map(len, headers[1:]), default=0)
        for first, *rest in cells:
            say(first)
            for header, cell in zip(headers[1:], rest, strict=True):
                say(f"  {header:{name_width}}  {cell}")
        return
    if console.is_terminal:
        table = Table()
        for header in headers:
            table.add_column(header)
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        return
    for line_cells in (list(headers), *cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(line_cells, widths, strict=True))
        print(line.rstrip(), flush=True)


def _lines(text: str) -> str:
    """Return a text of lines with escapes for what cannot be seen."""
    return "\n".join(map(visible, text.split("\n")))


class Board:
    """What each of several jobs said last. Thread-safe."""

    def __init__(self, names: Sequence[str], *, silent: bool = False) -> None:
        self._started = time.monotonic()
        self._last = dict.fromkeys(names, "")
        self._ended: dict[str, float] = {}
        self._lock = threading.Lock()
        self._silent = silent
        self._drawn = console.is_terminal and not silent

    def tell(self, name: str, line: str) -> None:
        """Show ``line`` as what ``name`` does now."""
        with self._lock:
            self._last[name] = line
            if not self._drawn and not self._silent:
                say(f"{time.monotonic() - self._started:6.1f} s  {name}: {line}")

    def end(self, name: str) -> None:
        """Stop the clock of ``name``."""
        with self._lock:
            self._ended[name] = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw the board while the block runs, on a terminal."""
        if not self._drawn:
            yield
            return
        with Live(get_renderable=self._table, console=console, refresh_per_second=5):
            yield

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        now = time.monotonic()
        with self._lock:
            for name, line in self._last.items():
                seconds = self._ended.get(name, now) - self._started
                table.add_row(Text(name, style="bold"), f"{seconds:5.0f} s", Text(line))
        return table
