"""Progress of things that run side by side: one live row each, or plain lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.live import Live
from rich.table import Table
from rich.text import Text

from failback.cli.shared.output import console, say


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
