"""The slave's end: HAService.HAClient of 4.9.8 on the event loop.

It differs from the original where the wire allows it. The first report goes out at once, not after
5 s, and a new address is dialled at once. What one read brought is written with one system call and
acknowledged once.

Under the guarded rules it replicates only what continues its own log. Before each connection
:attr:`HaClient.judge` compares the logs, and the first record of the connection is checked before
it is appended (``join``). What is found then stays as it is: nothing is appended, acknowledged or
removed, and :attr:`HaClient.refusal` says where the logs part.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar, cast

from failback.broker.ha.config import HaConfig
from failback.broker.ha.join import JoinCheck, Refusal
from failback.broker.ha.replicated_store import HaStore
from failback.broker.ha.stream import Received, SlaveStream, encode_report
from failback.protocol.errors import FailbackError, StoreError

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

UNVERIFIED_TRIES: Final = 5
"""How often a master that does not answer is asked to compare logs before the stream must do."""

RECHECK_FACTOR: Final = 6
"""A refusal is looked at again after this many reconnect intervals: 30 s."""

_BUFFER_BYTES: Final = 256 * 1024
"""The most that one read brings."""

_TICK_SECONDS: Final = 0.001
"""A report that is due within this goes out at once, so that rounding cannot make a timer spin."""


class MasterUnknown(FailbackError):
    """The master could not be asked about its log."""


class _MasterConnection(asyncio.BufferedProtocol):
    """One connection to the master: appends what it sends, reports what this slave holds.

    It reads into a buffer of its own: a new one for each read may cost a copy half of its time.
    """

    def __init__(self, store: HaStore, config: HaConfig) -> None:
        self._store = store
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._stream = SlaveStream(store.max_physical_offset, config.mapped_file_bytes)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reported_at = 0.0
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.appended_bytes = 0
        self.reported_offset = -1
        self.refusal: Refusal | None = None
        self._join = _join_of(store, config) if config.is_guarded else None

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

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None:
            return  # aborted; the rest of what was in flight is asked for again
        received = self._stream.receive_data(self._buffer[:nbytes])
        try:
            self._append(received)
        except (StoreError, OSError) as error:
            self.close(f"cannot append: {error}")
            return
        except _NotOurLog as error:
            self.refusal = error.refusal
            self.close(str(error.refusal))
            return
        except Exception:  # a callback of the event loop: no caller would close the connection
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
            if self._join is None:
                self._store.append_raw(run.physical_offset, data)
                self.appended_bytes += len(data)
            else:
                self._append_checked(self._join, run.physical_offset, bytes(data))
        if self._store.max_physical_offset > before:
            self._report()

    def _append_checked(self, join: JoinCheck, physical_offset: int, data: bytes) -> None:
        """Append under the guarded rules.

        Raises:
            _NotOurLog: The bytes do not continue this log; nothing of them was appended.
        """
        taken = join.take(physical_offset, data)
        if isinstance(taken, Refusal):
            raise _NotOurLog(taken)
        if taken is None:
            return
        self._store.append_raw(*taken)
        self.appended_bytes += len(taken[1])
        stuck_at = self._store.dispatch_until_stuck()
        if stuck_at is not None:
            raise _NotOurLog(Refusal(stuck_at, "Corrupt", "what the master sent is no record"))

    def _report(self) -> None:
        """Report to the master what this slave holds: page cache, not disk."""
        if self._transport is None:
            return
        self.reported_offset = self._store.max_physical_offset
        self._transport.write(encode_report(self.reported_offset))
        self._reported_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._config.heartbeat_ms / 1000, self._tick)

    def _tick(self) -> None:
        """Report when nothing was reported for a heartbeat; one timer, not one for each report."""
        self._timer = None
        rest = self._reported_at + self._config.heartbeat_ms / 1000 - self._loop.time()
        if rest <= _TICK_SECONDS:
            self._report()
        elif self._transport is not None:
            self._timer = self._loop.call_later(rest, self._tick)


class _NotOurLog(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _join_of(store: HaStore, config: HaConfig) -> JoinCheck:
    store.dispatch_until_stuck()  # what is left is only the beginning of a record
    end, behind = store.max_physical_offset, store.dispatch_behind_bytes()
    rest = bytes(store.read_raw(end - behind, behind))
    return JoinCheck(end - behind if end else None, rest, config.mapped_file_bytes)


class HaClient:
    """Keeps this slave connected to its master's HA port."""

    def __init__(self, store: HaStore, config: HaConfig) -> None:
        self._store = store
        self._config = config
        self._address = config.master_address
        self._wake = asyncio.Event()
        self._connection: _MasterConnection | None = None
        self.judge: Callable[[str], Awaitable[Refusal | None]] | None = None
        """Guarded rules: says why not to replicate from the HA address, :class:`MasterUnknown` when
        it can't tell."""
        self.refusal: Refusal | None = None
        """Guarded rules: why this slave does not replicate now."""
        self._is_final = False
        """The refusal came from the master's bytes: only another master can change it."""
        self._unverified = 0

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
        """The last max physical offset reported to the master; -1 without a connection."""
        return -1 if self._connection is None else self._connection.reported_offset

    def update_master_address(self, address: str | None) -> None:
        """Dial ``address`` from now on. An open connection is kept, as the original does."""
        if address == self._address:
            return
        logger.info("HA: master address %s, was %s", address, self._address)
        self._address = address
        self.refusal, self._is_final = None, False  # they were about the other master
        self._wake.set()

    async def run(self, shutdown: asyncio.Event) -> None:
        """Stay connected until ``shutdown`` is set."""
        stop = asyncio.ensure_future(shutdown.wait())
        try:
            while not shutdown.is_set():
                pause_ms = self._config.reconnect_ms
                if not await self._is_allowed(stop):
                    refused = self.refusal is not None
                    pause_ms *= RECHECK_FACTOR if refused else 1 / UNVERIFIED_TRIES
                elif await self._connect_once(stop):
                    continue
                await self._pause(stop, pause_ms)
        finally:
            stop.cancel()

    async def _is_allowed(self, stop: asyncio.Task[Literal[True]]) -> bool:
        """Whether to connect now: always, unless the guarded rules ask to compare logs first."""
        if self.judge is None or self._address is None:
            return True
        if self._is_final:
            return False
        try:
            refusal = await _unless(stop, self.judge(self._address))
        except MasterUnknown as error:
            self._unverified += 1
            if self._unverified < UNVERIFIED_TRIES:
                logger.info("HA: the logs can't be compared yet: %s", error)
                return False
            logger.warning("HA: the logs can't be compared, only their join is: %s", error)
            return self.refusal is None
        if stop.done():
            return False
        self._unverified = 0
        self._note(refusal)
        return refusal is None

    def _note(self, refusal: Refusal | None) -> None:
        if refusal is not None and (self.refusal is None or refusal[:2] != self.refusal[:2]):
            logger.error(
                "HA: replication from %s stops: %s. This log stays as it is; wipe this store and "
                "let it copy its master again",
                self._address,
                refusal,
            )
        elif refusal is None and self.refusal is not None:
            logger.info("HA: replication from %s goes on", self._address)
        self.refusal = refusal

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
        tls = self._config.dial_tls()
        connection = _MasterConnection(self._store, self._config)
        try:
            async with asyncio.timeout(self._config.connect_timeout_ms / 1000):
                transport, _ = await loop.create_connection(
                    lambda: connection,
                    host,
                    int(port),
                    ssl=None if tls is None else tls.context,
                    server_hostname=None if tls is None else tls.name_of(host),
                )
        except (OSError, ValueError) as error:
            # When the connection came too late, uvloop closes it without connection_lost.
            connection.connection_lost(None)
            is_late = isinstance(error, TimeoutError)
            problem = error if tls is None or is_late else tls.why_not(error, host)
            logger.info(
                "HA: cannot connect to master %s: %s", self._address, problem or "timed out"
            )
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
        if connection.refusal is not None:
            self._is_final = True
            self._note(connection.refusal)
        lived_ms = (loop.time() - began) * 1000
        return connection.appended_bytes > 0 or lived_ms >= self._config.heartbeat_ms

    async def _pause(self, stop: asyncio.Task[Literal[True]], pause_ms: float) -> None:
        wake = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait(
                (wake, stop),
                timeout=pause_ms / 1000,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            wake.cancel()
            self._wake.clear()


async def _unless(stop: asyncio.Task[Literal[True]], work: Awaitable[_Result]) -> _Result | None:
    """Return what ``work`` gives; ``None``, and it is cancelled, once ``stop`` is done."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
