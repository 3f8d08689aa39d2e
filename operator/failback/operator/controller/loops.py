"""One task per custom resource: wait for a reason, look, act, wait again.

Reasons are events of the resource and its children, answers of peers that differ from the last,
the time a plan asked for, and the resync period.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from failback.operator.controller.passes import Passed, Passes
from failback.operator.planning.observed.observed import Object

logger = logging.getLogger(__name__)

Key = tuple[str, str, str]
"""Kind, namespace and name of a custom resource."""

SETTLE_SECONDS: Final = 0.05
"""The indices change slightly after the event that wakes; a burst of events is one pass."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_STUCK_SECONDS: Final = 300.0
_TURNS: Final = 10
"""Within the poll period resources are looked at in so many turns."""


@dataclass(slots=True)
class _Loop:
    """One resource's task and what it waits for."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    due_at: float = 0.0
    """Monotonic time at which the next pass should have ended."""


def next_look(now: float, next_pass: float, poll_seconds: float) -> float:
    """Return when to look at a resource again: at its next pass or poll, whichever is sooner.

    Polls of many resources fall together, for to wake up costs more than to look.
    """
    turn = poll_seconds / _TURNS
    return max(now, min(next_pass, now // turn * turn + poll_seconds))


class Loops:
    """The tasks of all resources of one process."""

    def __init__(
        self,
        passes: Passes,
        *,
        resync_seconds: float,
        poll_seconds: float,
        exists: Callable[[Key], bool],
        dependents: Callable[[Key], Iterable[Key]],
    ) -> None:
        """Make the loops.

        Args:
            poll_seconds: Peers are asked at least so often for what is due.
            exists: Whether the watches still show a resource.
            dependents: Resources that read what this one's peers answered.
        """
        self._passes = passes
        self._resync_seconds = resync_seconds
        self._poll_seconds = poll_seconds
        self._exists = exists
        self._dependents = dependents
        self._loops: dict[Key, _Loop] = {}

    def wake(self, key: Key) -> None:
        """Give a resource a reason to look; kept even before its task exists."""
        loop = self._loops.get(key)
        if loop is None:
            if not self._exists(key):
                return
            loop = self._loops.setdefault(key, _Loop())
        if not loop.wake.is_set():
            loop.due_at = min(loop.due_at or float("inf"), time.monotonic() + _STUCK_SECONDS)
        loop.wake.set()

    def ensure(self, key: Key) -> None:
        """Start the task of a resource that has none, and wake it."""
        loop = self._loops.setdefault(key, _Loop())
        if loop.task is None or loop.task.done():
            loop.task = asyncio.create_task(self._run(key, loop), name="/".join(key))
        self.wake(key)

    async def on_deleted(self, kind: str, resource: Object) -> None:
        """Post the events about the end of a resource that is gone."""
        await self._passes.on_deleted(kind, resource)

    def late(self) -> dict[Key, float]:
        """Return by how many seconds passes are late that should have ended; none when none is."""
        now = time.monotonic()
        return {
            key: now - loop.due_at
            for key, loop in self._loops.items()
            if loop.due_at and now > loop.due_at
        }

    async def close(self) -> None:
        """End all tasks; a pass that is under way is cut between two of its steps."""
        tasks = [loop.task for loop in self._loops.values() if loop.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: Key, loop: _Loop) -> None:
        pause, passed = 0.0, Passed("ok", wake_after=0.0)
        next_pass = time.monotonic()
        try:
            while True:
                news = await self._passes.refresh(*key)
                if news:
                    for other in self._dependents(key):
                        self.wake(other)
                now = time.monotonic()
                if news or loop.wake.is_set() or now >= next_pass:
                    loop.wake.clear()
                    loop.due_at = now + _STUCK_SECONDS
                    found = await self._passes.run(*key)
                    if found is None:
                        return
                    passed = found
                    pause = self._next_pause(pause, passed)
                    next_pass = time.monotonic() + self._until_next(pause, passed)
                    loop.due_at = next_pass + _STUCK_SECONDS
                await self._wait(loop, next_pass, pause)
        finally:
            if not self._exists(key):
                self._loops.pop(key, None)
                self._passes.forget(*key)

    def _next_pause(self, pause: float, passed: Passed) -> float:
        """Return the back-off after a pass: none, or 1, 2, 4 ... 60 s."""
        if not passed.back_off:
            return 0.0
        if passed.retry_after is not None:
            return passed.retry_after
        return min(_LONGEST_PAUSE, max(_FIRST_PAUSE, pause * 2))

    def _until_next(self, pause: float, passed: Passed) -> float:
        if passed.back_off:
            return pause
        if passed.wake_after is not None:
            return min(passed.wake_after, self._resync_seconds)
        # spread, so that many resources that began together do not pass together for ever
        return self._resync_seconds * random.uniform(0.9, 1.0)

    async def _wait(self, loop: _Loop, next_pass: float, pause: float) -> None:
        """Wait for an event, the next pass or the next poll; a back-off lasts a second at least."""
        if pause:
            await asyncio.sleep(min(pause, _FIRST_PAUSE))
        look_at = next_look(time.monotonic(), next_pass, self._poll_seconds)
        try:
            async with asyncio.timeout_at(look_at):
                await loop.wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(SETTLE_SECONDS)
