"""Where pods expect the API server: the Service ``kubernetes`` of the namespace ``default``.

That Service has no endpoints here, and no address of a Service leads anywhere. Its names mean the
node's address instead, whose port passes every connection on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

PORT: Final = 443
_CHUNK_BYTES: Final = 64 * 1024


class ApiService:
    """A port of the node that leads to the API server; TLS goes through as it is."""

    def __init__(self, server: str) -> None:
        """Lead to ``server``, an URL of https with a port."""
        host, _, port = server.removeprefix("https://").partition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> None:
        self._server = await asyncio.start_server(self._pass_on, address, PORT)

    def stop(self) -> None:
        """Take no more connections; those that are open end with the process."""
        if self._server is not None:
            self._server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection(*self._target)
        except OSError:  # it is down: so is this connection
            writer.close()
            return
        await asyncio.gather(_copy(reader, requests), _copy(answers, writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until either side ends, then end the other."""
    with suppress(OSError):
        while chunk := await source.read(_CHUNK_BYTES):
            target.write(chunk)
            await target.drain()
    target.close()
