"""Threads that watch brokers and name servers from outside, each with its own socket.

A witness is never the injector: it does not know what was done to a process, only what its peers
see. Times are stamped when bytes arrive. Nothing here ever connects to an HA port: a connection
there would count as a slave.
"""

from __future__ import annotations

import contextlib
import logging
import select
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from failback.chaos.cluster.broker_facts import boot_time
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import Stamp
from failback.chaos.cluster.wire import WireConnection
from failback.protocol import calls
from failback.protocol.errors import FailbackError, RemotingError, RemotingTimeout

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT: Final = 0.5
SILENCE_SECONDS: Final = 3.0
GAP_SECONDS: Final = 3.0


class RowWriter(Protocol):
    """What the witness needs of the consume log."""

    def write(self, table: str, /, **columns: Any) -> int: ...


@dataclass(frozen=True, slots=True)
class PeerEvent:
    """A watched broker hung up, or fell silent: ``FIN``, ``RST`` or ``SILENCE``."""

    address: str
    kind: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """A watched broker answered code 28."""

    address: str
    boot_ms: int | None
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class RouteEvent:
    """What one name server shows now: broker name to broker id to address."""

    nameserver: str
    brokers: Mapping[str, Mapping[int, str]]
    stamp: Stamp
    answered: bool = True


@dataclass(frozen=True, slots=True)
class OffsetEvent:
    """One sampled offset table: ``(group, topic, queue id)`` to offset."""

    address: str
    offsets: Mapping[tuple[str, str, int], int]
    marker_ms: int | None
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """Sampled queue limits of one broker: ``(topic, queue id)`` to ``(min, max)``."""

    address: str
    queues: Mapping[tuple[str, int], tuple[int, int]]
    stamp: Stamp


Event = PeerEvent | AnswerEvent | RouteEvent | OffsetEvent | QueueEvent
Listener = Callable[[Event], None]


class Watcher:
    """A thread that takes a look again and again, over one connection. Subclasses say at what.

    ``last_look`` is the monotonic time at which the newest look ended, answered or not: a thread
    that is stuck is seen by it.
    """

    def __init__(self, name: str, quiet_seconds: float, window_seconds: float) -> None:
        self.name = name
        self.last_look = time.monotonic()
        self.failure: BaseException | None = None
        self.notes: list[str] = []
        self._quiet_seconds = quiet_seconds
        self._window_seconds = window_seconds
        self._stop = threading.Event()
        self._window = threading.Event()
        self._slower = 1
        self._connection: WireConnection | None = None
        self._thread = threading.Thread(target=self._run, name=f"witness-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """Wait for the thread; true when it is gone."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def set_window(self, on: bool) -> None:
        """Look more often while a fault is in effect."""
        if on:
            self._window.set()
        else:
            self._window.clear()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def period(self) -> float:
        base = self._window_seconds if self._window.is_set() else self._quiet_seconds
        return base * self._slower

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                started = time.monotonic()
                self.look()
                self.last_look = time.monotonic()
                took = self.last_look - started
                if took > 1.0 and self._slower < 2 and self._slow_matters():
                    self._slower = 2
                    self.notes.append(f"{self.name}: a sample took {took:.2f} s, period doubled")
                self.pause(max(0.0, self.period - took))
        except BaseException as error:  # the thread's boundary: its death must be noticed
            self.failure = error
            logger.exception("witness %s failed", self.name)
        finally:
            self.close()

    def look(self) -> None:
        raise AssertionError("a watcher says what it looks at")

    def pause(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def close(self) -> None:
        """Hang up; the next look may connect again. Called at the thread's end, too."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _slow_matters(self) -> bool:
        return False


class WireWatch(Watcher):
    """One broker's remoting port: when it hangs up, falls silent, and answers again."""

    def __init__(self, address: str, listener: Listener) -> None:
        super().__init__(f"wire-{address}", quiet_seconds=1.0, window_seconds=0.2)
        self.address = address
        self._listener = listener
        self._silent_since: float | None = None
        self._silence_told = False

    def look(self) -> None:
        connection = self._connection
        if connection is None:
            try:
                connection = self._connection = WireConnection(self.address)
            except RemotingError:
                return
        try:
            runtime = connection.runtime_info(timeout=ANSWER_TIMEOUT)
        except RemotingTimeout:
            self._silence()
        except RemotingError as error:
            self._hung_up(getattr(error, "why", ""))
        except FailbackError as error:
            logger.debug("%s answers code 28 with %s", self.address, error)
        else:
            self._silent_since, self._silence_told = None, False
            self._listener(AnswerEvent(self.address, boot_time(runtime), now()))

    def pause(self, seconds: float) -> None:
        """Sleep on the socket, so that a FIN is stamped when it comes and not a period later."""
        connection = self._connection
        if connection is None or self._silent_since is not None:
            super().pause(seconds)
            return
        end = time.monotonic() + seconds
        while not self._stop.is_set() and (left := end - time.monotonic()) > 0:
            readable, _, _ = select.select([connection.socket], [], [], min(left, 0.25))
            if not readable:
                continue
            try:
                connection.socket.settimeout(0.0)
                data = connection.socket.recv(1 << 16)
            except ssl.SSLWantReadError:  # what came is TLS's own
                continue
            except OSError as error:
                self._hung_up("RST" if isinstance(error, ConnectionResetError) else str(error))
                return
            if not data:
                self._hung_up("FIN")
                return

    def _hung_up(self, why: str) -> None:
        stamp = now()
        self.close()
        self._silent_since, self._silence_told = None, False
        self._listener(PeerEvent(self.address, why if why in ("FIN", "RST") else "RST", stamp))

    def _silence(self) -> None:
        if self._silent_since is None:
            self._silent_since = time.monotonic() - ANSWER_TIMEOUT
        elif time.monotonic() - self._silent_since >= SILENCE_SECONDS:
            if not self._silence_told:
                self._silence_told = True
                self._listener(PeerEvent(self.address, "SILENCE", now()))
            # What TCP sends again it sends ever later: a new connection shows when an answer comes.
            self.close()
            self._silent_since = None


class RouteWatch(Watcher):
    """The route of one topic at one name server."""

    def __init__(self, nameserver: str, topic: str, log: RowWriter, listener: Listener) -> None:
        super().__init__(f"route-{nameserver}", quiet_seconds=1.0, window_seconds=0.5)
        self.nameserver = nameserver
        self._topic = topic
        self._log = log
        self._listener = listener
        self._shown: str | None = None

    def look(self) -> None:
        try:
            if self._connection is None:
                self._connection = WireConnection(self.nameserver)
            brokers = self._connection.route(self._topic)
        except FailbackError:
            self.close()
            self._listener(RouteEvent(self.nameserver, {}, now(), answered=False))
            return
        text = ",".join(
            f"{name}/{number}={address}"
            for name, addresses in sorted(brokers.items())
            for number, address in sorted(addresses.items())
        )
        if text != self._shown:
            self._log.write(
                "route", before=self._shown, after=text, trigger=f"WITNESS:{self.nameserver}"
            )
            self._shown = text
        self._listener(RouteEvent(self.nameserver, brokers, now()))


def first_pull_ok(address: str, topic: str) -> Stamp | None:
    """One group-less pull at a broker; the time of its answer, or ``None``."""
    with contextlib.suppress(FailbackError), WireConnection(address) as connection:
        connection.ask(calls.pull_by_tools(topic, 0, 0, count=1), timeout=1.0)
        return now()
    return None
