"""The asking side of remoting: one TCP connection per address, three styles of call.

Used by producer, consumers and admin client, and by the broker towards name servers and its
master. Rules of NettyRemotingClient and NettyRemotingAbstract, apache/rocketmq 4.9.8:

* a connection is made on first use and kept by address; callers that need one while it is
  being made wait for the same attempt; a broken one is replaced at the next use;
* a *synchronous* call (:meth:`RemotingClient.invoke`) that times out closes its connection,
  which fails everything else under way on it;
* an *asynchronous* call (:meth:`RemotingClient.invoke_async`) expires when a scan, once a
  second, finds it older than its timeout and one second more;
* what happens to calls under way when the peer closes in order (FIN, also what the kernel
  sends for a killed process) is a switch: 4.9.8 lets them run into their timers, 5.2 and
  asyncio fail them at once. A reset always fails them at once.

The writes of one loop iteration go to the kernel together: a peer that reads many frames at
once works much cheaper than one that reads them one by one.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from failback.client.remoting.addresses import addresses_now
from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.guarded.signing import REFUSALS, refusal
from failback.common.text import why
from failback.protocol.calls import Call
from failback.protocol.codes import FLAG_ONEWAY, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import (
    FailbackError,
    ProtocolError,
    RemotingConnectError,
    RemotingError,
    RemotingSendError,
    RemotingTimeout,
)
from failback.protocol.frames import MAX_FRAME_BYTES, FrameReader

logger = logging.getLogger(__name__)

Answer = RemotingCommand | None
RequestHandler = Callable[[str, RemotingCommand], Answer | Awaitable[Answer]]
CloseListener = Callable[[str, str], None]
T = TypeVar("T")

_MAX_OPAQUE: Final = 2**31 - 1
_CLOSE_SECONDS: Final = 1.0  # what close() waits for buffers to drain before it cuts
_NEVER: Final = -math.inf
_UNREAD: Final = "it answered nothing at all: give --tls if it takes TLS alone"
MOST_UNREAD_BYTES: Final = 1024 * 1024
"""Answers to a peer's own requests that it may leave unread."""
MOST_SERVED: Final = 1_000
"""Requests of one peer whose answers are being made."""
MOST_UNEXPECTED: Final = 64
"""Requests of a peer to a client that serves none."""


@dataclass(frozen=True, slots=True)
class RemotingSettings:
    """Settings of :class:`RemotingClient`; NettyClientConfig's values are the defaults."""

    connect_timeout_ms: float = 3000
    fail_inflight_on_eof: bool = True
    """``False``: as 4.9.8, calls under way outlive the peer's FIN until their own timers."""
    idle_seconds: float = 120
    """A connection that neither read nor wrote for so long is closed."""
    close_on_sync_timeout: bool = True
    max_outstanding: int = 65_535
    """Bound on calls under way; the transport's high-water mark bounds what is not yet sent."""
    async_scan_ms: float = 1000
    async_first_scan_ms: float = 3000
    async_grace_ms: float = 1000
    max_frame_bytes: int = MAX_FRAME_BYTES
    time_scale: float = 1.0
    """Multiplies the intervals above. Timeouts given to a call are real: their caller scales."""
    access: ClusterAccess | None = None
    """Of a guarded cluster; ``None``: requests are not signed, connections are plain."""

    def seconds(self, interval_ms: float) -> float:
        return interval_ms / 1000 * self.time_scale


class _Call:
    """One request under way."""

    __slots__ = ("connection", "future", "opaque", "scanned_from", "timeout_ms")

    def __init__(self, connection: _Connection, opaque: int, timeout_ms: float) -> None:
        self.connection = connection
        self.opaque = opaque
        self.timeout_ms = timeout_ms
        self.scanned_from = math.inf  # loop time from which on the scan expires it
        self.future: asyncio.Future[RemotingCommand] = connection.loop.create_future()

    def fail(self, error: RemotingError) -> None:
        self.connection.calls.pop(self.opaque, None)
        if not self.future.done():
            self.future.set_exception(error)


