"""Puts that wait for a slave: HAService.GroupTransferService as a decision, without its thread.

SYNC_MASTER answers a put once a slave has acknowledged its last byte. Who waits is kept here in
order of arrival; an acknowledgement, or the clock, releases from the front, as the one service
thread of the original does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class Waiting(NamedTuple):
    """One put that waits for replication."""

    end_offset: int
    deadline_ms: float
    done: Callable[[bool], None]
    """Called once: true when replicated, false when the deadline passed (FLUSH_SLAVE_TIMEOUT)."""


class GroupTransfer:
    """The puts waiting for a slave, oldest first. ``end_offset`` never decreases along it."""

    __slots__ = ("_timeout_ms", "_waiting")

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_deadline_ms(self) -> float | None:
        """When :meth:`expire` has something to do next."""
        return self._waiting[0].deadline_ms if self._waiting else None

    def wait(self, end_offset: int, now_ms: float, done: Callable[[bool], None]) -> None:
        """Call ``done`` when a slave holds every byte below ``end_offset``, or too late."""
        self._waiting.append(Waiting(end_offset, now_ms + self._timeout_ms, done))

    def acknowledge(self, ack_offset: int) -> None:
        """Release every put that ``ack_offset`` (push2SlaveMaxOffset) covers."""
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= ack_offset:
            waiting.popleft().done(True)

    def expire(self, now_ms: float) -> None:
        """Release the puts whose deadline has passed."""
        waiting = self._waiting
        while waiting and waiting[0].deadline_ms <= now_ms:
            waiting.popleft().done(False)

    def cancel(self) -> None:
        """Release everybody as not replicated: the broker stops."""
        while self._waiting:
            self._waiting.popleft().done(False)
