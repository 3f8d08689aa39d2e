"""The name server's sockets and timers around the route tables.

Everything a read brings is answered inside ``data_received`` with one write. A broker lives on
the connection that carried its last registration: when that goes, the broker goes at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, cast

from failback.client.remoting.http_server import PROMETHEUS, HttpServer, Reply
from failback.client.remoting.peer_limits import (
    UNFINISHED,
    ConnectionCounts,
    Refusals,
    Unfinished,
)
from failback.client.remoting.port_owner import describe_listen_failure
from failback.client.remoting.tls_server import LOOK_MS, ServerTls
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.kv_config import KVConfigManager
from failback.namesrv.processor import ADMIN_CODES, ROUTINE_CODES, Answer, Processor
from failback.namesrv.routes import BROKER_EXPIRY_MS, RouteInfoManager
from failback.protocol.codes import ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError, ProtocolError
from failback.protocol.frames import FrameReader
from failback.protocol.metric_families import (
    NAMESRV_ACCESS_CURRENT,
    NAMESRV_ACCESS_REFUSED,
    NAMESRV_ACCESS_USED,
    NAMESRV_BROKERS,
    NAMESRV_CONNECTIONS,
    NAMESRV_REFUSED,
    NAMESRV_TLS_CONNECTIONS,
    NAMESRV_TLS_FAILURES,
    NAMESRV_TLS_NOT_AFTER,
    NAMESRV_TOPICS,
    Family,
)

if TYPE_CHECKING:
    from failback.client.remoting.access.guard import RequestGuard

logger = logging.getLogger(__name__)

SCAN_FIRST_SECONDS: Final = 5.0  # NamesrvController: 5 s, then every 10 s
SCAN_SECONDS: Final = 10.0
DRAIN_SECONDS: Final = 1.0
ACCOUNTS_SECONDS: Final = 5.0
"""How often the files with accounts are looked at, as at a broker."""
TURN_SECONDS: Final = 0.005
"""How long one connection may be served before it is the others' turn."""
HIGH_WATER_BYTES: Final = 1024 * 1024
"""Answers that a peer may leave unread before its next request waits; one may be larger."""
MOST_UNREAD_BYTES: Final = 64 * 1024 * 1024
"""Answers that all peers together leave unread before the one with the most is cut."""
CONNECTIONS: Final = "connections"
UNREAD: Final = "unread"


