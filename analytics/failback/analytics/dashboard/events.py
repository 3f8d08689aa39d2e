"""Server-sent events: what kind of thing changed, and of which run; the reader fetches it.

Nothing is kept for readers that are away. A reader that comes back fetches its page, as it would
for any event. A slow reader gets each event that it has not read once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

from fastapi.sse import ServerSentEvent

MOST_READERS: Final = 500
CHECK_SECONDS: Final = 15.0
CHANGED: Final = "changed"
Change = tuple[str, str]
"""Kind and run; no run where it belongs to none."""


class _Reader:
    __slots__ = ("changes", "run", "woken")

    def __init__(self, run: str) -> None:
        self.run = run
        self.changes: dict[Change, None] = {}
        self.woken = asyncio.Event()

    def tell(self, change: Change) -> None:
        if not self.run or change[1] in ("", self.run):
            self.changes[change] = None
            self.woken.set()


class EventHub:
    """The readers of events. One event loop owns all of it."""

    def __init__(self, most_readers: int = MOST_READERS) -> None:
        self._most_readers = most_readers
        self._readers: set[_Reader] = set()
        self._closed = False

    @property
    def readers(self) -> int:
        return len(self._readers)

    @property
    def is_full(self) -> bool:
        """Whether one more stream is too many."""
        return len(self._readers) >= self._most_readers

    def publish(self, kind: str, run: str = "") -> None:
        for reader in self._readers:
            reader.tell((kind, run))

    def close(self) -> None:
        """End every stream: the server stops."""
        self._closed = True
        for reader in self._readers:
            reader.woken.set()

    async def stream(
        self,
        run: str = "",
        check_seconds: float = CHECK_SECONDS,
        allowed: Callable[[], bool] = lambda: True,
    ) -> AsyncGenerator[ServerSentEvent]:
        """Events for one reader, of one run if it is named, until it goes or the hub is closed.

        ``allowed`` is asked about once in ``check_seconds``: a token may be revoked meanwhile.
        """
        checked = time.monotonic()
        reader = _Reader(run)
        self._readers.add(reader)
        try:
            yield ServerSentEvent(comment="connected")
            while not self._closed:
                if time.monotonic() - checked >= check_seconds:
                    checked = time.monotonic()
                    if not allowed():
                        return
                try:
                    async with asyncio.timeout(check_seconds):
                        await reader.woken.wait()
                except TimeoutError:
                    continue
                reader.woken.clear()
                changes, reader.changes = reader.changes, {}
                for kind, of_run in changes:
                    yield ServerSentEvent(event=CHANGED, data={"kind": kind, "run": of_run})
        finally:
            self._readers.discard(reader)
