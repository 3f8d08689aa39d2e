"""Writing queue entries: later than their records, and for each queue several at a time.

An entry says nothing that its record does not say, so a crash loses nothing: recovery makes the
missing ones from the log. What a write costs, on the other hand, hardly depends on how many entries
it has. Where thousands of queues take turns, one write for each message would cost more than
storing it. Every few milliseconds a share of the queues that have something is written. A reader
has its queue written first, so it never sees that entries wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from failback.broker.disk_errors import is_fatal
from failback.broker.store.queues.consume_queue import ConsumeQueue

_TICK_SECONDS: Final = 0.02
_TICKS: Final = 250
"""How many ticks an entry waits at most: each writes this part of the queues that have some."""
_MOST_WAITING: Final = 1024
"""Entries of one queue: more are written at once, memory stays bounded."""


class EntryWriter:
    """Writes what queues have committed. Event loop's thread only.

    Without a running event loop everything is written at once.
    """

    def __init__(self, on_failure: Callable[[OSError], None]) -> None:
        """``on_failure`` is called when the disk refused entries.

        If that passes they wait: :meth:`write_all` tries again.
        """
        self._on_failure = on_failure
        self._waiting: dict[ConsumeQueue, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failed = False

    @property
    def is_waiting(self) -> bool:
        """Whether any entry is not written."""
        return bool(self._waiting)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let entries wait from now on."""
        self._loop = loop

    def stop(self) -> None:
        """Write everything; from now on nothing waits."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.write_all()

    def add(self, queues: Iterable[ConsumeQueue]) -> None:
        """Take queues that have committed entries."""
        if self._loop is None:
            for queue in queues:
                self.write(queue)
            return
        waiting = self._waiting
        for queue in queues:
            if queue.committed_offset - queue.max_offset < _MOST_WAITING:
                waiting[queue] = None
            else:
                self.write(queue)
        if self._timer is None and waiting:
            self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)

    def write(self, queue: ConsumeQueue) -> None:
        """Make what ``queue`` has committed readable; after a failure only what was already."""
        if queue.committed_offset <= queue.max_offset or self._failed:
            return
        try:
            queue.write_committed()
        except OSError as error:
            self._waiting[queue] = None
            self._failed = is_fatal(error)
            self._on_failure(error)

    def write_all(self) -> None:
        """As :meth:`write`, for all queues."""
        self._write(len(self._waiting))

    def _write(self, count: int) -> None:
        """Write those ``count`` queues that have waited longest."""
        waiting = self._waiting
        for queue in list(islice(waiting, count)):
            waiting.pop(queue, None)
            self.write(queue)

    def _tick(self) -> None:
        self._timer = None
        self._write(-(-len(self._waiting) // _TICKS))
        if self._waiting and self._loop is not None:
            self._timer = self._loop.call_later(_TICK_SECONDS, self._tick)
