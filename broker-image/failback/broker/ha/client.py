"""The slave's end: HAService.HAClient of 4.9.8 on the event loop.

Differs from the original where the wire allows it: the first report goes out at once (not after
5 s), a new address is dialled at once, and what one read brought is written with one system call
and acknowledged once.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Literal, cast

from failback.broker.ha.stream import Received, SlaveStream, encode_report
from failback.protocol.errors import StoreError

if TYPE_CHECKING:
    from failback.broker.ha.config import HaConfig
    from failback.broker.ha.service import HaStore

logger = logging.getLogger(__name__)


class _MasterConnection(asyncio.Protocol):
    """One connection to the master: appends what it sends, reports what this slave holds."""

    def __init__(self, store: HaStore, config: HaConfig) -> None:
        self._store = store
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._stream = SlaveStream(store.max_physical_offset, config.mapped_file_bytes)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.appended_bytes = 0
        self.reported_offset = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._report()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return  # aborted; the rest of what was in flight is asked for again
        received = self._stream.receive_data(data)
        try:
            self._append(received)
        except (StoreError, OSError) as error:
            self.close(f"cannot append: {error}")
            return
        except Exception:  # a callback of the event loop: nobody above would close the connection
            logger.exception("HA: appending what the master sent failed")
            self.close("internal error")
            return
        if received.failure is not None:
            self.close(received.failure)

    def close(self, reason: str) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            logger.error("HA: closing the connection to the master: %s", reason)
            self._transport.abort()
            self._transport = None

    def _append(self, received: Received) -> None:
        before = self._store.max_physical_offset
        for run in received.runs:
            pieces = run.pieces
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._store.append_raw(run.physical_offset, data)
            self.appended_bytes += len(data)
        if self._store.max_physical_offset > before:
            self._report()

    def _report(self) -> None:
        """Tell the master what this slave holds: page cache, not disk. Re-arms the timer."""
        if self._transport is None:
            return
        self.reported_offset = self._store.max_physical_offset
        self._transport.write(encode_report(self.reported_offset))
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._config.heartbeat_ms / 1000, self._report)


class HaClient:
    """Keeps this slave connected to its master's HA port."""

    def __init__(self, store: HaStore, config: HaConfig) -> None:
        self._store = store
        self._config = config
        self._address = config.master_address
        self._wake = asyncio.Event()
        self._connection: _MasterConnection | None = None

    @property
    def master_address(self) -> str | None:
        """``host:port`` that the next connection goes to."""
        return self._address

    @property
    def connected(self) -> bool:
        """Whether a connection to the master is open."""
        return self._connection is not None

    @property
    def reported_offset(self) -> int:
        """The last max physical offset told to the master; -1 without a connection."""
        return -1 if self._connection is None else self._connection.reported_offset

    def update_master_address(self, address: str | None) -> None:
        """Dial ``address`` from now on. An open connection is kept, as the original does."""
        if address == self._address:
            return
        logger.info("HA: master address %s, was %s", address, self._address)
        self._address = address
        self._wake.set()

    async def run(self, shutdown: asyncio.Event) -> None:
        """Stay connected until ``shutdown`` is set."""
        stop = asyncio.ensure_future(shutdown.wait())
        try:
            while not shutdown.is_set():
                if not await self._connect_once(stop):
                    await self._pause(stop)
        finally:
            stop.cancel()

    async def _connect_once(self, stop: asyncio.Task[Literal[True]]) -> bool:
        """Serve one connection to its end; false when the next attempt has to wait.

        The original reconnects at once after any break, but its first report is 5 s late, which
        keeps a refusing master from being hammered. Reporting at once, this one waits when a
        connection ended without bringing anything within a report interval.
        """
        if self._address is None:
            return False
        loop = asyncio.get_running_loop()
        host, _, port = self._address.rpartition(":")
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                transport, connection = await loop.create_connection(
                    lambda: _MasterConnection(self._store, self._config), host, int(port)
                )
        except (OSError, ValueError) as error:
            logger.info("HA: cannot connect to master %s: %s", self._address, error or "timed out")
            return False
        logger.info("HA: connected to master %s at %d", self._address, connection.reported_offset)
        self._connection = connection
        began = loop.time()
        try:
            await asyncio.wait((connection.closed, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connection = None
            transport.abort()
            await connection.closed
        if not stop.done():
            logger.warning("HA: the connection to master %s ended", self._address)
        lived_ms = (loop.time() - began) * 1000
        return connection.appended_bytes > 0 or lived_ms >= self._config.heartbeat_ms

    async def _pause(self, stop: asyncio.Task[Literal[True]]) -> None:
        self._wake.clear()
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait(
                (wake, stop),
                timeout=self._config.reconnect_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            wake.cancel()
