"""The two clocks a client reads, behind one object that tests replace.

Every interval and every deadline is on the event loop's clock, so a loop with virtual time drives
the whole client. The wall clock only stamps messages and subscription versions.
"""

from __future__ import annotations

import asyncio
import time


class Clock:
    """The process's clocks. ``mono_ns`` is ``CLOCK_MONOTONIC``, as asyncio's loop time is."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def mono_ns(self) -> int:
        """Nanoseconds that order the rows of a consume log; common to all processes of a host."""
        return time.monotonic_ns()

    def now(self) -> float:
        """Seconds on the running loop's clock."""
        return asyncio.get_running_loop().time()


REAL_CLOCK = Clock()
