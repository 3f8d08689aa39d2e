"""Peace with other field managers: what they change of ours is undone, and told now and then."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from failback.kube.errors import ApiError

_QUIET_SECONDS: Final = 3600.0
"""The same manager of the same object is told of so seldom."""
_BURST: Final = 5
_BURST_SECONDS: Final = 60.0
_PAUSE: Final = 10.0
"""A manager that writes back at once, five times in a minute, is written over so seldom."""
_NAMED: Final = re.compile(r'conflict with "([^"]*)"')


@dataclass(slots=True)
class _Dispute:
    """What is remembered of one other manager at one object."""

    forced: deque[float] = field(default_factory=lambda: deque(maxlen=_BURST))
    told_at: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do about one conflict."""

    manager: str
    fields: tuple[str, ...]
    wait: float
    """Seconds until it is to be forced; 0 = now."""
    tell: bool


class Conflicts:
    """Every conflict is forced; a manager that never gives way is forced every ten seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._disputes: dict[tuple[str, str, str, str], _Dispute] = {}

    def judge(self, kind: str, namespace: str, name: str, error: ApiError) -> Judgement:
        """Return what to do about a refused apply."""
        manager = ""
        for cause in error.causes:
            match = _NAMED.search(str(cause.get("message", "")))
            if match:
                manager = match[1]
                break
        fields = tuple(str(cause.get("field", "")) for cause in error.causes)
        now = self._clock()
        dispute = self._disputes.setdefault((kind, namespace, name, manager), _Dispute())
        times = dispute.forced
        fights = len(times) == _BURST and now - times[0] < _BURST_SECONDS
        wait = max(0.0, times[-1] + _PAUSE - now) if fights else 0.0
        if not wait:
            times.append(now)
        tell = dispute.told_at is None or now - dispute.told_at >= _QUIET_SECONDS
        if tell:
            dispute.told_at = now
        return Judgement(manager, fields, wait, tell)
