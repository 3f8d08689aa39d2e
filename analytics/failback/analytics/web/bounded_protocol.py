"""The HTTP protocol of collector and dashboard, bounded before an application sees a request.

A head is at most 64 KiB and whole within 10 s; a body that stops coming or does not end within 90 s
ends with its connection, and so does an answer that nobody reads. One address has so many
connections, all together so many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from failback.client.remoting.http_limits import HEAD_SECONDS, MAX_HEAD_BYTES, HttpBounds
from failback.client.remoting.peer_limits import ConnectionCounts, Refusals

BODY_SECONDS: Final = 10.0
"""How long a body may stop coming."""
WHOLE_SECONDS: Final = 90.0
"""How long a body may take in all: longer than any application of ours waits for one."""
READER_SECONDS: Final = 30.0
"""How long an answer may wait for its reader to read on."""
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class Bounds:
    """The bounds of one port, and its connections."""

    def __init__(self, bounds: HttpBounds) -> None:
        self.counts = ConnectionCounts(lambda: bounds.connections, lambda: bounds.per_address)
        self.refusals = Refusals(("httpConnections", "httpHead", "httpSilence"))

    def protocol(self) -> type[asyncio.Protocol]:
        """Return what uvicorn makes connections with; it only ever calls it."""
        return cast(type[asyncio.Protocol], partial(BoundedProtocol, self))


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, bounds: Bounds, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self.bounds = bounds
        self._in_head = True
        self._head_bytes = 0
        self._in_body = False
        self._peer: str | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        refusal = self.bounds.counts.enter(peer)
        if refusal is not None:
            self.bounds.refusals.note("httpConnections", peer, refusal)
            transport.abort()
        else:
            self._peer = peer
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._peer is not None:
            self.bounds.counts.leave(self._peer)
            self._peer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # The parser keeps what a head has so far: it gets no more than a head may have.
        view = memoryview(data)
        while view and not self.transport.is_closing():
            if not self._in_head:
                self._watch("silence", BODY_SECONDS, self._silent)
                super().data_received(bytes(view))
                return
            if self._head_bytes >= MAX_HEAD_BYTES:
                self._refuse_head()
                return
            part = view[: MAX_HEAD_BYTES - self._head_bytes]
            self._head_bytes += len(part)
            super().data_received(bytes(part))
            view = view[len(part) :]

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:  # of a further request on this connection
            self._begin_head()

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._head_bytes = 0
        self._unwatch("head")
        self._watch("silence", BODY_SECONDS, self._silent)  # a body may never begin
        self._watch("whole", WHOLE_SECONDS, self._late_body)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        self._unwatch("silence")
        self._unwatch("whole")
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._watch("reader", READER_SECONDS, self._unread)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unwatch("reader")
        super().resume_writing()

    def _begin_head(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._watch("head", HEAD_SECONDS, self._late_head)

    def _late_head(self) -> None:
        if not self._head_bytes:
            # Nothing of a request came: who keeps connections for later is not refused.
            self.transport.abort()
            return
        self._cut("httpHead", f"no whole head within {HEAD_SECONDS:g} s")

    def _silent(self) -> None:
        if not self._in_body:
            return
        if self.flow.read_paused:  # what does not come is what this side does not take
            self._watch("silence", BODY_SECONDS, self._silent)
            return
        self._cut("httpSilence", f"a body that stopped coming for {BODY_SECONDS:g} s")

    def _late_body(self) -> None:
        self._cut("httpSilence", f"no whole body within {WHOLE_SECONDS:g} s")

    def _unread(self) -> None:
        self._cut("httpSilence", f"an answer that was not read for {READER_SECONDS:g} s")

    def _refuse_head(self) -> None:
        self.bounds.refusals.note("httpHead", self._peer or "?", "a head of more than 64 KiB")
        self.transport.write(_TOO_LARGE)
        self.transport.close()

    def _cut(self, bound: str, what: str) -> None:
        self.bounds.refusals.note(bound, self._peer or "?", what)
        self.transport.abort()

    def _watch(self, name: str, seconds: float, late: Callable[[], None]) -> None:
        self._unwatch(name)
        self._timers[name] = self.loop.call_later(seconds, late)

    def _unwatch(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
