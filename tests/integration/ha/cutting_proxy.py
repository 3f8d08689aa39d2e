"""A TCP proxy that breaks connections after a given number of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

from tests.support.net.async_server import Served


class CuttingProxy(Served):
    """Forwards to ``port`` on loopback; each connection is cut by the next of ``budgets``.

    A budget counts the bytes sent back to the client. Without budgets left, nothing is cut.
    """

    def __init__(self, port: int, budgets: Iterator[int]) -> None:
        super().__init__()
        self._port = port
        self._budgets = budgets
        self.cuts = 0
        self.forwarded_bytes = 0
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.writers.add(back_writer)
        budget = next(self._budgets, None)
        forward = asyncio.create_task(self._pipe(reader, back_writer, None))
        try:
            await self._pipe(back_reader, writer, budget)
        finally:
            forward.cancel()
            writer.transport.abort()
            back_writer.transport.abort()
            with suppress(asyncio.CancelledError):
                await forward

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if budget is not None and len(data) >= budget:
                    writer.write(data[:budget])
                    await writer.drain()
                    writer.close()  # what was written arrives, then the end
                    await writer.wait_closed()
                    self.cuts += 1
                    return
                if budget is not None:
                    budget -= len(data)
                self.forwarded_bytes += len(data)
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def cutting_proxy(port: int, budgets: Iterator[int]) -> AsyncIterator[CuttingProxy]:
    """Run a proxy before ``port``; its own is ``proxy.address``."""
    proxy = CuttingProxy(port, budgets)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
