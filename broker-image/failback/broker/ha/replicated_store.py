"""The message store as replication sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class HaStore(Protocol):
    """What replication needs of a message store; offsets are bytes in the commit log."""

    @property
    def max_physical_offset(self) -> int:
        """End of the log: the physical offset of the next byte."""

    def dispatch_behind_bytes(self) -> int:
        """Return how much of the log is not dispatched (slave): the beginning of a record."""

    def dispatch_until_stuck(self) -> int | None:
        """Dispatch all that came; return where the log (of a slave) stops making sense, or None."""

    def read_raw(self, physical_offset: int, max_bytes: int, /) -> memoryview:
        """Bytes at ``physical_offset``, within one file; empty where the log has none."""

    def append_raw(self, physical_offset: int, data: bytes | memoryview, /) -> None:
        """Append bytes of one file at the log's end and dispatch them (slave)."""

    def add_append_listener(self, listener: Callable[[], None], /) -> None:
        """Call ``listener`` after every append."""
