"""A small HTTP server for probes and scrapers: the health ports of broker, name server, operator.

It speaks just enough HTTP/1.1: one request per connection, no bodies are read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple, cast

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 8192
HEAD_SECONDS: Final = 5.0
"""How long a request may take to arrive."""
READ_SECONDS: Final = 60.0
"""How long a client may take to read its answer."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Reply(NamedTuple):
    status: int
    body: bytes
    content_type: str = TEXT


Endpoint = Callable[[str], Reply]
"""Takes the method, GET or POST."""


class HttpServer:
    """Serves endpoints by path."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._server: asyncio.Server | None = None
        self.connections: set[_HttpConnection] = set()

    async def listen(self, host: str, port: int) -> int:
        """Serve on ``host:port``; return the port, which the system chooses for 0.

        Raises:
            OSError: The port is taken or the address is not ours.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _HttpConnection(self), host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()
        while self.connections:  # noqa: ASYNC110 - one turn of the loop each
            await asyncio.sleep(0)

    def reply(self, method: str, path: str) -> Reply:
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            known = ", ".join(sorted(self._endpoints))
            return Reply(HTTPStatus.NOT_FOUND, f"no such path; there is {known}\n".encode())
        if method not in ("GET", "HEAD", "POST"):
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, b"GET only\n")
        try:
            return endpoint("GET" if method == "HEAD" else method)
        # A broken endpoint must answer: a probe that hangs restarts the process.
        except Exception:
            logger.exception("HTTP endpoint %s failed", path)
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log\n")


class _HttpConnection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = b""
        self._timeout: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none by inheritance, only by what they offer.
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        self._cut_after(HEAD_SECONDS)

    def _cut_after(self, seconds: float) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = asyncio.get_running_loop().call_later(seconds, self.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._timeout is not None:
            self._timeout.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._head += data
        if b"\r\n\r\n" in self._head:
            self._answer()
        elif len(self._head) > MAX_HEAD_BYTES:
            self._write("GET", Reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"too large\n"))

    def _answer(self) -> None:
        words = self._head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._write("GET", Reply(HTTPStatus.BAD_REQUEST, b"not an HTTP request\n"))
            return
        method, target, _ = words
        self._write(method, self._server.reply(method, target.partition("?")[0]))

    def _write(self, method: str, reply: Reply) -> None:
        assert self._transport is not None
        head = (
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
            f"Content-Type: {reply.content_type}\r\nContent-Length: {len(reply.body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        self._cut_after(READ_SECONDS)
        self._transport.write(head.encode() + (b"" if method == "HEAD" else reply.body))
        self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
