"""A proxy before a broker that loses one answer, when the broker has done what it was asked."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from failback.protocol.command import RemotingCommand
from failback.protocol.frames import FrameReader
from tests.support.net.async_server import Served


class LosingProxy(Served):
    """Forwards frames; keeps the first answer to ``code`` after :meth:`arm` to itself.

    When it has that answer it calls ``on_lost``, which kills the broker, and closes the client's
    connection. Connections made while no broker listens wait until one does.
    """

    def __init__(self, backend: tuple[str, int], on_lost: Callable[[], None]) -> None:
        super().__init__()
        self._backend = backend
        self._on_lost = on_lost
        self._code: int | None = None
        self.lost = 0

    def arm(self, code: int) -> None:
        """Lose the answer to the next request with this code."""
        self._code = code

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back_reader, back_writer = await self._connect()
            try:
                await self._exchange(reader, writer, back_reader, back_writer)
            finally:
                back_writer.transport.abort()
        finally:
            writer.transport.abort()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back_reader: asyncio.StreamReader,
        back_writer: asyncio.StreamWriter,
    ) -> None:
        watched: set[int] = set()
        forward = asyncio.create_task(self._forward(reader, back_writer, watched))
        try:
            await self._give_back(back_reader, writer, watched)
        finally:
            forward.cancel()
            await asyncio.wait([forward])

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            try:
                return await asyncio.open_connection(*self._backend)
            except OSError:
                await asyncio.sleep(0.05)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watched: set[int]
    ) -> None:
        while (data := await _read_frame(reader)) is not None:
            request = _decode(data)
            if request.code == self._code and not request.is_response:
                watched.add(request.opaque)
            writer.write(data)
        writer.close()

    async def _give_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, watched: set[int]
    ) -> None:
        while (data := await _read_frame(reader)) is not None:
            answer = _decode(data)
            if answer.is_response and answer.opaque in watched and self._code is not None:
                self._code = None
                self.lost += 1
                self._on_lost()
                return
            writer.write(data)


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """Return a frame with its length, ``None`` at the end."""
    try:
        head = await reader.readexactly(4)
        return head + await reader.readexactly(struct.unpack(">i", head)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def _decode(data: bytes) -> RemotingCommand:
    frames = FrameReader()
    frames.receive_data(data)
    frame = frames.next_frame()
    assert frame is not None
    return RemotingCommand.from_frame(frame)


@asynccontextmanager
async def losing_proxy(
    host: str, port: int, backend: tuple[str, int], on_lost: Callable[[], None]
) -> AsyncIterator[LosingProxy]:
    """Listen at ``host``, ``port`` for the broker at ``backend``."""
    proxy = LosingProxy(backend, on_lost)
    server = await asyncio.start_server(proxy.accept, host, port)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
