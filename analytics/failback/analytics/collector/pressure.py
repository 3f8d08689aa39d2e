"""How much may be under way at once: uploads that are received, and bodies that are unpacked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FULL_SHARE: Final = 0.75
SHORTEST_SECONDS: Final = 1
LONGEST_SECONDS: Final = 30


def retry_after_seconds(held: int, bound: int) -> int:
    """1 s where the refusals begin, 30 s when the bound is reached, straight in between."""
    start = FULL_SHARE * bound
    share = 1.0 if bound <= start else (held - start) / (bound - start)
    return round(
        SHORTEST_SECONDS + (LONGEST_SECONDS - SHORTEST_SECONDS) * min(1.0, max(0.0, share))
    )


class UploadBudget:
    """Bytes and number of the uploads under way. For one thread: the event loop's."""

    def __init__(self, bound_bytes: int, bound_uploads: int) -> None:
        self.held_bytes = 0
        self.uploads = 0
        self._bound_bytes = bound_bytes
        self._bound_uploads = bound_uploads

    def take(self, count: int) -> int | None:
        """Reserve ``count`` bytes; the seconds to wait if that cannot be.

        A body is always taken when nothing else is held, however small the bound.
        """
        if self.uploads >= self._bound_uploads:
            return SHORTEST_SECONDS
        if self.uploads and self.held_bytes + count > FULL_SHARE * self._bound_bytes:
            return retry_after_seconds(self.held_bytes + count, self._bound_bytes)
        self.held_bytes += count
        self.uploads += 1
        return None

    def give_back(self, count: int) -> None:
        """The reserved bytes are stored, or were refused."""
        self.held_bytes -= count
        self.uploads -= 1


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
