"""Server-sent events: a ring to resume from, and a bounded queue per reader.

Ids count from 1 and grow by one. A reader that names the last id it saw gets the events after it,
or ``reset`` when the ring no longer has them. A reader that is too slow gets ``overrun`` and
nothing more. One event loop owns all of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

RING: Final = 10_000
QUEUE: Final = 1_000
MOST_READERS: Final = 500
"""Open streams; each may hold a whole queue of events."""
PING_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Event:
    """One event; ``run`` is empty for what belongs to no run."""

    number: int
    kind: str
    run: str
    data: Mapping[str, Any]

    def text(self) -> str:
        return sse(self.kind, {"run": self.run, **self.data}, self.number)


def sse(kind: str, data: Mapping[str, Any], number: int | None = None) -> str:
    """One event on the wire. JSON has no line breaks, so one data line is enough."""
    head = "" if number is None else f"id: {number}\n"
    return f"{head}event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


class _Reader:
    __slots__ = ("overrun", "queue", "run")

    def __init__(self, run: str, limit: int) -> None:
        self.run = run
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue(limit)
        self.overrun = False

    def offer(self, event: Event) -> None:
        if self.overrun or (self.run and event.run not in ("", self.run)):
            return
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            self.overrun = True


class EventHub:
    """Everything that is published, and who listens."""

    def __init__(
        self, ring: int = RING, queue: int = QUEUE, most_readers: int = MOST_READERS
    ) -> None:
        self._ring: deque[Event] = deque(maxlen=ring)
        self._queue = queue
        self._most_readers = most_readers
        self._readers: set[_Reader] = set()
        self._last = 0
        self._closed = False

    @property
    def readers(self) -> int:
        return len(self._readers)

    @property
    def is_full(self) -> bool:
        """Whether one more stream is too many."""
        return len(self._readers) >= self._most_readers

    def publish(self, kind: str, data: Mapping[str, Any], run: str = "") -> None:
        self._last += 1
        event = Event(self._last, kind, run, data)
        self._ring.append(event)
        for reader in self._readers:
            reader.offer(event)

    def close(self) -> None:
        """End every stream: the server stops."""
        self._closed = True
        for reader in self._readers:
            if reader.queue.full():
                reader.overrun = True
            else:
                reader.queue.put_nowait(None)

    def since(self, last_id: int, run: str = "") -> list[Event] | None:
        """What came after ``last_id``; ``None`` when that cannot be said any more."""
        first = self._ring[0].number if self._ring else self._last + 1
        if last_id > self._last or last_id < first - 1:
            return None
        return [
            each
            for each in self._ring
            if each.number > last_id and (not run or each.run in ("", run))
        ]

    async def stream(
        self,
        run: str = "",
        last_id: int | None = None,
        ping_seconds: float = PING_SECONDS,
        allowed: Callable[[], bool] = lambda: True,
    ) -> AsyncIterator[str]:
        """Texts for one reader, until it goes, lags behind, or the hub is closed.

        ``allowed`` is asked about once in ``ping_seconds``: a token may be taken away meanwhile.
        """
        checked = time.monotonic()
        reader = _Reader(run, self._queue)
        self._readers.add(reader)
        try:
            missed = [] if last_id is None else self.since(last_id, run)
            if missed is None:
                yield sse("reset", {"last": self._last}, self._last)
            else:
                yield ": connected\n\n"
                for event in missed:
                    yield event.text()
            while not (self._closed and reader.queue.empty()):
                if reader.overrun and reader.queue.empty():
                    yield sse("overrun", {"last": self._last})
                    return
                if time.monotonic() - checked >= ping_seconds:
                    checked = time.monotonic()
                    if not allowed():
                        return
                try:
                    async with asyncio.timeout(ping_seconds):
                        found = await reader.queue.get()
                except TimeoutError:
                    yield sse("ping", {})
                    continue
                if found is None:
                    return
                yield found.text()
        finally:
            self._readers.discard(reader)
