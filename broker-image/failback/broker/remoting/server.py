"""The remoting server: two ports, their connections, and the run that answers requests.

A *run* is all requests that one turn of the event loop read. Its sends are appended to the store's
pending bytes while the frames are walked. At its end :meth:`RemotingServer.finish` makes one write
to the log, then one write per connection, then wakes held pulls. Large runs are written to the log
in parts as they come. The order matters: a queue entry is never visible before its record, an
answer never goes out before its record is written.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from failback.broker.remoting.connection import BrokerConnection
from failback.broker.remoting.limits import Busy, PeerLimits
from failback.client.remoting.port_owner import bind_error
from failback.common.joined_writes import MustWait
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError, FailbackError, ProtocolError, StoreError
from failback.protocol.frames import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    PREFIX,
    Frame,
    check_prefix,
)

logger = logging.getLogger(__name__)

Answer = RemotingCommand | None
Handler = Callable[[BrokerConnection, RemotingCommand], Answer | Awaitable[Answer]]
FastHandler = Callable[[BrokerConnection, bytes, int, int, int], bool]
"""Arguments: connection, read, header start, header end, frame end; False = decode generically."""

RunHandler = Callable[[BrokerConnection, bytes, int], int]
"""Arguments: connection, read, begin of a frame. Returns where it stopped handling frames."""


LISTEN_BACKLOG: Final = 1024
TURN_SECONDS: Final = 0.005
"""How long one connection may be served before it is the others' turn."""
MOST_PENDING_BYTES: Final = 1024 * 1024
"""Bytes of records that may wait for the end of a run. More are written at once, and their memory
is used again. A turn may read 8 MiB. In memory that is fresh from the system and in no cache, a
message of 16 KiB cost four times as much."""
# fastjson writes the code first: the first bytes of a header tell which decoder fits it.
_PEEK_BYTES: Final = 12


class RunStore(Protocol):
    """The store as the server uses it: the end of a run writes the appended records."""

    @property
    def pending_bytes(self) -> int: ...

    def commit_pending(self) -> None: ...


class Guard(Protocol):
    """Access control as the server uses it."""

    def is_on(self) -> bool: ...

    def allowed_sends(self, data: bytes, position: int, /) -> int:
        """Return where those sends of a read end that are allowed without a doubt."""
        ...

    def refusal(self, connection: BrokerConnection, request: RemotingCommand, /) -> str:
        """Return the remark that refuses a request, and count it; empty: it goes on."""
        ...


