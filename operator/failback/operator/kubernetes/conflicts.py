"""Peace with other field managers: when a conflict is forced, told, or left alone for a while."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from failback.kube.errors import ApiError

_FIRST_PAUSE: Final = 60.0
_LONGEST_PAUSE: Final = 3600.0
_NAMED: Final = re.compile(r'conflict with "([^"]*)"')


@dataclass(slots=True)
class _Dispute:
    """What is remembered of one other manager at one object."""

    count: int = 0
    forced_at: float = 0.0
    told_at: float | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do about one conflict."""

    manager: str
    fields: tuple[str, ...]
    force: bool
    tell: bool


class Conflicts:
    """The first conflict with a manager is forced; repeated ones wait 1, 2, 4 ... 60 minutes."""

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
        key = (kind, namespace, name, manager)
        dispute = self._disputes.setdefault(key, _Dispute())
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** max(0, dispute.count - 2))
        if dispute.count and now - dispute.forced_at > 2 * _LONGEST_PAUSE:
            dispute.count = 0
        force = dispute.count < 1 or now - dispute.forced_at >= pause
        tell = dispute.told_at is None or now - dispute.told_at >= _LONGEST_PAUSE
        if force:
            dispute.count += 1
            dispute.forced_at = now
        if tell:
            dispute.told_at = now
        return Judgement(manager, fields, force, tell)
