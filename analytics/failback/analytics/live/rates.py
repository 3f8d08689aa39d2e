"""Messages per second from counts that are read again and again. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

RATE_SECONDS: Final = 30.0
"""Six of the intervals at which consumers commit: one more or less changes a rate by a sixth."""
_KEPT: Final = 6
"""Looks that are kept in a window."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Counts(Generic[Key]):
    """Counts that only grow, at one instant in seconds."""

    at: float
    of: Mapping[Key, int]


def rates(previous: Counts[Key], now: Counts[Key]) -> dict[Key, float]:
    """Messages per second of what was counted at both instants and did not fall."""
    elapsed = now.at - previous.at
    if elapsed <= 0:
        return {}
    return {
        key: (count - before) / elapsed
        for key, count in now.of.items()
        if (before := previous.of.get(key)) is not None and count >= before
    }


@dataclass(slots=True)
class RateMeter(Generic[Key]):
    """Rates over the last half minute, of one pair.

    A pair whose timers are scaled commits as much more often: its window shrinks with them. A count
    that fell begins again; until it is known again its rate is the last one.
    """

    seconds: float = RATE_SECONDS
    per_second: dict[Key, float] = field(default_factory=dict)
    last: Counts[Key] | None = None
    _looks: deque[Counts[Key]] = field(default_factory=deque)
    _began: dict[Key, Counts[Key]] = field(default_factory=dict)
    """The first counts of keys that fell, or were new, within the window."""

    def look(self, at: float, counts: Mapping[Key, int], time_scale: float = 1.0) -> None:
        """Take the counts of an instant; instants only grow. What is not counted is forgotten."""
        window = self.seconds * time_scale
        now = Counts(at, dict(counts))
        self._note_beginnings(now)
        while len(self._looks) > 1 and self._looks[1].at <= at - window:
            self._looks.popleft()
        before, first = self.per_second, self._looks[0] if self._looks else now
        found = rates(first, now) if at - first.at >= window / 5 else {}
        for key, since in list(self._began.items()):
            found.pop(key, None)
            if since.at <= first.at:
                del self._began[key]
            if at - since.at >= window / 5:
                found[key] = (now.of[key] - since.of[key]) / (at - since.at)
        self.per_second = {
            key: rate for key in now.of if (rate := found.get(key, before.get(key))) is not None
        }
        if not self._looks or at - self._looks[-1].at >= window / _KEPT:
            self._looks.append(now)
        self.last = now

    def _note_beginnings(self, now: Counts[Key]) -> None:
        before = self.last
        self._began = {key: since for key, since in self._began.items() if key in now.of}
        if before is None:
            return
        for key, count in now.of.items():
            was = before.of.get(key)
            if was is None or count < was:
                self._began[key] = now
