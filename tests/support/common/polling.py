"""Waiting in tests: poll a condition up to a deadline, never sleep for a fixed time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

SCALE = float(os.environ.get("FAILBACK_TEST_TIME_SCALE", "1"))
"""Multiplies every deadline, for slow machines."""


async def until(condition: Callable[[], object], what: str, seconds: float = 10) -> None:
    """Return once ``condition`` is true; fail with ``what`` after the deadline."""
    deadline = time.monotonic() + seconds * SCALE
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds * SCALE:g} s: {what}"
        await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30) -> None:
    """The same without an event loop, for tests of processes."""
    deadline = time.monotonic() + seconds * SCALE
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds * SCALE:g} s: {what}"
        time.sleep(0.05)
