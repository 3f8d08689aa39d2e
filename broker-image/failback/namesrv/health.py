"""/livez and /readyz for probes: just enough HTTP/1.1 for one GET per connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

_MAX_REQUEST_BYTES: Final = 8192


class HealthProtocol(asyncio.Protocol):
    """Answers one request and closes.

    /livez is 200 while the loop turns; /readyz is 200 while requests are served, else 503.
    """

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self._is_ready = is_ready
        self._request = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._deadline = asyncio.get_running_loop().call_later(10, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._request += data
        if b"\r\n\r\n" in self._request or len(self._request) > _MAX_REQUEST_BYTES:
            status, text = self._answer()
            body = text.encode() + b"\n"
            self._transport.write(
                b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
                b"Connection: close\r\n\r\n%s" % (status, len(body), body)
            )
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()

    def _answer(self) -> tuple[bytes, str]:
        words = self._request.split(b"\r\n", 1)[0].split(b" ")
        path = words[1].split(b"?")[0] if len(words) == 3 and words[0] == b"GET" else b""
        if path == b"/livez":
            return b"200 OK", "ok"
        if path == b"/readyz":
            return (
                (b"200 OK", "ok") if self._is_ready() else (b"503 Service Unavailable", "not ready")
            )
        return b"404 Not Found", "only GET /livez and GET /readyz are here"
