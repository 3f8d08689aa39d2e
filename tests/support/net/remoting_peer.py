"""A remoting server for tests of the asking side: records requests, answers as it is told."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Self, cast

from failback.protocol.command import RemotingCommand
from failback.protocol.frames import FrameReader

Answer = RemotingCommand | bytes | None


class PeerConnection(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, peer: RemotingPeer) -> None:
        self._peer = peer
        self._reader = FrameReader()
        self.reads = 0
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._peer.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self.reads += 1
        self._reader.receive_data(data)
        while (frame := self._reader.next_frame()) is not None:
            command = RemotingCommand.from_frame(frame)
            self._peer.received.append(command)
            self.send(self._peer.answer(command))

    def send(self, answer: Answer) -> None:
        if answer is not None:
            self.transport.write(answer if isinstance(answer, bytes) else answer.encode())

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)

    def close(self) -> None:
        """Close in order: the other side sees FIN."""
        self.transport.close()

    def reset(self) -> None:
        """Close so that the other side sees RST."""
        linger = struct.pack("ii", 1, 0)
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, linger
        )
        self.transport.abort()


class RemotingPeer:
    """``async with RemotingPeer() as peer: ... peer.addr``; ``answer`` may be replaced."""

    def __init__(
        self,
        answer: Callable[[RemotingCommand], Answer] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self.answer = answer or (lambda request: request.response(0))
        self.received: list[RemotingCommand] = []
        self.connections: list[PeerConnection] = []
        self.addr = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: PeerConnection(self), "127.0.0.1", 0, ssl=self._tls
        )
        host, port = self._server.sockets[0].getsockname()
        self.addr = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self.connections:
            connection.transport.abort()
        ends = [connection.closed for connection in self.connections]
        if ends:
            await asyncio.wait(ends)
