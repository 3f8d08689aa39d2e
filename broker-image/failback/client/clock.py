"""The clocks that a process reads, and the scheduler of its periodic work.

Every interval and every deadline of a client is on the event loop's clock, so a loop with virtual
time drives the whole client. The wall clock only stamps messages and subscription versions.

The reference runs route poll, heartbeat and offset persist of a client on one scheduled thread, so
a slow step delays the others: with a black-holed master every connect delays the next commit by
3 s. In a broker of 4.9 offset persistence, registration and the slave's metadata synchronisation
share a thread, so a name server that does not answer delays the next persist. How much a failover
repeats depends on both.

Source: MQClientInstance.startScheduledTask, BrokerController.scheduledExecutorService,
apache/rocketmq 4.9.8; ScheduledThreadPoolExecutor.scheduleAtFixedRate for a run that is late.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)


class Clock:
    """The process's clocks. ``mono_ns`` is ``CLOCK_MONOTONIC``, as asyncio's loop time is."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def mono_ns(self) -> int:
        """Nanoseconds that order the rows of a consume log; common to all processes of a host."""
        return time.monotonic_ns()

    def now(self) -> float:
        """Seconds on the running loop's clock."""
        return asyncio.get_running_loop().time()


REAL_CLOCK = Clock()


Action = Callable[[], Awaitable[None] | None]


@dataclass(order=True, slots=True)
class Job:
    """A periodic action and when it runs next."""

    due_seconds: float
    number: int
    name: str = field(compare=False)
    period_seconds: float = field(compare=False)
    action: Action = field(compare=False)


class Scheduler:
    """Runs jobs one after another, at fixed rates; a run that is late is made up for at once.

    Args:
        clock: Returns seconds; it never goes back.
        seconds: Makes seconds of an interval in ms: scaled, where the process has a time scale.
    """

    def __init__(
        self, clock: Callable[[], float], seconds: Callable[[float], float] = lambda ms: ms / 1000
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._jobs: list[Job] = []

    def every(self, name: str, first_delay_ms: float, period_ms: float, action: Action) -> None:
        """Run ``action`` after ``first_delay_ms``, then every ``period_ms``."""
        first = self._clock() + self._seconds(first_delay_ms)
        period = self._seconds(max(period_ms, 1.0))
        heapq.heappush(self._jobs, Job(first, len(self._jobs), name, period, action))

    def seconds_to_next(self) -> float | None:
        """Return how long until a job is due, ``None`` without any."""
        return max(0.0, self._jobs[0].due_seconds - self._clock()) if self._jobs else None

    async def run_due(self) -> None:
        """Run what is due now, late runs too."""
        now = self._clock()
        while self._jobs and self._jobs[0].due_seconds <= now:
            job = self._jobs[0]
            job.due_seconds += job.period_seconds
            heapq.heapreplace(self._jobs, job)
            try:
                outcome = job.action()
                if outcome is not None:
                    await outcome
            except Exception:  # it runs again at its next time, and the others go on
                logger.exception("scheduled job %s failed", job.name)

    async def run(self) -> None:
        """Run jobs until cancelled. Cancelling interrupts a job only where it awaits a peer."""
        while (seconds := self.seconds_to_next()) is not None:
            await asyncio.sleep(seconds)
            await self.run_due()
