"""Work that waits a little, so that it is done once for many records, and that never takes long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_REST_FACTOR: Final = 7
"""While new work keeps coming, how long to rest after a share, as a multiple of what it took."""


class LateWork:
    """Does ``work`` some time after it was asked for, or as soon as somebody needs it done.

    ``work`` does a share, a millisecond or two, and tells whether there is more. What is more comes
    at once while nobody brings new work; else what brings it goes first and this takes an eighth of
    the time. Without a running event loop everything is done at once.

    Attributes:
        due: Whether there is work that waits.
    """

    __slots__ = ("_asked", "_loop", "_seconds", "_timer", "_work", "due")

    def __init__(self, work: Callable[[], bool], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False
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
        self.due = self._asked = True
        if self._loop is None:
            self.settle()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._late)

    def settle(self) -> None:
        """Do now all that is due."""
        while self.due:
            self.share()

    def share(self) -> None:
        """Do now a share of what is due."""
        if self.due:
            self.due = False  # whoever is told of a failure may come back here
            self.due = self._work()

    def _late(self) -> None:
        self._timer = None
        loop, asked = self._loop, self._asked
        if loop is None:
            return
        self._asked = False
        began = time.monotonic()
        self.share()
        if self.due:
            rest = (time.monotonic() - began) * _REST_FACTOR if asked else 0
            self._timer = loop.call_later(rest, self._late)
