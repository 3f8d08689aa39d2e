"""When changes are written: together, one write at a time and at most one in 100 ms, off the loop.

The first change after a pause is written at once. Where much was written, the pause grows: 32 MB
are written as they come, from then on 8 MB a second. Without an event loop each is written at once.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

PAUSE_SECONDS: Final = 0.1
_BURST_BYTES: Final = 32 * 10**6
_BYTES_PER_SECOND: Final = 8 * 10**6


class Write(NamedTuple):
    """What a thread does, and what the loop does with its error afterwards.

    ``work`` returns how many bytes it wrote.
    """

    work: Callable[[], int]
    done: Callable[[Exception | None], None]


class MustWait(Exception, ABC):
    """A request goes on when something is written, and has done nothing so far.

    Attributes:
        count: How many names it brings.
    """

    count = 0

    @abstractmethod
    def order(self) -> Sequence[asyncio.Future[None]]:
        """Have it written; return what is done when it is, or can't be."""


class JoinedWrites:
    """Has ``take`` called for a write of the newest state whenever :meth:`wake` asked for one."""

    def __init__(self, take: Callable[[], Write]) -> None:
        self.pause_seconds = PAUSE_SECONDS
        self._take = take
        self._is_due = False
        self._task: asyncio.Task[None] | None = None
        self._next = self._owed = self._owed_at = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written, nor waits for it."""
        return self._task is None

    def wake(self) -> None:
        """Have the newest state written soon."""
        self._is_due = True
        if self._task is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._is_due = False
            write = self._take()
            write.done(_tried(write)[1])
        else:
            self._task = loop.create_task(self._run(loop), name="write a table")

    async def settled(self) -> None:
        """Return when all is written that was asked for, or has failed."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while self._is_due:
                await asyncio.sleep(self._next - loop.time())
                self._is_due = False
                write, now = self._take(), loop.time()
                size, error = await asyncio.to_thread(_tried, write)
                paid = (now - self._owed_at) * _BYTES_PER_SECOND
                self._owed, self._owed_at = max(0.0, self._owed - paid) + size, now
                late = (self._owed - _BURST_BYTES) / _BYTES_PER_SECOND
                self._next = now + max(self.pause_seconds, late)
                write.done(error)
        finally:
            self._task = None


def _tried(write: Write) -> tuple[int, Exception | None]:
    try:
        return write.work(), None
    except Exception as error:  # every request that waits has to hear of it
        return 0, error
