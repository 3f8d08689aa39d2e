"""One client connection: its reads, its pending answers, and how much of both there may be.

Each read goes to ``server.received``, which walks its frames. The connection only keeps the pieces
of a frame that is not complete, and joins them. All requests of a read are handled inside
``data_received``, without a task per request. All records of one read become one write to the log,
all answers one write to the socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from failback.client.remoting.peer_limits import LEAST_UNFINISHED_BYTES
from failback.protocol.errors import ProtocolError, StoreError
from failback.protocol.frames import LENGTH_BYTES, PREFIX
from failback.protocol.message import pack_host

logger = logging.getLogger(__name__)

HIGH_WATER_BYTES: Final = 1024 * 1024
"""Four full pull answers. Above it, pulls of the peer wait until it has read."""
MAX_UNREAD_BYTES: Final = 8 * 1024 * 1024
"""Answers a peer may leave unread before its own requests are no longer read."""
MAX_DEFERRED_PULLS: Final = 256


class ConnectionServer(Protocol):
    """The server as its connections use it."""

    def opened(self, connection: BrokerConnection, /) -> None: ...

    def lost(self, connection: BrokerConnection, /) -> None: ...

    def received(self, connection: BrokerConnection, data: bytes, /) -> int: ...

    def mark(self, connection: BrokerConnection, /) -> None: ...

    def drained(self, connection: BrokerConnection, /) -> None: ...

    def unread(self, connection: BrokerConnection, size: int, /) -> None: ...

    def unfinished(self, connection: BrokerConnection, size: int, /) -> None: ...


class BrokerConnection(asyncio.Protocol):
    """A connection of a producer, a consumer, a tool or a slave. Compared by identity."""

    __slots__ = (
        "_chunks",
        "_go_on_handle",
        "_goes_on_later",
        "_have",
        "_is_held",
        "_is_noted",
        "_need",
        "_out_bytes",
        "_read_paused",
        "_server",
        "_waits_for",
        "address",
        "born_host",
        "closed",
        "deferred",
        "host",
        "is_checked",
        "is_counted",
        "is_fast_port",
        "last_active",
        "new_names",
        "out",
        "tasks",
        "transport",
        "write_paused",
    )

    transport: asyncio.Transport

    def __init__(self, server: ConnectionServer, *, is_fast_port: bool) -> None:
        self._server = server
        self.is_fast_port = is_fast_port
        self._chunks: list[bytes] = []
        self._have = 0
        self._need = 0
        self._is_noted = False
        """Whether the server counts the bytes of an incomplete request."""
        self._read_paused = False
        self._is_held = False
        """Whether whole requests may be among what is kept: nothing more is read meanwhile."""
        self._waits_for = 0
        """How many writes the next request waits for."""
        self._goes_on_later = False
        """Whether the server stopped before the end of a read."""
        self._go_on_handle: asyncio.Handle | None = None
        self.new_names = 0.0, 0.0
        """New names that still count, and since when, seconds: see PeerLimits."""
        self.address = ""
        """``ip:port`` of the peer."""
        self.host = ""
        self.is_counted = False
        """Whether it is counted among the connections of its address."""
        self.is_checked = False
        """Whether the guard has allowed the request that is read next: it waited."""
        self.tasks = 0
        """Requests of this peer whose answers take time."""
        self.born_host = b""
        """The peer as records store it: 8 bytes for IPv4, 20 for IPv6."""
        self.out: list[bytes | memoryview] = []
        """Answers that the end of this run writes at once."""
        self._out_bytes = 0
        self.deferred: deque[Any] = deque()
        """Pulls that wait until the peer has read earlier answers."""
        self.write_paused = False
        self.closed = False
        self.last_active = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none by inheritance, only by what they offer.
        transport = self.transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        peer = transport.get_extra_info("peername") or ("127.0.0.1", 0)
        host, port = str(peer[0]).partition("%")[0], int(peer[1])
        self.host = host
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.born_host = pack_host(host, port)
        self._server.opened(self)

    def take_transport(self, transport: asyncio.Transport) -> None:
        """Write to ``transport`` from now on: the connection speaks TLS."""
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.deferred.clear()
        self.out.clear()
        self._chunks.clear()
        self._server.lost(self)

    def data_received(self, data: bytes) -> None:
        if self._is_held:
            self._chunks.append(data)
            return
        if self._chunks:
            # A list of chunks, joined once: adding per chunk is quadratic for a 4 MiB body.
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                self._note_unfinished()
                return
            data = self._take_chunks()
        self._work(data)

    def _take_chunks(self) -> bytes:
        data = b"".join(self._chunks)
        self._chunks.clear()
        if self._is_noted:
            self._is_noted = False
            self._server.unfinished(self, 0)
        return data

    def _work(self, data: bytes) -> None:
        """Have the requests of a read answered, and keep what is left of it."""
        try:
            rest = self._server.received(self, data)
        except ProtocolError as error:
            logger.warning("connection %s closed: %s", self.address, error)
            self.abort()
            return
        except StoreError:  # logged by the server, which stops the broker
            self.abort()
            return
        if rest < len(data) and not self.closed:
            self._keep(data[rest:] if rest else data)
        if (self.write_paused or self._goes_on_later) and not self.closed:
            self._goes_on_later = False
            self._read_paused = self.write_paused and self.is_behind
            if self._must_stop() and not self._is_held:
                self._is_held = True
                self.transport.pause_reading()

    def _must_stop(self) -> bool:
        return bool(self._waits_for) or self._go_on_handle is not None or self._read_paused

    def go_on_soon(self) -> None:
        """Go on with what is kept in the next turn of the loop."""
        if self._go_on_handle is None:
            self._goes_on_later = True
            self._go_on_handle = asyncio.get_running_loop().call_soon(self._go_on)

    def wait_for(self, writes: Sequence[asyncio.Future[None]]) -> None:
        """Go on with what is kept when all of ``writes`` are done."""
        self._goes_on_later = True
        self._waits_for += len(writes)
        for write in writes:
            write.add_done_callback(self._written)

    def _written(self, _write: asyncio.Future[None]) -> None:
        self._waits_for -= 1
        self._go_on()

    def _go_on(self) -> None:
        self._go_on_handle = None
        if self.closed or self._must_stop():
            return
        data = self._take_chunks()
        if data:
            self._work(data)
        if self._is_held and not self.closed and not self._must_stop():
            self._is_held = False
            self.transport.resume_reading()

    def _keep(self, data: bytes) -> None:
        """Remember an incomplete frame and how many bytes complete it."""
        self._chunks.append(data)
        self._have = len(data)
        self._need = PREFIX.size
        if self._have >= PREFIX.size:
            self._need = LENGTH_BYTES + PREFIX.unpack_from(data)[0]
        self._note_unfinished()

    def _note_unfinished(self) -> None:
        if self._have >= LEAST_UNFINISHED_BYTES:
            self._is_noted = True
            self._server.unfinished(self, self._have)

    def eof_received(self) -> bool:
        return False

    def push(self, data: bytes) -> None:
        """Send a frame at the end of the current run, after the answers that are pending."""
        if not self.closed:
            self._server.mark(self)
            self.out.append(data)
            self._out_bytes += len(data)

    def push_parts(self, parts: Sequence[bytes | memoryview], size: int) -> None:
        """Send a pull's answer, ``size`` bytes in several parts; goes out early when large."""
        if self.closed:
            return
        self._server.mark(self)
        self.out.extend(parts)
        self._out_bytes += size
        if self._out_bytes > HIGH_WATER_BYTES:
            # Only now can the transport say that the peer does not read.
            self.flush()

    def flush(self) -> None:
        """Write all pending answers, with one call."""
        out = self.out
        self._out_bytes = 0
        if not out or self.closed:
            out.clear()
            return
        self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()
        if self.write_paused:
            self._server.unread(self, self.transport.get_write_buffer_size())

    @property
    def is_large(self) -> bool:
        """Whether pending answers are too large to wait for the end of the run."""
        return self._out_bytes > HIGH_WATER_BYTES

    def unread_bytes(self) -> int:
        """Return how many sent bytes the peer has not read."""
        return 0 if self.closed else int(self.transport.get_write_buffer_size())

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        self._server.drained(self)
        if self._read_paused:
            self._read_paused = False
            self._go_on()

    @property
    def is_behind(self) -> bool:
        """Whether the peer has so much to read that none of its requests is served before."""
        if len(self.deferred) > MAX_DEFERRED_PULLS:
            return True
        return self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES

    def close(self) -> None:
        """Close once everything written has been sent."""
        if not self.closed:
            self.transport.close()

    def abort(self) -> None:
        """Close at once; answers not yet sent, and those to come, are lost."""
        if not self.closed:
            self.closed = True
            self.out.clear()
            self._chunks.clear()
            self.transport.abort()
