"""The clocks that a client reads, and the periodic tasks of an instance.

Every interval and every deadline is on the event loop's clock, so a loop with virtual time drives
the whole client. The wall clock only stamps messages and subscription versions.

The reference runs route poll, heartbeat and offset persist on one scheduled thread, so a slow step
delays the others: with a black-holed master every connect delays the next commit by 3 s. That delay
is part of what is measured. ``single=False`` runs each task on its own, for comparison.

Source: MQClientInstance.startScheduledTask, apache/rocketmq 4.9.8;
ScheduledThreadPoolExecutor.scheduleAtFixedRate for a run that is late.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

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


Job = Callable[[], Awaitable[None]]


@dataclass(order=True, slots=True)
class _Entry:
    due: float
    number: int
    period: float = field(compare=False)
    name: str = field(compare=False)
    job: Job = field(compare=False)


class FixedRateScheduler:
    """Runs jobs at fixed rates relative to :meth:`run`'s begin; late runs follow at once."""

    def __init__(self, *, single: bool) -> None:
        self._single = single
        self._entries: list[_Entry] = []

    def add(self, name: str, first_ms: float, period_ms: float, job: Job) -> None:
        """Register a job before :meth:`run`."""
        period = max(period_ms, 1.0) / 1000
        self._entries.append(_Entry(first_ms / 1000, len(self._entries), period, name, job))

    async def run(self) -> None:
        """Run for ever."""
        begin = asyncio.get_running_loop().time()
        for entry in self._entries:
            entry.due += begin
        if self._single:
            await self._run_one_after_the_other(self._entries)
        else:
            async with asyncio.TaskGroup() as group:
                for entry in self._entries:
                    group.create_task(self._run_one_after_the_other([entry]))

    async def _run_one_after_the_other(self, heap: list[_Entry]) -> None:
        loop = asyncio.get_running_loop()
        heapq.heapify(heap)
        while heap:
            entry = heap[0]
            delay = entry.due - loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            try:
                await entry.job()
            except Exception:  # a job that fails runs again at its next time
                logger.exception("scheduled task %s failed", entry.name)
            heapq.heapreplace(heap, replace(entry, due=entry.due + entry.period))