class _Connection(asyncio.Protocol):
    """One TCP connection to a peer, and the calls under way on it."""

    def __init__(self, client: RemotingClient, addr: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.addr = addr
        self.calls: dict[int, _Call] = {}
        self.active = False
        self.closed: asyncio.Future[None] = self.loop.create_future()
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader(client.settings.max_frame_bytes)
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._writable: asyncio.Future[None] | None = None
        self._close_reason: str | None = None
        self.asked = 0
        """Requests of the peer: all of them where none is served, else those under way."""
        self.hint = ""
        """What may be the reason that a lost connection brought nothing."""
        self._last_read = _NEVER
        self._last_write = self.loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None

    # --- callbacks of the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.active = True
        self._client.on_connection_made(self)
        self._check_idle()

    def data_received(self, data: bytes) -> None:
        self._last_read = self.loop.time()
        try:
            self._reader.receive_data(data)
            while self._close_reason is None and (frame := self._reader.next_frame()) is not None:
                self._dispatch(RemotingCommand.from_frame(frame))
        except ProtocolError as error:
            logger.warning("close connection addr=%s: %s", self.addr, error)
            self.close(f"protocol error: {error}", cut=True)

    def eof_received(self) -> bool:
        self.active = False  # the next call makes a new connection
        return False

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed.done():
            return
        self.active = False
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self.resume_writing()
        reason = self._close_reason or self._why_lost(exc)
        hangs = self._close_reason is None and exc is None
        if not hangs or self._client.settings.fail_inflight_on_eof:
            self._fail_calls(reason)
        self._client.on_connection_lost(self, reason)
        if not self.closed.done():
            self.closed.set_result(None)

    # --- what the client asks for ---

    def send(self, request: RemotingCommand) -> None:
        """Queue a request; it leaves with everything else of this loop iteration.

        Raises:
            RemotingSendError: The connection is gone.
        """
        if not self.active or self._close_reason is not None:
            raise RemotingSendError(self.addr, self._close_reason or "connection lost")
        data = request.encode()
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)

    @property
    def is_full(self) -> bool:
        """Whether the transport's buffer is above its high-water mark."""
        return self._writable is not None

    def is_at_none_of(self, addresses: Sequence[str]) -> bool:
        """Tell whether it leads elsewhere and nothing waits for an answer."""
        peer = self._transport.get_extra_info("peername") if self._transport else None
        return peer is not None and not self.calls and peer[0] not in addresses

    async def drained(self) -> None:
        """Wait until the transport's buffer is below its low-water mark."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def close(self, reason: str, *, cut: bool = False) -> None:
        """Close from our side: all calls under way fail, in 4.9.8 too.

        ``cut`` drops what is still to be written. After the connection was lost this does
        nothing: calls that outlive a FIN keep their timers.
        """
        if self.closed.done():
            return
        if self._close_reason is None:
            self._close_reason = reason
            self._fail_calls(reason)
        self.active = False
        if self._transport is not None:
            if cut:
                self._transport.abort()
            else:
                self._flush()
                self._transport.close()

    def answer(self, answer: RemotingCommand) -> None:
        """Send an answer; a peer that reads none of them is cut. Raises as :meth:`send`."""
        self.send(answer)
        written = self._transport.get_write_buffer_size() if self._transport is not None else 0
        unread = written + self._out_bytes
        if unread > MOST_UNREAD_BYTES:
            self.refuse(f"it has left {unread} bytes of answers to its own requests unread")

    def refuse(self, why: str) -> None:
        """Cut the connection of a peer that asks for too much."""
        logger.warning("close connection addr=%s: %s", self.addr, why)
        self.close(why, cut=True)

    # --- inside ---

    def _dispatch(self, command: RemotingCommand) -> None:
        if not command.is_response:
            self._client.on_request(self, command)
            return
        call = self.calls.pop(command.opaque, None)
        if call is None:
            logger.debug("drop answer to unknown opaque=%d addr=%s", command.opaque, self.addr)
        elif not call.future.done():
            call.future.set_result(command)

    def _flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if out and self._transport is not None and not self._transport.is_closing():
            self._last_write = self.loop.time()
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def _why_lost(self, exc: Exception | None) -> str:
        if self._last_read == _NEVER and self.calls:
            access = self._client.access_of(self.addr)
            self.hint = access.tls.unread_hint if access and access.tls else _UNREAD
        text = str(exc) if exc else "closed by the peer"
        return f"{text}; {self.hint}" if self.hint else text

    def _fail_calls(self, reason: str) -> None:
        for call in list(self.calls.values()):
            call.fail(RemotingSendError(self.addr, reason, under_way=True))

    def _check_idle(self) -> None:
        settings = self._client.settings
        last_use = max(self._last_read, self._last_write)
        idle_at = last_use + settings.seconds(settings.idle_seconds * 1000)
        if idle_at <= self.loop.time():
            logger.info("close idle connection addr=%s", self.addr)
            self.close("idle")
        else:
            self._idle_timer = self.loop.call_at(idle_at, self._check_idle)


class RemotingClient:
    """Calls peers by address ``host:port``. One per client instance, on one event loop."""

    def __init__(
        self,
        *,
        settings: RemotingSettings = RemotingSettings(),
        on_request: RequestHandler | None = None,
        on_close: CloseListener | None = None,
    ) -> None:
        """Make a client; nothing happens before the first call.

        Args:
            settings: Intervals, bounds and switches.
            on_request: Serves requests of peers, given the address and the request; what it
                returns, or the awaitable returns, is the answer; ``None`` sends none.
            on_close: Receives address and reason of every connection that ended.
        """
        self.settings = settings
        self._access = settings.access
        self.accesses: dict[str, ClusterAccess] = {}
        """Addresses that are asked in another way than ``settings.access`` says."""
        self.problem = ""
        """Whose guard turned us away last, and why."""
        self._on_request = on_request
        self._on_close = on_close
        self._table: dict[str, _Connection | asyncio.Task[_Connection | RemotingConnectError]] = {}
        self._living: set[_Connection] = set()
        self._opaques = itertools.count()
        self._calls: set[_Call] = set()
        self._scan_timer: asyncio.TimerHandle | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self.names: dict[str, str] = {}
        """Addresses that were found for names to these names, which certificates are for."""
        self._found: dict[str, tuple[str, ...]] = {}
        self._is_closed = False

    def access_of(self, addr: str) -> ClusterAccess | None:
        """Return how a peer is asked; a change counts for its next connection and request."""
        return self.accesses.get(addr, self._access) if self.accesses else self._access

    async def __aenter__(self) -> RemotingClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def invoke(
        self, addr: str, request: RemotingCommand, timeout_ms: float = 3000
    ) -> RemotingCommand:
        """Ask and wait; the time spent connecting counts. A timeout closes the connection.

        Raises:
            RemotingConnectError: No connection; nothing was sent.
            RemotingSendError: The connection broke.
            RemotingTimeout: No answer in ``timeout_ms``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        connection = await self._connection(addr, deadline, timeout_ms)
        call = self._send(connection, request, timeout_ms)
        timer = loop.call_at(deadline, self._expire_sync, call)
        try:
            answer = await call.future
        finally:
            timer.cancel()
            self._forget(call)
        return answer if answer.code not in REFUSALS else self._explained(addr, answer, request)

    async def call(self, addr: str, call: Call[T], timeout_ms: float = 3000) -> T:
        """Ask in the synchronous style and return what the answer says.

        Raises:
            RemotingError: As :meth:`invoke`.
            BrokerError, ProtocolError: As :meth:`Call.result`.
        """
        return call.result(await self.invoke(addr, call.request(), timeout_ms), addr)

    async def invoke_async(
        self, addr: str, request: RemotingCommand, timeout_ms: float = 3000
    ) -> RemotingCommand:
        """Ask in the asynchronous style: expiry is late, and leaves the connection open.

        It comes with the first scan after ``timeout_ms`` and one second; a 30 s pull expires
        31 to 32 s after it was issued.

        Raises:
            RemotingError: As :meth:`invoke`; also when too many calls are under way.
        """
        loop = asyncio.get_running_loop()
        settings = self.settings
        if len(self._calls) >= settings.max_outstanding:
            raise RemotingSendError(addr, f"{settings.max_outstanding} calls are under way")
        deadline = loop.time() + timeout_ms / 1000
        connection = await self._connection(addr, deadline, timeout_ms)
        call = self._send(connection, request, timeout_ms)
        call.scanned_from = deadline + settings.seconds(settings.async_grace_ms)
        if self._scan_timer is None:
            first = settings.seconds(settings.async_first_scan_ms)
            self._scan_timer = loop.call_later(first, self._scan)
        try:
            answer = await call.future
        finally:
            self._forget(call)
        return answer if answer.code not in REFUSALS else self._explained(addr, answer, request)

    async def oneway(self, addr: str, request: RemotingCommand, timeout_ms: float = 3000) -> None:
        """Send without asking for an answer; success means handed to the socket layer.

        Raises:
            RemotingConnectError: No connection.
            RemotingSendError: The connection is gone.
            RemotingTimeout: The peer reads so slowly that its buffer stayed full.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        connection = await self._connection(addr, deadline, timeout_ms)
        if (access := self.access_of(addr)) is not None:
            access.sign(request)
        request.flag |= FLAG_ONEWAY
        request.opaque = self._next_opaque(connection)
        connection.send(request)

    async def addresses_of(self, addr: str) -> tuple[str, ...]:
        """Return the ``host:port`` that ``addr`` stands for now: of its name several, or itself.

        Of a name with addresses of IPv4 and of IPv6 those of the kind with more are taken. A
        certificate of the name is taken at each. While the resolver is silent those of before
        stay. A connection to an address that the name has no more is closed when nothing waits.
        """
        host, port = _host_of(addr), addr.rpartition(":")[2]
        places = await addresses_now(host, int(port)) if port.isdecimal() else ()
        if not places:
            return self._found.get(addr, (addr,))
        entry = self._table.get(addr)
        if isinstance(entry, _Connection) and entry.is_at_none_of(places):
            entry.close("its name has other addresses now")
        kind = [each for each in places if (":" in each) == (":" in places[0])]
        found: tuple[str, ...] = (addr,)
        if len(kind) > 1:
            found = tuple(f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in kind)
            self.names.update(dict.fromkeys(found, host))
        self._found[addr] = found
        return found

    def is_connected(self, addr: str) -> bool:
        """Whether a call to ``addr`` would find a connection."""
        entry = self._table.get(addr)
        return isinstance(entry, _Connection) and entry.active

    def local_address(self, addr: str) -> tuple[str, int] | None:
        """Return our end of the connection to ``addr``, if there is one."""
        entry = self._table.get(addr)
        if not isinstance(entry, _Connection) or entry._transport is None:
            return None
        name = entry._transport.get_extra_info("sockname")
        return (name[0], name[1]) if name else None

    async def close(self) -> None:
        """Close everything; what was handed in before is still written, for up to a second."""
        self._is_closed = True
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        connecting = [entry for entry in self._table.values() if isinstance(entry, asyncio.Task)]
        for task in (*connecting, *self._handlers):
            task.cancel()
        await asyncio.gather(*connecting, *self._handlers, return_exceptions=True)
        for connection in list(self._living):
            connection.close("client closed")
        for call in list(self._calls):
            call.fail(RemotingSendError(call.connection.addr, "client closed", under_way=True))
        ends = [connection.closed for connection in self._living]
        if ends:
            await asyncio.wait(ends, timeout=_CLOSE_SECONDS)
            for connection in list(self._living):
                connection.close("client closed", cut=True)
            await asyncio.wait(ends)

    # --- called by connections ---

    def on_connection_made(self, connection: _Connection) -> None:
        self._living.add(connection)

    def on_connection_lost(self, connection: _Connection, reason: str) -> None:
        self._living.discard(connection)
        if self._table.get(connection.addr) is connection:
            del self._table[connection.addr]
        logger.debug("connection lost addr=%s: %s", connection.addr, reason)
        if connection.hint:
            self.problem = f"{connection.addr}: {connection.hint}"
        if self._on_close is not None:
            self._on_close(connection.addr, reason)

    def on_request(self, connection: _Connection, request: RemotingCommand) -> None:
        """Serve a peer's request: at once if the handler is a plain function."""
        connection.asked += 1
        most = MOST_UNEXPECTED if self._on_request is None else MOST_SERVED
        if connection.asked > most:
            connection.refuse(f"it sent more than {most} requests of its own")
            return
        if self._on_request is None:
            remark = f" request type {request.code} not supported"
            answer = request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            self._answer(connection, request, answer)
            return
        try:
            result = self._on_request(connection.addr, request)
        except Exception as error:  # a handler's bug must not end the connection
            result = _failure(connection.addr, request, error)
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(self._finish(connection, request, result))
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)
        else:
            self._answer(connection, request, result)
            connection.asked -= 1

    # --- inside ---

    async def _finish(
        self, connection: _Connection, request: RemotingCommand, result: Awaitable[Answer]
    ) -> None:
        try:
            answer = await result
        except Exception as error:  # as above
            answer = _failure(connection.addr, request, error)
        finally:
            connection.asked -= 1
        self._answer(connection, request, answer)

    def _answer(self, connection: _Connection, request: RemotingCommand, answer: Answer) -> None:
        if answer is None or request.is_oneway or not connection.active:
            return
        try:
            connection.answer(answer)
        except FailbackError as error:
            logger.warning("answer to code=%d of %s: %s", request.code, connection.addr, error)

    def _explained(
        self, addr: str, answer: RemotingCommand, request: RemotingCommand
    ) -> RemotingCommand:
        if refused := refusal(answer, request):
            answer.remark = refused
            self.problem = f"{addr} refused: {refused}"
        return answer

    async def _connection(self, addr: str, deadline: float, timeout_ms: float) -> _Connection:
        """Return a live connection to ``addr`` whose buffer takes more."""
        connection = await self._connect(addr, deadline)
        if connection.is_full:
            try:
                async with asyncio.timeout_at(deadline):
                    await connection.drained()
            except TimeoutError:
                raise RemotingTimeout(addr, timeout_ms) from None
        return connection

    async def _connect(self, addr: str, deadline: float) -> _Connection:
        """Return a live connection to ``addr``, sharing an attempt that is under way."""
        entry = self._table.get(addr)
        if isinstance(entry, _Connection) and entry.active:
            return entry
        if self._is_closed:
            raise RemotingConnectError(addr, "client closed")
        if not isinstance(entry, asyncio.Task):
            entry = asyncio.create_task(self._open(addr), name=f"connect {addr}")
            self._table[addr] = entry
        # Not awaited directly: one caller's cancellation or timeout is not the others'.
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait((entry,), timeout=max(left, 0))
        if not entry.done():
            raise RemotingConnectError(addr, "not connected in the time of the call")
        if entry.cancelled():
            raise RemotingConnectError(addr, "client closed")
        result = entry.result()
        if isinstance(result, RemotingConnectError):
            raise RemotingConnectError(addr, result.why)
        return result

    async def _open(self, addr: str) -> _Connection | RemotingConnectError:
        """Make the connection and put it into the table; failures are returned, not raised.

        Every caller may have left by then, and an exception would be reported as lost.
        """
        settings = self.settings
        port = addr.rpartition(":")[2]
        access = self.access_of(addr)
        host, tls = _host_of(addr), access.tls if access is not None else None
        name = self.names.get(addr, host)
        made: _Connection | RemotingConnectError
        connection = _Connection(self, addr)
        try:
            async with asyncio.timeout(settings.seconds(settings.connect_timeout_ms)):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    host,
                    int(port),
                    ssl=None if tls is None else tls.context,
                    server_hostname=None if tls is None else tls.name_of(name),
                )
            made = connection
        except TimeoutError:
            made = RemotingConnectError(addr, f"no answer in {settings.connect_timeout_ms:g} ms")
        except (OSError, ValueError, OverflowError) as error:
            problem = _why_not_connected(error) if tls is None else tls.why_not(error, name)
            made = RemotingConnectError(addr, problem)
        except asyncio.CancelledError:
            self._forget_late(connection)
            raise
        if isinstance(made, _Connection):
            self._table[addr] = made
        else:
            self._forget_late(connection)
            self._table.pop(addr, None)
            if tls is not None:
                self.problem = f"cannot reach {addr}: {made.why}"
        return made

    def _forget_late(self, connection: _Connection) -> None:
        """Count a connection that came after its time as lost: uvloop closes it without a word."""
        if connection in self._living:
            connection.connection_lost(None)

    def _send(self, connection: _Connection, request: RemotingCommand, timeout_ms: float) -> _Call:
        if (access := self.access_of(connection.addr)) is not None:
            access.sign(request)
        request.opaque = self._next_opaque(connection)
        connection.send(request)
        call = _Call(connection, request.opaque, timeout_ms)
        connection.calls[call.opaque] = call
        self._calls.add(call)
        return call

    def _forget(self, call: _Call) -> None:
        self._calls.discard(call)
        call.connection.calls.pop(call.opaque, None)

    def _next_opaque(self, connection: _Connection) -> int:
        opaque = next(self._opaques)
        if opaque >= _MAX_OPAQUE:
            self._opaques = itertools.count()
        while opaque in connection.calls:
            opaque = next(self._opaques)
        return opaque

    def _expire_sync(self, call: _Call) -> None:
        call.fail(_timeout(call))
        if self.settings.close_on_sync_timeout:
            call.connection.close("a synchronous call timed out", cut=True)

    def _scan(self) -> None:
        """Expire asynchronous calls; runs once a second from the first such call on."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for call in [call for call in self._calls if call.scanned_from <= now]:
            call.fail(_timeout(call))
        interval = self.settings.seconds(self.settings.async_scan_ms)
        self._scan_timer = loop.call_later(interval, self._scan)


def _timeout(call: _Call) -> RemotingTimeout:
    return RemotingTimeout(call.connection.addr, call.timeout_ms, call.connection.hint)


def _host_of(addr: str) -> str:
    return addr.rpartition(":")[0].strip("[]")


def _failure(addr: str, request: RemotingCommand, error: Exception) -> RemotingCommand:
    logger.exception("request code=%d of %s failed", request.code, addr)
    remark = f"{type(error).__name__}: {error}"
    return request.response(ResponseCode.SYSTEM_ERROR, remark)


def _why_not_connected(error: OSError | ValueError | OverflowError) -> str:
    """The reason in words, without number and address."""
    return why(error) if isinstance(error, OSError) else "must be HOST:PORT, such as 127.0.0.1:9876"


class NameServers:
    """Picks the name server to ask: sticks to one while it answers, else walks on.

    The list is shuffled once, so that clients spread; different clients can therefore look at
    different name servers (NettyRemotingClient.getAndCreateNameserverChannel).
    """

    def __init__(
        self, client: RemotingClient, addresses: Sequence[str], rng: random.Random | None = None
    ) -> None:
        self._client = client
        self._addresses = list(addresses)
        (rng or random.Random()).shuffle(self._addresses)
        self._chosen = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def chosen(self) -> str:
        """The address that is asked next."""
        return self._addresses[self._chosen] if self._addresses else "name server"

    async def invoke(self, request: RemotingCommand, timeout_ms: float = 3000) -> RemotingCommand:
        """Ask the chosen name server, or the first after it to which a connection can be made.

        Raises:
            RemotingConnectError: None can be reached, or none is known.
            RemotingError: The one that was asked did not answer.
        """
        last = RemotingConnectError("name server", "no address is configured")
        try:
            for _ in range(len(self._addresses)):
                addr = self._addresses[self._chosen]
                try:
                    return await self._client.invoke(addr, request, timeout_ms)
                except RemotingConnectError as error:
                    last = error
                    self._chosen = (self._chosen + 1) % len(self._addresses)
            raise last
        finally:
            del last  # or the error, whose traceback has this frame, would wait for the collector

    async def call(self, call: Call[T], timeout_ms: float = 3000) -> T:
        """Ask as :meth:`invoke` does, and return what the answer says."""
        return call.result(await self.invoke(call.request(), timeout_ms), self.chosen)
