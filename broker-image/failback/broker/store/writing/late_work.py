"""Work that waits a little, so that it is done once for many records, and that never takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_MOST_PASSED: Final = 8
"""How many turns of the loop in a row may bring new work before a share of it is done."""


class LateWork:
    """Does ``work`` some time after it was asked for, or as soon as its result is needed.

    ``work`` does a share, less than a millisecond, and tells whether there is more. What is more
    comes in the next turn of the loop that brings no new work: what brings it goes first. So that
    it is not put off for ever, every ninth turn does a share in any case. Without a running
    event loop everything is done at once.

    Attributes:
        due: Whether there is work that waits.
    """

    __slots__ = ("_asked", "_handle", "_loop", "_passed", "_seconds", "_work", "due")

    def __init__(self, work: Callable[[], bool], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.Handle | None = None
        self._asked = False
        self._passed = 0
        self.due = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let work wait from now on."""
        self._loop = loop

    def stop(self) -> None:
        """Do what is due; from now on nothing waits."""
        self._loop = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.settle()

    def ask(self) -> None:
        """Note that there is work."""
        self.due = self._asked = True
        if self._loop is None:
            self.settle()
        elif self._handle is None:
            self._passed = _MOST_PASSED
            self._handle = self._loop.call_later(self._seconds, self._late)

    def settle(self) -> None:
        """Do now all that is due."""
        while self.due:
            self.share()

    def share(self) -> None:
        """Do now a share of what is due."""
        if self.due:
            self.due = False  # the receiver of a failure may come back here
            self.due = self._work()

    def _late(self) -> None:
        self._handle = None
        if self._loop is None:
            return
        if self._asked and self._passed < _MOST_PASSED:
            self._passed += 1
        else:
            self._passed = 0
            self.share()
        self._asked = False
        if self.due:
            self._handle = self._loop.call_soon(self._late)
