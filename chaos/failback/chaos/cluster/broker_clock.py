"""What the wall clock of a broker says, from its answers to code 28.

``runtime`` is the time since ``bootTimestamp`` in whole seconds, by the broker's own wall clock. So
the clock is known at the instant at which the text changes.
"""

from __future__ import annotations

import re
import time
from typing import Final

from failback.chaos.cluster.broker_facts import boot_time
from failback.chaos.cluster.wire import WireConnection
from failback.protocol.errors import UnreadableAnswer

_PARTS: Final = re.compile(r"(-?\d+) days, (-?\d+) hours, (-?\d+) minutes, (-?\d+) seconds")
_UNITS: Final = (86400, 3600, 60, 1)
_PERIOD_SECONDS: Final = 0.01
_CHANGE_SECONDS: Final = 3.0
"""The text changes once a second, around the start once in two."""


def clock_shift_ms(address: str) -> float:
    """Return how far a broker's wall clock is ahead of ours; a reading is some 10 ms off.

    Raises:
        FailbackError: It does not answer, or not with what code 28 holds.
    """
    with WireConnection(address) as connection:
        deadline = time.monotonic() + _CHANGE_SECONDS
        before, first = 0.0, None
        while time.monotonic() < deadline:
            answer = connection.runtime_info(timeout=1.0)
            at, seconds = time.time(), uptime_seconds(answer.get("runtime", ""))
            boot_ms = boot_time(answer)
            if boot_ms is None or seconds is None:
                break
            if first is not None and seconds != first:
                return boot_ms + reached(seconds) * 1e3 - (before + at) * 500
            before, first = at, seconds
            time.sleep(_PERIOD_SECONDS)
    raise UnreadableAnswer(address, "its uptime does not change")


def uptime_seconds(text: str) -> int | None:
    """Return the whole seconds of an uptime; ``None`` if it is none."""
    found = _PARTS.search(text)
    if found is None:
        return None
    return sum(int(part) * unit for part, unit in zip(found.groups(), _UNITS, strict=True))


def reached(seconds: int) -> int:
    """Return the uptime at the instant at which its text became ``seconds``: it is cut to 0."""
    return seconds if seconds > 0 else seconds - 1
