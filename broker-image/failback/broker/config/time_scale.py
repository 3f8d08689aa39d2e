"""The one place where ``failbackTimeScale`` changes an interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Multiplies every interval of the broker, fixed first delays included.

    A factor of 0.1 makes a run ten times as fast. Scaling one interval alone would change which
    messages a failover repeats, so nothing in the broker sleeps or schedules past this class.
    """

    factor: float = 1.0

    def seconds(self, interval_ms: float) -> float:
        """Return the scaled interval in seconds."""
        return interval_ms * self.factor / 1000

    def ms(self, interval_ms: float) -> int:
        """Return the scaled interval in whole milliseconds, at least 1 for a positive one."""
        scaled = round(interval_ms * self.factor)
        return max(scaled, 1) if interval_ms > 0 else scaled
