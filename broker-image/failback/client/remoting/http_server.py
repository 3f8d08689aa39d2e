"""A small HTTP server for probes, scrapers and orders: the health and metrics ports.

It speaks just enough HTTP/1.1: one request per connection, no bodies are read. Head, time and
connections are bounded before a request is read; ``http_limits`` has the numbers. In a thread of
its own it answers while its process computes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from failback.client.remoting.http_limits import (
    HEAD_SECONDS,
    HttpBounds,
    why_no_order,
)
from failback.client.remoting.peer_limits import ConnectionCounts, Refusals

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 8192
"""Heads of probes and scrapers are short; one with a browser's cookies may have 64 KiB."""
READ_SECONDS: Final = 60.0
"""How long a client may take to read its answer."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_HEAD_END: Final = b"\r\n\r\n"
_READS: Final = ("GET", "HEAD")
_ORDERS: Final = ("POST", "DELETE")


class Reply(NamedTuple):
    status: int
    body: bytes
    content_type: str = TEXT


Endpoint = Callable[[str], Reply]
"""Takes the method: GET, or POST and DELETE where it takes orders."""


class HttpServer:
    """Serves endpoints by path.

    ``orders`` are the paths that take POST and DELETE: only from this machine, and never from a
    page that a browser shows.
    """

    def __init__(
        self,
        endpoints: dict[str, Endpoint],
        *,
        orders: Collection[str] = (),
        bounds: HttpBounds | None = None,
    ) -> None:
        bounds = bounds or HttpBounds()
        self._endpoints = endpoints
        self._orders = frozenset(orders)
        self._server: asyncio.Server | None = None
        self.counts = ConnectionCounts(lambda: bounds.connections, lambda: bounds.per_address)
        self.refusals = Refusals(("httpConnections",))
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

    def reply(self, method: str, path: str, why_not: Callable[[], str | None]) -> Reply:
        """Answer a request; ``why_not`` says why its sender may order nothing."""
        endpoint = self._endpoints.get(path)
        if endpoint is None:
            known = ", ".join(sorted(self._endpoints))
            return Reply(HTTPStatus.NOT_FOUND, f"no such path; there is {known}\n".encode())
        if method in _ORDERS and path in self._orders:
            refusal = why_not()
            if refusal is not None:
                logger.warning("%s %s refused: %s", method, path, refusal)
                return Reply(HTTPStatus.FORBIDDEN, f"{refusal}\n".encode())
        elif method not in _READS:
            allowed = ", ".join((*_READS, *(_ORDERS if path in self._orders else ())))
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, f"{allowed} only\n".encode())
        try:
            return endpoint("GET" if method == "HEAD" else method)
        # A broken endpoint must answer: a probe that hangs restarts the process.
        except Exception:
            logger.exception("HTTP endpoint %s failed", path)
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the log\n")


class _HttpConnection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = bytearray()
        self._timeout: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._peer, self._own = "", ""
        self._is_counted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none by inheritance, only by what they offer.
        self._transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        self._peer = str((transport.get_extra_info("peername") or ("",))[0])
        self._own = str((transport.get_extra_info("sockname") or ("",))[0])
        refusal = self._server.counts.enter(self._peer)
        if refusal is not None:
            self._server.refusals.note("httpConnections", self._peer, refusal)
            self.abort()
            return
        self._is_counted = True
        self._cut_after(HEAD_SECONDS)

    def _cut_after(self, seconds: float) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = asyncio.get_running_loop().call_later(seconds, self.abort)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._is_counted:
            self._server.counts.leave(self._peer)
        if self._timeout is not None:
            self._timeout.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        searched = max(0, len(self._head) - len(_HEAD_END))
        self._head += data
        end = self._head.find(_HEAD_END, searched)
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._head) > MAX_HEAD_BYTES):
            self._write("GET", Reply(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, b"too large\n"))
        elif end >= 0:
            self._answer(self._head[:end].decode("latin-1"))

    def _answer(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._write("GET", Reply(HTTPStatus.BAD_REQUEST, b"not an HTTP request\n"))
            return
        method, target, _ = words

        def why_not() -> str | None:
            return why_no_order(_headers(lines), peer=self._peer, own=self._own)

        self._write(method, self._server.reply(method, target.partition("?")[0], why_not))

    def _write(self, method: str, reply: Reply) -> None:
        assert self._transport is not None
        head = (
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
            f"Content-Type: {reply.content_type}\r\nContent-Length: {len(reply.body)}\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        self._cut_after(READ_SECONDS)
        self._transport.write(head.encode() + (b"" if method == "HEAD" else reply.body))
        self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _headers(lines: Collection[str]) -> list[tuple[str, str]]:
    """Return names in small letters and values, in their order."""
    pairs = (line.partition(":") for line in lines)
    return [(name.strip().lower(), value.strip()) for name, _, value in pairs]


class HttpThread:
    """Serves endpoints from a daemon thread. Endpoints are called there."""

    def __init__(self, endpoints: dict[str, Endpoint], host: str, port: int) -> None:
        """Serve at once.

        Raises:
            OSError: The port is taken or the address is not ours.
        """
        self._endpoints = endpoints
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        bound: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(host, port, bound), name="http", daemon=True
        )
        self._thread.start()
        self.port = bound.result()

    def close(self) -> None:
        """Stop serving and wait for the thread."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self, host: str, port: int, bound: Future[int]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(host, port, bound))

    async def _serve(self, host: str, port: int, bound: Future[int]) -> None:
        server = HttpServer(self._endpoints)
        try:
            bound.set_result(await server.listen(host, port))
        except (OSError, OverflowError) as error:
            bound.set_exception(error)
            return
        await self._stop.wait()
        await server.close()
