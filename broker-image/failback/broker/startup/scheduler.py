"""Periodic work of the broker, on an injected clock.

One scheduler runs its jobs one after another, at a fixed rate: a run that is late is made up for at
once. That is on purpose. In RocketMQ 4.9 offset persistence, registration and the slave's metadata
synchronisation share a single thread. So a name server that does not answer delays the next
persist. How much a failover repeats depends on it.

Source: BrokerController.scheduledExecutorService, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from failback.broker.config.time_scale import TimeScale

logger = logging.getLogger(__name__)

Action = Callable[[], Awaitable[None] | None]


@dataclass(order=True, slots=True)
class Job:
    """A periodic action and when it runs next."""

    due_seconds: float
    order: int
    name: str = field(compare=False)
    period_seconds: float = field(compare=False)
    action: Action = field(compare=False)


class Scheduler:
    """Runs jobs in due order. ``clock`` returns seconds; it never goes back."""

    def __init__(self, clock: Callable[[], float], scale: TimeScale) -> None:
        self._clock = clock
        self._scale = scale
        self._jobs: list[Job] = []
        self._order = itertools.count()

    def every(self, name: str, first_delay_ms: float, period_ms: float, action: Action) -> None:
        """Run ``action`` after ``first_delay_ms``, then every ``period_ms``; both get scaled."""
        job = Job(
            self._clock() + self._scale.seconds(first_delay_ms),
            next(self._order),
            name,
            self._scale.seconds(period_ms),
            action,
        )
        heapq.heappush(self._jobs, job)

    def seconds_to_next(self) -> float | None:
        """Return how long until a job is due, ``None`` without any."""
        return max(0.0, self._jobs[0].due_seconds - self._clock()) if self._jobs else None

    async def run_due(self) -> int:
        """Run what is due now, each once; return how many ran."""
        ran = 0
        now = self._clock()
        while self._jobs and self._jobs[0].due_seconds <= now:
            job = heapq.heappop(self._jobs)
            job.due_seconds += job.period_seconds
            job.order = next(self._order)
            heapq.heappush(self._jobs, job)
            await self._run(job)
            ran += 1
        return ran

    async def _run(self, job: Job) -> None:
        try:
            outcome = job.action()
            if inspect.isawaitable(outcome):
                await outcome
        # A job that fails is tried again at its next time: the others must go on.
        except Exception:
            logger.exception("scheduled job %s failed", job.name)

    async def run(self) -> None:
        """Run jobs until cancelled. Cancelling interrupts a job only where it awaits a peer."""
        while (seconds := self.seconds_to_next()) is not None:
            await asyncio.sleep(seconds)
            await self.run_due()
