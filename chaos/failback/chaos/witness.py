"""Threads that watch brokers and name servers from outside, each with its own socket.

A witness is never the injector: it does not know what was done to a process, only what its peers
see. Times are stamped when bytes arrive. Nothing here ever connects to an HA port: a connection
there would count as a slave.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from failback.chaos.facts import boot_time
from failback.chaos.target import Target
from failback.chaos.view import Member, Stamp
from failback.chaos.wire import WireConnection, now, parse_offset_table, split_offset_key
from failback.protocol.errors import FailbackError, ProtocolError, RemotingError, RemotingTimeout

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT: Final = 0.5
SILENCE_SECONDS: Final = 3.0
GAP_SECONDS: Final = 3.0
MARKER_TOPIC: Final = "failback-witness"
MARKER_GROUP: Final = "FAILBACK_WITNESS"
MARKER_KEY: Final = f"{MARKER_TOPIC}@{MARKER_GROUP}"
OFFSET_FILES: Final = (
    ("file", "config/consumerOffset.json"),
    ("bak", "config/consumerOffset.json.bak"),
)
ALL_QUEUES: Final = -1
"""``qid`` of the row that carries the number of entries of a sampled table."""


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
    runtime: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RouteEvent:
    """What one name server shows now: broker name to broker id to address."""

    nameserver: str
    brokers: Mapping[str, Mapping[int, str]]
    stamp: Stamp


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
    """A thread that takes a look again and again. Subclasses say what a look is.

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
        """Called at the thread's end."""

    def _slow_matters(self) -> bool:
        return False


class WireWatch(Watcher):
    """One broker's remoting port: when it hangs up, falls silent, and answers again."""

    def __init__(self, address: str, listener: Listener) -> None:
        super().__init__(f"wire-{address}", quiet_seconds=1.0, window_seconds=0.2)
        self.address = address
        self._listener = listener
        self._connection: WireConnection | None = None
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
            self._listener(AnswerEvent(self.address, boot_time(runtime), now(), runtime))

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
                data = connection.socket.recv(1 << 16)
            except OSError as error:
                self._hung_up("RST" if isinstance(error, ConnectionResetError) else str(error))
                return
            if not data:
                self._hung_up("FIN")
                return

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _hung_up(self, why: str) -> None:
        stamp = now()
        self.close()
        self._silent_since, self._silence_told = None, False
        self._listener(PeerEvent(self.address, why if why in ("FIN", "RST") else "RST", stamp))

    def _silence(self) -> None:
        if self._silent_since is None:
            self._silent_since = time.monotonic() - ANSWER_TIMEOUT
        elif not self._silence_told and time.monotonic() - self._silent_since >= SILENCE_SECONDS:
            self._silence_told = True
            self._listener(PeerEvent(self.address, "SILENCE", now()))


