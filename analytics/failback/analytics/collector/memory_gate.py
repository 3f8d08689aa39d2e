"""Lets as much be unpacked at the same time as memory is meant for; the others wait their turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class MemoryGate:
    """A bound in bytes for threads. One that asks for more than the bound gets it alone."""

    def __init__(self, bound_bytes: int) -> None:
        self._bound = bound_bytes
        self._held = 0
        self._freed = threading.Condition()

    @contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Wait until ``count`` bytes are free, and hold them."""
        with self._freed:
            self._freed.wait_for(lambda: self._held == 0 or self._held + count <= self._bound)
            self._held += count
        try:
            yield
        finally:
            with self._freed:
                self._held -= count
                self._freed.notify_all()
