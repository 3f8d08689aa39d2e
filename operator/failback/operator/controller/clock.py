"""Clocks that don't jump: how long something takes is not measured on the wall.

Planning gets Unix times, as the API server and other programs write them. Inside a process the age
of what the operator began is kept although the wall clock is set. Only a new process has nothing
but the times in the status to go by.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from failback.operator.planning.plan.encoding import operation_from_status, operation_to_status
from failback.operator.planning.state import instants

_JUMP_SECONDS: Final = 1.0
"""Less than this is the clock being trimmed."""


def _uptime() -> float:
    """Return seconds that count on while the machine sleeps, where the system knows them."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class StableClock:
    """Unix time of the start of the process, and from there on only what really passed."""

    def __init__(self) -> None:
        self._begin = time.time() - _uptime()

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._begin + _uptime()


class Deadlines:
    """Keeps the age of one cluster's running operation while the wall clock jumps."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def kept(self, status: Mapping[str, Any], ahead: float) -> Mapping[str, Any]:
        """Return the status with its operation as old as it really is.

        Args:
            ahead: Seconds that the wall clock is ahead of the stable one now.
        """
        operation = operation_from_status(status)
        if operation is None:
            return status
        jump = ahead - self._seen.setdefault(_text(status), ahead)
        if abs(jump) < _JUMP_SECONDS:
            return status
        moved = instants.moved(operation, lambda at: at + jump)
        return {**status, "currentOperation": operation_to_status(moved)}

    def note(self, before: Mapping[str, Any], planned: Mapping[str, Any], ahead: float) -> None:
        """Remember when the times of a status were made: of the stored one, and of the new."""
        texts = {_text(before): ahead, _text(planned): ahead}
        self._seen = {text: self._seen.get(text, at) for text, at in texts.items() if text}


def _text(status: Mapping[str, Any]) -> str:
    operation = status.get("currentOperation")
    return json.dumps(operation, sort_keys=True) if operation else ""