class RemotingServer:
    """Owns listeners and connections; processors register their handlers here."""

    def __init__(
        self, store: RunStore, limits: PeerLimits, *, on_fatal: Callable[[Exception], None]
    ) -> None:
        self._store = store
        self.limits = limits
        self._on_fatal = on_fatal
        self._handlers: dict[int, Handler] = {}
        self._main_port_only: set[int] = set()
        self._fast: dict[bytes, FastHandler] = {}
        self._runs: dict[bytes, RunHandler] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._dirty: list[BrokerConnection] = []
        self._scheduled = False
        self._stopping = False
        self.turn_seconds = TURN_SECONDS
        self._none_open = asyncio.Event()
        self._none_open.set()
        self.protect: Callable[[BrokerConnection], asyncio.Protocol] = _plain
        """Returns what an accepted socket talks to: the connection, or TLS in front of it."""
        self.guard: Guard | None = None
        """Asked before each request, in every way into the broker; ``None``: all are allowed."""
        self.connections: set[BrokerConnection] = set()
        self.uncommitted = False
        """Whether this run appended messages that are not written yet."""
        self.after_commit: Callable[[], None] = _nothing
        """Called at the end of a run once its records are written: hands answers to waiters."""
        self.after_answers: Callable[[], None] = _nothing
        """Called when the answers are out: wakes held pulls."""
        self.on_closed: Callable[[BrokerConnection], None] = _ignore
        self.on_drained: Callable[[BrokerConnection], None] = _ignore
        self.on_response: Callable[[BrokerConnection, RemotingCommand], None] = _drop
        """Called with a client's answer to a request of the broker."""
        self._loop = asyncio.get_running_loop()
        self._run_began = self._loop.time()

    # --- registration of handlers ------------------------------------------------------

    def handle(self, code: int, handler: Handler, *, main_port_only: bool = False) -> None:
        """Answer requests with ``code`` by ``handler``; exceptions become code 1."""
        self._handlers[int(code)] = handler
        if main_port_only:
            self._main_port_only.add(int(code))

    def handle_fast(self, code: int, handler: FastHandler) -> None:
        """Give JSON requests that begin with ``code`` to ``handler`` before any decoding."""
        self._fast[_peek(code)] = handler

    def handle_run(self, code: int, handler: RunHandler) -> None:
        """Give a read that begins with such a request to ``handler`` first."""
        self._runs[_peek(code)] = handler

    # --- life cycle --------------------------------------------------------------------

    async def bind(self, host: str, port: int, *, is_fast_port: bool = False) -> None:
        """Take ``host:port``; connections are accepted from :meth:`start_serving` on.

        Raises:
            ConfigError: The port is in use or the address is not ours; names the process that
            listens there.
        """
        try:
            server = await self._loop.create_server(
                lambda: self.protect(BrokerConnection(self, is_fast_port=is_fast_port)),
                host,
                port,
                backlog=LISTEN_BACKLOG,
                start_serving=False,
            )
        except OSError as error:
            raise bind_error(host, port, error, port_key="listenPort") from error
        self._servers.append(server)

    async def start_serving(self) -> None:
        for server in self._servers:
            await server.start_serving()

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Close all connections, after their pending answers have been written."""
        self._stopping = True
        self.stop_accepting()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.finish()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort()
        await self._none_open.wait()

    # --- called by connections -----------------------------------------------------------

    def opened(self, connection: BrokerConnection) -> None:
        connection.last_active = self._loop.time()
        self.connections.add(connection)
        self._none_open.clear()
        if self._stopping or not self.limits.admits(connection):
            connection.abort()

    def unread(self, connection: BrokerConnection, size: int) -> None:
        self.limits.check_unread(connection, size)

    def unfinished(self, connection: BrokerConnection, size: int) -> None:
        self.limits.check_unfinished(connection, size)

    def lost(self, connection: BrokerConnection) -> None:
        self.limits.gone(connection)
        self.connections.discard(connection)
        if not self.connections:
            self._none_open.set()
        self.on_closed(connection)

    def drained(self, connection: BrokerConnection) -> None:
        self.on_drained(connection)

    def received(self, connection: BrokerConnection, data: bytes) -> int:
        """Handle the whole frames of one read; return where an incomplete one begins.

        Raises:
            ProtocolError: The peer broke the framing. Close the connection.
            StoreError: As :meth:`commit`.

        Stops before a request that has to wait, and after one with which the time of this turn is
        over, or the peer's answers too many. The connection goes on with the rest.
        """
        connection.last_active = self._loop.time()
        if not self._scheduled:
            self._run_began = connection.last_active
        position, size = 0, len(data)
        unpack, fast, runs = PREFIX.unpack_from, self._fast, self._runs
        guard = self.guard if self.guard is not None and self.guard.is_on() else None
        checked = 0 if connection.is_checked else -1  # where a request begins that has waited
        connection.is_checked = False
        while size - position >= 8:
            length, mark = unpack(data, position)
            header_start = position + 8
            header_end = header_start + (mark & 0xFFFFFF)
            end = position + LENGTH_BYTES + length
            if header_end > end or mark > 0x1FFFFFF or length + LENGTH_BYTES > MAX_FRAME_BYTES:
                check_prefix(length, mark >> 24, mark & 0xFFFFFF, MAX_FRAME_BYTES)
            if end > size:
                break
            peeked = data[header_start : header_start + _PEEK_BYTES]
            handler = fast.get(peeked) if mark <= 0xFFFFFF else None
            request = None
            run, readable = runs.get(peeked), data
            if guard is not None and run is not None:
                allowed = guard.allowed_sends(data, position)
                if allowed == position:
                    run = None
                elif allowed < size:
                    readable = data[:allowed]
            if guard is not None and run is None:
                request, is_usual = _decoded(data, mark, header_start, header_end, end)
                if not is_usual or peeked != _peek(request.code):
                    handler = None  # it would read another request than was checked
                if position != checked and self._is_refused(guard, connection, request):
                    handler = _answered
            if run is not None and (left := run(connection, readable, position)) > position:
                position = left
                if guard is None:
                    continue
            else:
                try:
                    if handler is None or not handler(
                        connection, data, header_start, header_end, end
                    ):
                        if request is None:
                            request, _ = _decoded(data, mark, header_start, header_end, end)
                        self._generic(connection, request)
                except MustWait as waiting:
                    frame = Frame(mark >> 24, data[header_start:header_end], data[header_end:end])
                    if self._waits(connection, frame, waiting):
                        connection.is_checked = True
                        break
                position = end
            if connection.closed or (connection.write_paused and connection.is_behind):
                break
            if position < size and self._is_turn_over(connection):
                connection.go_on_soon()
                break
        if self.uncommitted and self._store.pending_bytes >= MOST_PENDING_BYTES:
            self.commit()
        return position

    def _is_turn_over(self, connection: BrokerConnection) -> bool:
        return self._loop.time() >= connection.last_active + self.turn_seconds

    def _waits(self, connection: BrokerConnection, frame: Frame, waiting: MustWait) -> bool:
        """Let a connection wait with the request of ``frame``; false where that is refused."""
        try:
            self.limits.take_new_names(connection, waiting.count)
            connection.wait_for(waiting.order())
        except (Busy, ProtocolError) as error:
            request = RemotingCommand.from_frame(frame)
            self._send(connection, request, failure(request, error))
            return False
        return True

    # --- answering -----------------------------------------------------------------------

    def mark(self, connection: BrokerConnection) -> None:
        """Note that ``connection`` has something to write at the end of this run."""
        if not connection.out:
            self._dirty.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.finish)

    def note_append(self) -> None:
        """Note that the store has pending records, also when no answer waits for them."""
        self.uncommitted = True
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.finish)

    def commit(self) -> None:
        """Write pending records now: later requests of this run may read them."""
        if not self.uncommitted:
            return
        self.uncommitted = False
        try:
            self._store.commit_pending()
        except StoreError as error:
            # Nothing of this run may be acknowledged, and clients must not wait for it: a
            # broken connection makes them retry elsewhere.
            self._drop_run()
            self._on_fatal(error)
            raise
        self.after_commit()

    def commit_now(self) -> None:
        """Write records appended outside of a request; the rest of the run follows as usual.

        Raises:
            StoreError: As :meth:`commit`.
        """
        self.note_append()
        self.commit()

    def _drop_run(self) -> None:
        for connection in list(self.connections):
            connection.abort()
        self._dirty.clear()

    def finish(self) -> None:
        """End the run: one write to the log, the answers, then the wake-ups and theirs."""
        self._scheduled = False
        try:
            self.commit()
        except StoreError:
            logger.error("store: the records of this run could not be written")
            return
        self._flush()
        self.after_answers()
        if self.uncommitted or self._dirty:
            # A wake-up may itself store an event; its answers leave in the same turn.
            self.commit()
            self._flush()

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    def _is_refused(
        self, guard: Guard, connection: BrokerConnection, request: RemotingCommand
    ) -> bool:
        """Answer a request that the guard refuses, also one that no handler would take."""
        if request.is_response:
            return False
        remark = guard.refusal(connection, request)
        if remark:
            answer = request.response(ResponseCode.SYSTEM_ERROR, remark)
            self._send(connection, request, answer)
        return bool(remark)

    def _generic(self, connection: BrokerConnection, request: RemotingCommand) -> None:
        """Answer any request; one that fails gets code 1 and the connection lives."""
        if request.is_response:
            self.on_response(connection, request)
            return
        if self.uncommitted:
            self.commit()
        handler = self._handlers.get(request.code)
        if handler is None or (connection.is_fast_port and request.code in self._main_port_only):
            remark = f" request type {request.code} not supported"
            answer = request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            self._send(connection, request, answer)
            return
        try:
            request.check_body()
            outcome = handler(connection, request)
        except MustWait:
            raise
        # One boundary for every processor: an error of one request is answered to its
        # sender and must not reach the other connections.
        except Exception as error:
            outcome = failure(request, error)
        if inspect.isawaitable(outcome):
            self._spawn(connection, request, outcome)
        else:
            self._send(connection, request, outcome)

    def _send(self, connection: BrokerConnection, request: RemotingCommand, answer: Answer) -> None:
        if answer is None or request.is_oneway:
            return
        try:
            frame = answer.encode()
        except ProtocolError as error:  # above the frame limit, or a number too large for binary
            frame = failure(request, error).encode()
        connection.push(frame)
        if connection.is_large and not self.uncommitted:
            # Only now can the transport say that the peer does not read.
            connection.flush()

    def _spawn(
        self, connection: BrokerConnection, request: RemotingCommand, outcome: Awaitable[Answer]
    ) -> None:
        try:
            self.limits.begin_task(connection, len(self._tasks))
        except Busy as busy:
            if inspect.iscoroutine(outcome):
                outcome.close()
            self._send(connection, request, failure(request, busy))
            return
        task = asyncio.ensure_future(self._answer_later(connection, request, outcome))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_later(
        self, connection: BrokerConnection, request: RemotingCommand, outcome: Awaitable[Answer]
    ) -> None:
        try:
            answer = await outcome
        # As in _generic.
        except Exception as error:
            answer = failure(request, error)
        finally:
            connection.tasks -= 1
        self._send(connection, request, answer)

    # --- housekeeping ---------------------------------------------------------------------

    def run_seconds(self) -> float:
        """How long ago the first read of this run began."""
        return self._loop.time() - self._run_began

    def close_unread(self) -> None:
        """Close the connections with most unread bytes, where all together exceed the bound."""
        self.limits.check_unread_in_all(self.connections)

    def close_idle(self, idle_seconds: float) -> None:
        """Close connections on which nothing was received or sent for ``idle_seconds``."""
        horizon = self._loop.time() - idle_seconds
        for connection in list(self.connections):
            if connection.last_active < horizon:
                logger.info("connection %s closed: idle", connection.address)
                connection.abort()


def failure(request: RemotingCommand, error: Exception) -> RemotingCommand:
    """Answer code 1 with a remark a person can read, or code 2 where a bound is reached."""
    if isinstance(error, Busy):
        return request.response(ResponseCode.SYSTEM_BUSY, str(error))
    if isinstance(error, ProtocolError | ConfigError):
        return request.response(ResponseCode.SYSTEM_ERROR, str(error))
    if isinstance(error, FailbackError):
        logger.warning("request %s failed: %s", request_name(request.code), error)
        return request.response(ResponseCode.SYSTEM_ERROR, str(error))
    logger.error("request %s failed", request_name(request.code), exc_info=error)
    return request.response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def request_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def _decoded(
    data: bytes, mark: int, header_start: int, header_end: int, end: int
) -> tuple[RemotingCommand, bool]:
    """Return a frame's request, and whether every decoder reads the same in it."""
    frame = Frame(mark >> 24, data[header_start:header_end], data[header_end:end])
    usual = RemotingCommand.usual(frame) if mark <= 0xFFFFFF else None
    return usual or RemotingCommand.from_frame(frame), usual is not None


def _answered(_connection: BrokerConnection, _data: bytes, *_places: int) -> bool:
    return True


def _peek(code: int) -> bytes:
    start = b'{"code":%d,"extFields":' % int(code)
    return start[:_PEEK_BYTES]


def _plain(connection: BrokerConnection) -> asyncio.Protocol:
    return connection


def _nothing() -> None:
    return None


def _ignore(_connection: BrokerConnection) -> None:
    return None


def _drop(connection: BrokerConnection, response: RemotingCommand) -> None:
    logger.debug("unexpected response %d from %s", response.opaque, connection.address)
