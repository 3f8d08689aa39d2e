"""The workload's processes, as the harness sees them: started, asked, stopped, killed, counted.

Each producer and each consumer member is a process of its own. They outlive a killed harness, so
each is in the undo ledger before it starts. We are their parent, so we know their wait statuses.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from failback.chaos import processes
from failback.chaos.errors import TargetError
from failback.chaos.ledger import STOP_WORKLOAD, UndoLedger
from failback.chaos.model import Group, TopicLoad, Workload
from failback.chaos.runfolder import RunFolder
from failback.chaos.schedule import sub_seed
from failback.chaos.view import SignalReceipt, Stamp
from failback.chaos.wire import now

logger = logging.getLogger(__name__)

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
_RATE_SECONDS: Final = 5.0


@dataclass(slots=True)
class Exit:
    """How a process of the workload ended."""

    stamp: Stamp
    signal: int | None
    code: int | None


@dataclass(slots=True)
class WorkloadProcess:
    """One process and what it last said about itself."""

    name: str
    role: str
    proc_no: int
    proc: bytes
    plan_file: Path
    socket_path: Path
    group: str = ""
    member: int = 0
    popen: subprocess.Popen[bytes] | None = None
    pid: int = 0
    ticks: int = 0
    undo: str = ""
    exit: Exit | None = None
    wanted: bool = True
    """Should it be running? False from the moment that somebody asks it to end."""
    stats: dict[str, Any] = field(default_factory=dict)
    stats_at: float = 0.0
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))
    last_seq: int | None = None

    @property
    def running(self) -> bool:
        return self.popen is not None and self.exit is None


class Fleet:
    """Producers and consumers of one run. Thread-safe."""

    def __init__(
        self,
        *,
        folder: RunFolder,
        ledger: UndoLedger,
        run: str,
        workload: Workload,
        nameservers: tuple[str, ...],
        time_scale: float,
        seeds: Mapping[str, int],
        start_phases: Mapping[str, float],
        first_proc_no: int = 1,
        on_unplanned: Callable[[WorkloadProcess], None] = lambda _: None,
        on_started: Callable[[WorkloadProcess], None] = lambda _: None,
    ) -> None:
        self.processes: list[WorkloadProcess] = []
        self.failures: list[str] = []
        self._folder = folder
        self._ledger = ledger
        self._run = run
        self._workload = workload
        self._nameservers = nameservers
        self._time_scale = time_scale
        self._seeds = seeds
        self._phases = start_phases
        self._next_proc_no = first_proc_no
        self._on_unplanned = on_unplanned
        self._on_started = on_started
        self._lock = threading.RLock()
        self._stop = threading.Event()
        # A Unix socket's path is short by law; a run folder's is not.
        self._sockets = Path(tempfile.mkdtemp(prefix="failback-"))
        self._thread = threading.Thread(target=self._ask_all, name="fleet", daemon=True)
        self._waiters: list[threading.Thread] = []
        self._restarts: dict[str, int] = {}
        self.stuck_after_seconds = 5.0

    # --- starting --------------------------------------------------------------------------------

    def start_producers(self) -> None:
        for index in range(self._workload.producers):
            self._start(f"producer-{index}", PRODUCER, self._producer_plan(index))
        if self._thread.ident is None:
            self._thread.start()

    def start_consumers(self) -> None:
        for group in self._workload.groups:
            for member in range(group.members):
                phase = self._phases.get(f"{group.name}-{member}", 0.0)
                self.start_member(group.name, member, delay_seconds=phase)
        if self._thread.ident is None:
            self._thread.start()

    def start_member(self, group: str, member: int, *, delay_seconds: float = 0.0) -> None:
        """Start one member, unless it runs: a new process with a new identity."""
        name = f"{group}-{member}"
        with self._lock:
            if any(each.name == name and each.running for each in self.processes):
                return
            found = next(each for each in self._workload.groups if each.name == group)
            plan = self._consumer_plan(found, member, delay_seconds)
            self._start(name, CONSUMER, plan, group=group, member=member)

    def _producer_plan(self, index: int) -> dict[str, Any]:
        workload = self._workload
        return {
            "index": index,
            "producers": workload.producers,
            "send_timeout_ms": workload.send_timeout_ms,
            "retries": workload.retries,
            "topics": [_topic_plan(topic, self._time_scale) for topic in workload.topics],
            "seed": sub_seed(self._seeds["payload"], f"producer-{index}", 0),
        }

    def _consumer_plan(self, group: Group, member: int, delay_seconds: float) -> dict[str, Any]:
        return {
            "group": group.name,
            "topic": group.topic,
            "member": member,
            "message_model": group.message_model,
            "consume_from": group.consume_from,
            "threads": group.threads,
            "pull_threshold_for_queue": group.pull_threshold_for_queue,
            "max_reconsume_times": group.max_reconsume_times,
            "handler": {
                "mean_ms": group.handler.mean_ms,
                "jitter_ms": group.handler.jitter_ms,
                "fail_ratio": group.handler.fail_ratio,
            },
            "start_phase_ms": delay_seconds * 1000,
            "seed": sub_seed(self._seeds["handler"], f"{group.name}-{member}", 0),
        }

    def _start(
        self, name: str, role: str, plan: dict[str, Any], *, group: str = "", member: int = 0
    ) -> None:
        with self._lock:
            number = self._next_proc_no
            self._next_proc_no += 1
        process = WorkloadProcess(
            name=name,
            role=role,
            proc_no=number,
            proc=secrets.token_bytes(16),
            plan_file=self._folder.path / "plans" / f"{number:03d}-{name}.json",
            socket_path=self._sockets / f"{number}.sock",
            group=group,
            member=member,
        )
        document = {
            "role": role,
            "run": self._run,
            "hot": str(self._folder.hot),
            "proc_no": number,
            "proc": process.proc.hex(),
            "namesrv": list(self._nameservers),
            "control": str(process.socket_path),
            "time_scale": self._time_scale,
            "switches": dict(self._workload.switches),
            "segment_bytes": self._workload.log.segment_bytes,
            "segment_seconds": self._workload.log.segment_seconds,
            **plan,
        }
        process.plan_file.parent.mkdir(exist_ok=True)
        self._folder.write_json(str(process.plan_file.relative_to(self._folder.path)), document)
        self._spawn(process)

    def _spawn(self, process: WorkloadProcess) -> None:
        # The ledger first: a process that nobody remembers would produce for ever.
        args = {"plan": str(process.plan_file), "socket": str(process.socket_path)}
        process.undo = self._ledger.add(STOP_WORKLOAD, args)
        command = [sys.executable, "-m", "failback.chaos.workload", "run", str(process.plan_file)]
        log = self._folder.path / "logs" / f"{process.proc_no:03d}-{process.name}.log"
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the harness, which stops them in order
            )
        process.popen, process.pid = popen, popen.pid
        process.ticks = processes.read_ticks(popen.pid) or 0
        process.stats_at = time.monotonic()
        waiter = threading.Thread(
            target=self._await_exit, args=(process,), name=f"wait-{process.name}", daemon=True
        )
        with self._lock:
            self.processes.append(process)
            self._waiters.append(waiter)
        waiter.start()
        self._on_started(process)

    # --- ending ----------------------------------------------------------------------------------

    def stop_sending(self) -> None:
        """Have all producers send nothing more; they finish what is under way."""
        for process in self.of_role(PRODUCER):
            self.ask(process, {"op": "stop-sending"})

    def stop(self, process: WorkloadProcess, timeout: float = 15.0) -> None:
        """Clean stop, as SIGTERM does it; SIGKILL after the time."""
        process.wanted = False
        if not process.running:
            return
        try:
            processes.send_signal(process.pid, process.ticks, signal.SIGTERM)
        except TargetError:
            return
        if not self.await_end(process, timeout):
            logger.warning("%s did not stop within %g s, killed", process.name, timeout)
            with _already_gone():
                processes.send_signal(process.pid, process.ticks, signal.SIGKILL)
            self.await_end(process, 5)

    def stop_all(self, timeout: float = 15.0) -> None:
        """Stop everything cleanly, producers first, and wait."""
        for role in (PRODUCER, CONSUMER):
            running = self.of_role(role)
            for process in running:
                process.wanted = False
                with _already_gone():
                    processes.send_signal(process.pid, process.ticks, signal.SIGTERM)
            for process in running:
                self.stop(process, timeout)

    def signal_member(self, process: WorkloadProcess, signum: int) -> SignalReceipt:
        """Send a signal that is meant to end it. Raises ``TargetError`` when it is gone."""
        process.wanted = False
        return processes.send_signal(process.pid, process.ticks, signum)

    def await_end(self, process: WorkloadProcess, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while process.exit is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return process.exit is not None

    def close(self) -> None:
        """Stop asking, and clean up. Processes that still run are left alone."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(5)
        for waiter in self._waiters:
            waiter.join(0.1 if self._any_running() else 5)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _any_running(self) -> bool:
        return any(process.running for process in self.processes)

    # --- asking ----------------------------------------------------------------------------------

    def of_role(self, role: str, *, group: str = "") -> list[WorkloadProcess]:
        """Running processes of a role."""
        with self._lock:
            return [
                process
                for process in self.processes
                if process.role == role
                and process.running
                and (not group or process.group == group)
            ]

    def ask(self, process: WorkloadProcess, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask one process over its control socket; empty when it does not answer."""
        return ask(process.socket_path, request)

    def produced_per_second(self) -> float:
        """Acknowledged sends per second over the last seconds, all producers."""
        return sum(_rate(process) for process in self.of_role(PRODUCER))

    def delivered(self, group: str) -> int:
        with self._lock:
            return sum(
                int(each.stats.get("delivered", 0))
                for each in self.processes
                if each.role == CONSUMER and each.group == group
            )

    def all_assigned(self) -> bool:
        """Has every running member been assigned its queues once?"""
        return all(process.stats.get("assigned") for process in self.of_role(CONSUMER))

    def unfinished(self, group: str) -> int:
        return sum(
            int(each.stats.get("unfinished", 0)) for each in self.of_role(CONSUMER, group=group)
        )

    def producers_done(self) -> bool:
        """Nothing is being sent any more."""
        return all(
            each.stats.get("sending") is False and not each.stats.get("in_flight")
            for each in self.of_role(PRODUCER)
        )

    def preloaded(self) -> bool:
        return all(each.stats.get("preloaded") for each in self.of_role(PRODUCER))

    def send_ok_after(self, mono_ns: int) -> int | None:
        """Time of the first acknowledged send after ``mono_ns``, or ``None``."""
        found: list[int] = []
        for process in self.of_role(PRODUCER):
            answer = self.ask(process, {"op": "first-ok", "after_ns": mono_ns})
            value = answer.get("first_ok_ns")
            if value is not None:
                found.append(int(value))
        return min(found, default=None)

    def silent(self) -> list[str]:
        """Names of running processes that have not answered for a while."""
        limit = time.monotonic() - self.stuck_after_seconds
        with self._lock:
            return [each.name for each in self.processes if each.running and each.stats_at < limit]

    def refresh(self) -> None:
        """Ask everybody now."""
        with self._lock:
            running = [each for each in self.processes if each.running]
        for process in running:
            self._take_stats(process)

    def _ask_all(self) -> None:
        while not self._stop.wait(0.5):
            self.refresh()

    def _take_stats(self, process: WorkloadProcess) -> None:
        answer = self.ask(process, {"op": "stats"})
        if not answer:
            return
        at = time.monotonic()
        process.stats, process.stats_at = answer, at
        process.history.append((at, int(answer.get("acknowledged", 0))))

    # --- watching --------------------------------------------------------------------------------

    def _await_exit(self, process: WorkloadProcess) -> None:
        assert process.popen is not None
        status = process.popen.wait()
        stamp = now()
        process.last_seq = _last_seq(self._folder.path / "logs", process)
        process.exit = Exit(stamp, -status, None) if status < 0 else Exit(stamp, None, status)
        self._ledger.mark_healed(process.undo, {"status": status})
        if not process.wanted or self._stop.is_set():
            return
        self._unplanned(process)

    def _unplanned(self, process: WorkloadProcess) -> None:
        """Restart once; a second time ends the run."""
        assert process.exit is not None
        how = (
            f"signal {process.exit.signal}"
            if process.exit.signal is not None
            else f"exit code {process.exit.code}"
        )
        logger.warning("%s ended unplanned: %s", process.name, how)
        self._on_unplanned(process)
        with self._lock:
            count = self._restarts[process.name] = self._restarts.get(process.name, 0) + 1
        if count > 1 or process.exit.code == os.EX_IOERR:
            self.failures.append(f"{process.name} ended unplanned: {how}")
            return
        if process.role == CONSUMER:
            self.start_member(process.group, process.member)
        else:
            self._start(
                process.name, PRODUCER, self._producer_plan(int(process.name.split("-")[1]))
            )


def ask(socket_path: Path, request: Mapping[str, Any], timeout: float = 2.0) -> dict[str, Any]:
    """One request and one answer over a workload's control socket; empty when nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(str(socket_path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            data = bytearray()
            while not data.endswith(b"\n"):
                piece = connection.recv(1 << 16)
                if not piece:
                    break
                data += piece
        answer = json.loads(data)
    except (OSError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def stop_orphan(plan_file: Path, socket_path: Path, timeout: float = 15.0) -> bool:
    """Stop a workload process whose harness is gone; true when it does not run any more.

    Its pid is in the note that it keeps beside its plan; ticks tell it from a stranger.
    """
    note = plan_file.with_suffix(".pid")
    try:
        who = json.loads(note.read_bytes())
        pid, ticks = int(who["pid"]), int(who["ticks"])
    except (OSError, ValueError, KeyError):
        return not ask(socket_path, {"op": "stop"})
    for signum in (signal.SIGTERM, signal.SIGKILL):
        if not processes.alive(pid, ticks):
            return True
        with _already_gone():
            processes.send_signal(pid, ticks, signum)
        if processes.await_exit(pid, ticks, timeout):
            return True
    return not processes.alive(pid, ticks)


_already_gone = partial(contextlib.suppress, TargetError)  # what is gone needs no signal


def _topic_plan(topic: TopicLoad, time_scale: float) -> dict[str, Any]:
    return {
        "name": topic.name,
        "queues": topic.queues,
        "rate_per_second": topic.rate_per_second,
        "burst_every_seconds": topic.burst.every_seconds if topic.burst else None,
        "burst_factor": topic.burst.factor if topic.burst else None,
        "body_bytes": topic.body_bytes,
        "keys": topic.keys,
        "ordered": topic.ordered,
        # A backlog lasts for an outage; a shorter outage needs less of it.
        "preload_messages": round(topic.preload_messages * time_scale),
    }


def _rate(process: WorkloadProcess) -> float:
    """Acknowledged sends per second over the newest part of the history."""
    history = list(process.history)
    if len(history) < 2:
        return 0.0
    newest_at, newest = history[-1]
    oldest_at, oldest = next(
        (each for each in history if newest_at - each[0] <= _RATE_SECONDS), history[0]
    )
    if newest_at - oldest_at < 0.5:
        return 0.0
    return (newest - oldest) / (newest_at - oldest_at)


def _last_seq(logs: Path, process: WorkloadProcess) -> int | None:
    """What a process that ended in order wrote as its last line; ``None`` after a kill."""
    path = logs / f"{process.proc_no:03d}-{process.name}.log"
    try:
        lines = path.read_bytes().rstrip(b"\n").splitlines()
        note = json.loads(lines[-1])
        return int(note["last_seq"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
