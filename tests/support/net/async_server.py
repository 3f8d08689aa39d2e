"""What servers of tests on the event loop share."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod


class Served(ABC):
    """Serves each connection in a task of its own; :meth:`close` ends them all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """For :func:`asyncio.start_server`."""
        task = asyncio.create_task(self.serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends."""

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
