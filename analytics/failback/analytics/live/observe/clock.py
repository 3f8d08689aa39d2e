"""The clock of looks: nobody sets it, and it goes on while the machine sleeps."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds() -> float:
    """Return its reading, which means something until the machine starts anew."""
    return time.clock_gettime(_CLOCK)
