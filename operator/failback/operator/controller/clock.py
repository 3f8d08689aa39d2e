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

from failback.operator.planning.plan.encoding import (
    operations_from_status,
    operations_to_status,
    stored_operations,
)
from failback.operator.planning.plan.types import Operation
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
    """Keeps the ages of one cluster's operations while the wall clock jumps."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def kept(self, status: Mapping[str, Any], ahead: float) -> Mapping[str, Any]:
        """Return the status with its operations as old as they really are.

        Args:
            ahead: Seconds that the wall clock is ahead of the stable one now.
        """
        found, jumped = [], False
        stored = stored_operations(status)
        for item, operation in zip(stored, operations_from_status(status), strict=True):
            jump = ahead - self._seen.setdefault(_text(item), ahead)
            jumped = jumped or abs(jump) >= _JUMP_SECONDS
            found.append(_moved(operation, jump) if jumped else operation)
        return {**status, **operations_to_status(found)} if jumped else status

    def note(self, before: Mapping[str, Any], planned: Mapping[str, Any], ahead: float) -> None:
        """Remember when the times of a status were made: of the stored one, and of the new."""
        stored = [*stored_operations(before), *stored_operations(planned)]
        self._seen = {text: self._seen.get(text, ahead) for text in map(_text, stored)}


def _moved(operation: Operation, seconds: float) -> Operation:
    return instants.moved(operation, lambda at: at + seconds)


def _text(operation: Mapping[str, Any]) -> str:
    return json.dumps(operation, sort_keys=True)