class RouteWatch(Watcher):
    """The route of one topic at one name server."""

    def __init__(self, nameserver: str, topic: str, log: RowWriter, listener: Listener) -> None:
        super().__init__(f"route-{nameserver}", quiet_seconds=1.0, window_seconds=0.5)
        self.nameserver = nameserver
        self._topic = topic
        self._log = log
        self._listener = listener
        self._connection: WireConnection | None = None
        self._shown: str | None = None

    def look(self) -> None:
        try:
            if self._connection is None:
                self._connection = WireConnection(self.nameserver)
            brokers = self._connection.route(self._topic)
        except FailbackError:
            self.close()
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

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Sampler(Watcher):
    """Offset tables, offset files and queue limits of one broker.

    It also commits a marker at a master, a time that the slave's table shows after its next
    synchronisation: the only way to see a Java slave's synchronisation from outside.
    """

    def __init__(
        self,
        member: Member,
        *,
        target: Target,
        topics: Sequence[str],
        groups: Sequence[str],
        log: RowWriter,
        listener: Listener,
        period_seconds: float = 1.0,
    ) -> None:
        super().__init__(f"sampler-{member.address}", period_seconds, period_seconds)
        self.member = member
        self._target = target
        self._topics = tuple(topics)
        self._groups = frozenset(groups)
        self._log = log
        self._listener = listener
        self._boot_ms: int | None = None
        self._connection: WireConnection | None = None
        self._files: dict[str, tuple[int, str]] = {}
        self.samples = 0
        self.spent_seconds = 0.0

    def look(self) -> None:
        started = time.monotonic()
        self._sample_files()
        try:
            if self._connection is None:
                self._connection = WireConnection(self.member.address)
                # A connection ends with the process behind it, so this holds until it does.
                self._boot_ms = boot_time(self._connection.runtime_info(timeout=1.0))
            self._mark()
            self._sample_offsets(self._connection)
            self._sample_queues(self._connection)
        except FailbackError:
            self.close()  # dead, paused or starting: the wire watch says which
        self.samples += 1
        self.spent_seconds += time.monotonic() - started

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _slow_matters(self) -> bool:
        return self._connection is not None

    def _mark(self) -> None:
        if self.member.role == "master" and self._connection is not None:
            marker = time.monotonic_ns() // 1_000_000
            self._connection.commit_offset(MARKER_GROUP, MARKER_TOPIC, 0, marker)

    def _sample_offsets(self, connection: WireConnection) -> None:
        table = connection.all_offsets(timeout=1.0)
        stamp = now()
        marker = table.pop(MARKER_KEY, {}).get(0)
        offsets = self._write_table("code43", table, stamp, None)
        self._listener(OffsetEvent(self.member.address, offsets, marker, stamp))

    def _sample_files(self) -> None:
        """Both offset files, whenever one of them changed."""
        for source, path in OFFSET_FILES:
            try:
                status = self._target.stat_store(self.member, path)
                if status is None or self._files.get(source) == (status.mtime_ns, status.sha256):
                    continue
                table = parse_offset_table(self._target.read_store(self.member, path))
            except (OSError, FailbackError) as error:
                if isinstance(error, ProtocolError):
                    self.notes.append(f"{self.member.pod} {path}: {error}")
                continue
            self._files[source] = (status.mtime_ns, status.sha256)
            table.pop(MARKER_KEY, None)
            self._write_table(source, table, now(), status.mtime_ns)

    def _write_table(
        self, source: str, table: Mapping[str, Mapping[int, int]], stamp: Stamp, mtime: int | None
    ) -> dict[tuple[str, str, int], int]:
        offsets: dict[tuple[str, str, int], int] = {}
        for key, queues in table.items():
            topic, group = split_offset_key(key)
            if group in self._groups:
                offsets.update({(group, topic, queue): off for queue, off in queues.items()})
        common = {
            "addr": self.member.address,
            "broker": self.member.broker_name,
            "bid": self.member.broker_id,
            "binc": self._boot_ms,
            "source": source,
            "file_mtime_ns": mtime,
            "t": stamp.mono_ns,
        }
        for (group, topic, queue), offset in offsets.items():
            self._log.write(
                "broker_offset_sample", grp=group, ptopic=topic, qid=queue, off=offset, **common
            )
        entries = sum(len(queues) for queues in table.values())
        self._log.write(
            "broker_offset_sample", grp="", ptopic="", qid=ALL_QUEUES, off=entries, **common
        )
        return offsets

    def _sample_queues(self, connection: WireConnection) -> None:
        queues: dict[tuple[str, int], tuple[int, int]] = {}
        for topic in self._topics:
            for queue, limits in connection.topic_stats(topic, timeout=1.0).items():
                queues[topic, queue] = limits
        stamp = now()
        for (topic, queue), (lowest, highest) in queues.items():
            self._log.write(
                "broker_queue_sample",
                addr=self.member.address,
                broker=self.member.broker_name,
                bid=self.member.broker_id,
                binc=self._boot_ms,
                ptopic=topic,
                qid=queue,
                min=lowest,
                max=highest,
                t=stamp.mono_ns,
            )
        self._listener(QueueEvent(self.member.address, queues, stamp))


def first_pull_ok(address: str, topic: str) -> Stamp | None:
    """One group-less pull at a broker; the time of its answer, or ``None``."""
    with contextlib.suppress(FailbackError), WireConnection(address) as connection:
        connection.pull(topic, 0, 0, count=1, timeout=1.0)
        return now()
    return None
