"""Work that waits a little, so that it is done once for many records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class LateWork:
    """Does ``work`` some time after it was asked for, or as soon as somebody needs it done.

    Without a running event loop it is done at once.

    Attributes:
        due: Whether there is work that waits.
    """

    __slots__ = ("_loop", "_seconds", "_timer", "_work", "due")

    def __init__(self, work: Callable[[], None], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.due = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let work wait from now on."""
        self._loop = loop

    def stop(self) -> None:
        """Do what is due; from now on nothing waits."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.settle()

    def ask(self) -> None:
        """Note that there is work."""
        if self._loop is None:
            self._work()
            return
        self.due = True
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._late)

    def settle(self) -> None:
        """Do now what is due."""
        if self.due:
            self.due = False
            self._work()

    def _late(self) -> None:
        self._timer = None
        self.settle()
