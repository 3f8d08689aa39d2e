"""The periodic tasks of a client instance, on one "thread" or on one each.

The reference runs route poll, heartbeat and offset persist on one scheduled thread, so a slow step
delays the others: with a black-holed master every connect costs the next commit 3 s. That is part
of what is measured; ``single=False`` shows what it costs.

Source: MQClientInstance.startScheduledTask, apache/rocketmq 4.9.8;
ScheduledThreadPoolExecutor.scheduleAtFixedRate for what happens when a run is late.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

logger = logging.getLogger(__name__)

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
