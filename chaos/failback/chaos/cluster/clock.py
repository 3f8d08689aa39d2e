"""The clocks of the harness host. Apart from the view, so that the view stays pure."""

from __future__ import annotations

import time

from failback.chaos.cluster.view import Stamp


def now() -> Stamp:
    """Both clocks, read next to each other."""
    return Stamp(time.time_ns(), time.monotonic_ns())
