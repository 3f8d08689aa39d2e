"""What servers of tests on the event loop share."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress


class Served(ABC):
    """Serves each connection in a task of its own; :meth:`close` ends them all."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.writers: set[asyncio.StreamWriter] = set()
        """Of each connection so far; a server that connects further adds its own."""

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """For :func:`asyncio.start_server`."""
        self.writers.add(writer)
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
        # A task that ends before its first step closes nothing, and a peer that reads nothing
        # keeps a closed connection open: its bytes are still to be written.
        for writer in self.writers:
            writer.transport.abort()
        for writer in self.writers:
            with suppress(OSError):
                await writer.wait_closed()
