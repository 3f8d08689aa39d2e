"""The master's end of one slave's connection: HAConnection of 4.9.8 on one event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final, Protocol, cast

from failback.broker.ha.config import HaConfig
from failback.broker.ha.replicated_store import HaStore
from failback.broker.ha.stream import ReportReader, encode_frame_header, start_position
from failback.protocol.errors import StoreError

logger = logging.getLogger(__name__)

_TURN_BYTES: Final = 512 * 1024
"""Sent per turn of the event loop, so that a catching-up slave does not stall the producers."""

_TICK_SECONDS: Final = 0.005
"""The finest a timer is re-armed, so that rounding cannot make it spin."""


class HaMaster(Protocol):
    """What a connection needs of the service that accepted it."""

    store: HaStore
    config: HaConfig
    refused_reports: int

    def connection_opened(self, connection: HaConnection, /) -> None: ...

    def connection_closed(self, connection: HaConnection, error: Exception | None, /) -> None: ...

    def acknowledged(self, offset: int, /) -> None: ...


class HaConnection(asyncio.Protocol):
    """Sends the commit log from where the slave asked, and takes its acknowledgements.

    Before the first report nothing is sent, not even a heartbeat. After it the log is pumped
    whenever it has grown and the socket takes more. A heartbeat goes out when nothing was written
    for ``heartbeat_ms``. Silence for ``housekeeping_ms`` ends it.
    """

    def __init__(self, service: HaMaster) -> None:
        self._service = service
        self._reports = ReportReader()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self.transfer_offset: int | None = None
        """The next byte to send; ``None`` before the slave's first report."""
        self._paused = False
        self._turn_scheduled = False
        self.opened_at = self._last_read = self._last_write = self._loop.time()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.peer = self.host = ""
        self.ack_offset = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.host, port = transport.get_extra_info("peername")[:2]
        self.peer = f"{self.host}:{port}"
        if not self._service.config.may_connect(self.host):
            self.close("its address is not in failbackHaFrom")
            return
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._schedule_heartbeat(self._service.config.heartbeat_ms / 1000)
        self._schedule_housekeeping(self._service.config.housekeeping_ms / 1000)
        self._service.connection_opened(self)

    def take_transport(self, transport: asyncio.Transport) -> None:
        """Write to ``transport`` from now on: the connection speaks TLS."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._transport = None
        self._service.connection_closed(self, exc)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.pump()

    def data_received(self, data: bytes) -> None:
        report = self._reports.receive_data(data)
        if report is None or self._transport is None:
            return
        self._last_read = self._loop.time()  # bytes that are no whole report renew nothing
        max_offset = self._service.store.max_physical_offset
        objection = self._objection(report, max_offset)
        if objection is not None:
            self._service.refused_reports += 1
            self.close(objection)
            return
        self.ack_offset = report
        if self.transfer_offset is None and report >= 0:
            self.transfer_offset = start_position(
                report, max_offset, self._service.config.mapped_file_bytes
            )
            logger.info(
                "HA: slave %s asks from offset %d, transfer starts at %d",
                self.peer,
                report,
                self.transfer_offset,
            )
            self.pump()
        if report > max_offset:
            # 4.9.8 believes the first report of a connection, whatever it says.
            self._service.refused_reports += 1
            logger.warning(
                "HA: slave %s reports offset %d, this master ends at %d: no acknowledgement",
                self.peer,
                report,
                max_offset,
            )
            return
        self._service.acknowledged(report)

    def pump(self) -> None:
        """Send what the log has beyond the position, until the socket or the turn is full."""
        transport, position = self._transport, self.transfer_offset
        if transport is None or position is None or self._paused or self._turn_scheduled:
            return
        read_raw = self._service.store.read_raw
        batch_bytes = self._service.config.batch_bytes
        start = position
        buffers: list[bytes | memoryview] = []
        while position - start < _TURN_BYTES:
            try:
                view = read_raw(position, batch_bytes)
            except StoreError as error:  # a bad sector: its range can't be copied, all else goes on
                self.close(str(error))
                return
            if not view:
                break
            buffers.append(encode_frame_header(position, len(view)))
            buffers.append(view)
            position += len(view)
        if not buffers:
            return
        self.transfer_offset = position
        self._last_write = self._loop.time()
        transport.writelines(buffers)
        if position - start >= _TURN_BYTES and not self._paused:
            self._turn_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _objection(self, report: int, max_offset: int) -> str | None:
        """Say why a report can't be true. 4.9.8 believes every first one, and any below its end."""
        is_guarded, sent = self._service.config.is_guarded, self.transfer_offset
        if report > max_offset and (is_guarded or sent is not None):
            return f"it reported offset {report}, this master ends at {max_offset}"
        if is_guarded and sent is not None and report > sent:
            return f"it reported offset {report}, only what lies before {sent} was sent"
        return None

    def close(self, reason: str) -> None:
        """Drop the connection at once; the slave will connect again."""
        if self._transport is not None:
            logger.warning("HA: closing slave %s: %s", self.peer, reason)
            self._transport.abort()

    def _next_turn(self) -> None:
        self._turn_scheduled = False
        self.pump()

    def _schedule_heartbeat(self, delay_s: float) -> None:
        self._timers["heartbeat"] = self._loop.call_later(delay_s, self._heartbeat)

    def _heartbeat(self) -> None:
        interval = self._service.config.heartbeat_ms / 1000
        idle = self._loop.time() - self._last_write
        if idle < interval or self.transfer_offset is None or self._paused:
            self._schedule_heartbeat(max(interval - idle, _TICK_SECONDS))
            return
        if self._transport is not None:
            self._transport.write(encode_frame_header(self.transfer_offset, 0))
            self._last_write = self._loop.time()
        self._schedule_heartbeat(interval)

    def _schedule_housekeeping(self, delay_s: float) -> None:
        self._timers["housekeeping"] = self._loop.call_later(delay_s, self._housekeep)

    def _housekeep(self) -> None:
        limit = self._service.config.housekeeping_ms / 1000
        silent = self._loop.time() - self._last_read
        if silent < limit:
            self._schedule_housekeeping(max(limit - silent, _TICK_SECONDS))
        else:
            self.close(f"nothing received for {silent:.1f} s")