class _Connection(asyncio.Protocol):
    """One peer: a client, a broker or a tool. Equal to itself only, so usable as a channel."""

    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._last_use = 0.0
        self._is_paused = False
        self._is_waiting = False
        """Whether its next request waits for a write, or for the next turn of the loop."""
        self._is_counted = False
        self.host = "?"
        self.peer = "?"
        self.closed: asyncio.Future[None] = server.loop.create_future()

    def __str__(self) -> str:
        return self.peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        name = transport.get_extra_info("peername")
        self.host = str(name[0]) if name else "?"
        self.peer = f"{name[0]}:{name[1]}" if name else "?"
        self._server.connections.add(self)
        refusal = self._server.counts.enter(self.host)
        if refusal is not None:
            self._server.refusals.note(CONNECTIONS, self.peer, refusal)
            self.cut()
            return
        self._is_counted = True
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._last_use = self._server.loop.time()
        self._check_idle()

    def take_transport(self, transport: asyncio.Transport) -> None:
        """Write to ``transport`` from now on: the connection speaks TLS."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._last_use = self._server.loop.time()
        self._reader.receive_data(data)
        self._work()
        self._server.unfinished(self, self._reader.buffered_bytes)

    def _work(self) -> None:
        """Answer what has arrived, until the peer leaves too much of it unread."""
        assert self._transport is not None
        answers: list[bytes] = []
        size, clock = 0, self._server.loop.time
        turn_ends = clock() + TURN_SECONDS
        try:
            while not (self._is_paused or self._is_waiting or self._transport.is_closing()):
                if (frame := self._reader.next_frame()) is None:
                    break
                answer = self._server.serve(RemotingCommand.from_frame(frame), self)
                if isinstance(answer, asyncio.Future):
                    self._wait()
                    answer.add_done_callback(self._stored)
                elif answer is not None:
                    answers.append(answer.encode())
                    size += len(answers[-1])
                if size > HIGH_WATER_BYTES:
                    # Only now can the transport say that the peer does not read.
                    self._transport.write(b"".join(answers))
                    answers, size = [], 0
                    self._server.unread(self)
                if clock() >= turn_ends and not self._is_waiting:
                    self._wait()
                    self._server.loop.call_soon(self._go_on)
        except ProtocolError as error:
            logger.warning("close connection peer=%s: %s", self.peer, error)
            self._transport.write(b"".join(answers))
            self._transport.close()
            return
        if answers:
            self._transport.write(b"".join(answers))
        self._server.unread(self)

    @property
    def unread_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _wait(self) -> None:
        assert self._transport is not None
        self._is_waiting = True
        self._transport.pause_reading()

    def _stored(self, answer: asyncio.Future[RemotingCommand | None]) -> None:
        command = answer.result()
        assert self._transport is not None
        if command is not None and not self._transport.is_closing():
            self._transport.write(command.encode())
        self._go_on()

    def _go_on(self) -> None:
        self._is_waiting = False
        if not self._is_paused:
            self.resume_writing()

    def pause_writing(self) -> None:
        # Who does not read its answers gets no new ones: bounds what one peer can hold here.
        assert self._transport is not None
        self._is_paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._work()
            self._server.unfinished(self, self._reader.buffered_bytes)
            if not (self._is_paused or self._is_waiting or self._transport.is_closing()):
                self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._is_counted:
            self._server.counts.leave(self.host)
        self._server.connection_lost(self)
        self.closed.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _check_idle(self) -> None:
        loop = self._server.loop
        idle_at = self._last_use + self._server.idle_seconds
        if idle_at <= loop.time():
            logger.info("close idle connection peer=%s", self.peer)
            # What it left unread would keep a connection open that is only closed.
            self.cut() if self._is_paused else self.close()
        else:
            self._idle_timer = loop.call_at(idle_at, self._check_idle)


class NameServer:
    """One name server: route tables, listener, expiry scan, health port."""

    def __init__(self, config: NamesrvConfig, clock_ms: Callable[[], int] | None = None) -> None:
        """Make a name server; :meth:`run` opens its ports.

        Args:
            config: Its settings.
            clock_ms: Milliseconds on a clock that never goes back; expiry is measured with it.

        Raises:
            ConfigError: A file with accounts or of TLS cannot be used.
        """
        self._clock_ms = clock_ms or _monotonic_ms
        scale = config.time_scale
        self._scan_first_seconds = SCAN_FIRST_SECONDS * scale
        self._scan_seconds = SCAN_SECONDS * scale
        self.idle_seconds = config.idle_seconds * scale
        self.routes = RouteInfoManager(
            BROKER_EXPIRY_MS * scale,
            most_brokers=config.max_brokers,
            most_topics=config.max_topics,
        )
        self.kv_config = KVConfigManager(config.kv_config_path, config.max_kv_entries)
        self.processor = Processor(self.routes, self.kv_config, config, self._clock_ms)
        self.connections: set[_Connection] = set()
        self.counts = ConnectionCounts(
            lambda: config.max_connections, lambda: config.max_connections_per_address
        )
        self._unfinished = Unfinished[_Connection](lambda: config.max_unfinished_bytes)
        self._unread = Unfinished[_Connection](
            lambda: MOST_UNREAD_BYTES,
            "{} bytes of answers are unread",
            lambda each: each.unread_bytes,
        )
        self.refusals = Refusals((CONNECTIONS, UNFINISHED, UNREAD))
        self.tls = ServerTls(config.access_folder, lambda: config.tls_mode)
        self.access = self._guard(config) if config.acl_enable else None
        self.port = config.listen_port
        self.http_port = config.http_port
        self.is_ready = False
        self._config = config
        self._look_timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._stopping = False

    async def run(
        self, shutdown: asyncio.Event, on_ready: Callable[[], None] | None = None
    ) -> None:
        """Serve until ``shutdown`` is set.

        ``port`` and ``http_port`` hold the real numbers once ``on_ready`` is called.

        Raises:
            ConfigError: A port cannot be opened, or the key-value file cannot be read.
        """
        self.loop = asyncio.get_running_loop()
        self.kv_config.load()
        config = self._config
        server = await self._listen(config.bind_address, self.port)
        self.port = server.sockets[0].getsockname()[1]
        scan = asyncio.create_task(self._scan(), name="scan not active brokers")
        health = HttpServer({"/livez": _livez, "/readyz": self._readyz, "/metrics": self._metrics})
        self._look_every(LOOK_MS / 1000, self.tls.look)
        if self.access is not None:
            self._look_every(ACCOUNTS_SECONDS * config.time_scale, self.access.files.look)
        try:
            if config.http_port:
                await self._listen_for_probes(health, config.http_address, config.http_port)
            self.is_ready = True
            if on_ready is not None:
                on_ready()
            await self._wait(shutdown, scan)
        finally:
            self.is_ready = False
            self._stopping = True
            for timer in self._look_timers.values():
                timer.cancel()
            scan.cancel()
            await asyncio.gather(scan, return_exceptions=True)
            server.close()
            await self._close_connections()
            await health.close()

    def serve(self, command: RemotingCommand, connection: _Connection) -> Answer | None:
        """Answer one command; answers to nothing are dropped, as we ask nothing."""
        if command.is_response:
            return None
        access = self.access
        if access is not None and command.code in ADMIN_CODES and access.is_on():
            remark = access.refusal(connection, command)
            if remark:
                answer = command.response(ResponseCode.SYSTEM_ERROR, remark)
                return None if command.is_oneway else answer
        return self.processor.process(command, connection)

    def unfinished(self, connection: _Connection, size: int) -> None:
        """Count the bytes of an incomplete request.

        Above the bound of all connections together, close the one with the most bytes."""
        found = self._unfinished.note(connection, size)
        if found is not None:
            self.refusals.note(UNFINISHED, found[0].peer, found[1])
            found[0].cut()

    def unread(self, connection: _Connection) -> None:
        """Count the bytes of answers that a peer has not read; the same bound and end as above."""
        found = self._unread.note(connection, connection.unread_bytes)
        if found is not None:
            self.refusals.note(UNREAD, found[0].peer, found[1])
            found[0].cut()

    def connection_lost(self, connection: _Connection) -> None:
        self._unfinished.note(connection, 0)
        self._unread.note(connection, 0)
        self.connections.discard(connection)
        for addr in self.routes.channel_lost(connection):
            if not self._stopping:
                logger.warning(
                    "broker dropped addr=%s: its connection %s is gone", addr, connection
                )

    def _guard(self, config: NamesrvConfig) -> RequestGuard:
        # What others do not need they do not load.
        from failback.client.remoting.access.guard import RequestGuard
        from failback.client.remoting.access.rules_file import RulesFiles

        if config.access_folder is None:
            problem = "must be set: there is no namesrv.conf beside which plain_acl.yml could be"
            raise ConfigError("failbackAccessFolder", problem)
        return RequestGuard(
            RulesFiles(config.access_folder),
            lambda: self.processor.config.acl_mode,
            ADMIN_CODES,
            routine_codes=ROUTINE_CODES,
        )

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        try:
            return await self.loop.create_server(
                lambda: self.tls.protect(_Connection(self)), host, port, backlog=1024
            )
        except OSError as error:
            raise ConfigError("listenPort", describe_listen_failure(host, port, error)) from error

    async def _listen_for_probes(self, health: HttpServer, host: str, port: int) -> None:
        try:
            await health.listen(host, port)
        except OSError as error:
            reason = describe_listen_failure(host, port, error)
            raise ConfigError("failbackHttpPort", reason) from error

    def _metrics(self, _method: str) -> Reply:
        refused = {
            **self.refusals.counts,
            "tables": self.processor.full_tables,
        }
        text = render(
            connections=self.counts.total,
            brokers=len(self.routes.live_brokers()),
            topics=len(self.routes.all_topics()),
            refused=refused,
            tls=self.tls,
            access=self.access,
        )
        return Reply(200, text, PROMETHEUS)

    def _readyz(self, _method: str) -> Reply:
        """Answer 200 while requests are served."""
        return Reply(200, b"ok\n") if self.is_ready else Reply(503, b"not ready\n")

    async def _wait(self, shutdown: asyncio.Event, scan: asyncio.Task[None]) -> None:
        """Return at shutdown; a scan that ended before has failed, and its error goes up."""
        stop = asyncio.create_task(shutdown.wait(), name="wait for shutdown")
        try:
            await asyncio.wait((stop, scan), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            await asyncio.gather(stop, return_exceptions=True)
        if scan.done():
            scan.result()

    def _look_every(self, seconds: float, look: Callable[[], None]) -> None:
        look()
        self._look_timers[look] = self.loop.call_later(seconds, self._look_every, seconds, look)

    async def _scan(self) -> None:
        """Drop brokers that have been silent for 120 s, and close their connections."""
        await asyncio.sleep(self._scan_first_seconds)
        while True:
            for addr, channel in self.routes.expire(self._clock_ms()):
                logger.warning("broker expired addr=%s channel=%s", addr, channel)
                if isinstance(channel, _Connection):
                    channel.close()
            await asyncio.sleep(self._scan_seconds)

    async def _close_connections(self) -> None:
        """Let written answers out, then close; cut after a second."""
        ends = [connection.closed for connection in self.connections]
        if not ends:
            return
        for connection in list(self.connections):
            connection.close()
        await asyncio.wait(ends, timeout=DRAIN_SECONDS)
        for connection in list(self.connections):
            connection.cut()
        await asyncio.wait(ends)


def _livez(_method: str) -> Reply:
    """Answer 200: the event loop turns, which answering proves."""
    return Reply(200, b"ok\n")


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def render(
    *,
    connections: int,
    brokers: int,
    topics: int,
    refused: Mapping[str, int],
    tls: ServerTls,
    access: RequestGuard | None = None,
) -> bytes:
    """Return the text format; ``refused`` is by bound."""
    # A name server that nobody scrapes does not load the library.
    from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    found: dict[Family, dict[tuple[str, ...], float]] = {
        NAMESRV_CONNECTIONS: {(): connections},
        NAMESRV_BROKERS: {(): brokers},
        NAMESRV_TOPICS: {(): topics},
        NAMESRV_REFUSED: {(bound,): count for bound, count in refused.items()},
    }
    if tls.not_after is not None:
        found[NAMESRV_TLS_NOT_AFTER] = {(): tls.not_after}
        found[NAMESRV_TLS_CONNECTIONS] = {(): tls.connections}
        found[NAMESRV_TLS_FAILURES] = {
            (reason,): count for reason, count in tls.failures.counts.items()
        }
    if access is not None:
        by_code = access.refused.items()
        found[NAMESRV_ACCESS_REFUSED] = {
            (key, str(code), mode): n for (key, code, mode), n in by_code
        }
        found[NAMESRV_ACCESS_USED] = {(key,): at for key, at in access.last_used.items()}
        found[NAMESRV_ACCESS_CURRENT] = {(): not access.files.problem}
    for family, values in found.items():
        kind = Counter if family.kind == "counter" else Gauge
        metric = kind(family.name, family.text, family.labels, registry=registry)
        for labels, value in values.items():
            (metric.labels(*labels) if labels else metric).inc(value)
    lines = generate_latest(registry).splitlines(keepends=True)
    return b"".join(line for line in lines if b"_created" not in line)
