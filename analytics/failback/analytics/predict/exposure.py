"""Exposure: what would be redelivered if the master died now, from what is seen instead of phases.

The two faults that cost most while nothing is wrong yet: all members start again after the master's
return, or while only the slave is known. Neither counts what would be consumed afterwards. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from failback.analytics.predict.consumption import in_flight
from failback.analytics.predict.settings import Settings


@dataclass(frozen=True, slots=True)
class Exposure:
    """Messages of one group on one pair, at one instant; ``None`` where no answer is possible."""

    after_return: float
    """Answered by the master's file."""
    on_slave: float | None
    """Answered by the slave's table."""

    @property
    def most(self) -> float:
        """The figure to alert on."""
        return max(self.after_return, self.on_slave or 0.0)


def exposure(settings: Settings, *, file_behind: float, copy_behind: float | None) -> Exposure:
    """Exposure of a group that consumes ``settings.rate`` messages/s.

    Args:
        settings: Of group and pair.
        file_behind: Messages that were committed and are not in the master's file.
        copy_behind: Messages that were committed and are not in the slave's table; ``None``: no
            slave, or it is not known.
    """
    s = settings.scaled()
    lag = _lag(s)
    on_slave = None if copy_behind is None else copy_behind + lag
    after_return = file_behind + lag
    if s.guard_returned_offsets and on_slave is not None:
        after_return = min(after_return, on_slave)
    return Exposure(after_return, on_slave)


def _lag(s: Settings) -> float:
    """What is consumed and not committed, or not finished, on average: λ·c and E[W]."""
    if not s.rate:
        return 0.0  # nothing is under way
    pulled = s.pull_batch_size if s.behind else 1.0
    commits = s.consume_rate * s.persist_consumer_offset_interval / 1000
    uncommitted = min(s.queues * pulled, commits) / 2
    return uncommitted + (in_flight(s) / 2 if s.consume_threads > 1 else 0.0)
