"""One process of the workload, as the harness sees it: what it said, how fast it is, how it ended.

It answers on a control socket; of a harness that is gone it is found by its command, which names
its plan.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from failback.chaos.cluster import processes
from failback.chaos.cluster.unix_socket import exchange
from failback.chaos.cluster.view import Stamp
from failback.chaos.errors import TargetError

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ANSWER_SECONDS: Final = 2.0
_RATE_SECONDS: Final = 5.0
_SHORTEST_SECONDS: Final = 0.5


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
    """Should it be running? False from the moment that it is asked to end."""
    stats: dict[str, Any] = field(default_factory=dict)
    stats_at: float = 0.0
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))
    last_seq: int | None = None

    @property
    def running(self) -> bool:
        return self.popen is not None and self.exit is None

    def rate(self) -> float:
        """Acknowledged sends per second over the newest part of the history."""
        history = list(self.history)
        if len(history) < 2:
            return 0.0
        newest_at, newest = history[-1]
        oldest_at, oldest = next(
            (each for each in history if newest_at - each[0] <= _RATE_SECONDS), history[0]
        )
        if newest_at - oldest_at < _SHORTEST_SECONDS:
            return 0.0
        return (newest - oldest) / (newest_at - oldest_at)


def ask(
    socket_path: Path, request: Mapping[str, Any], timeout: float = ANSWER_SECONDS
) -> dict[str, Any]:
    """One request and one answer over a workload's control socket; empty without an answer."""
    try:
        answer = exchange(socket_path, request, timeout)
    except (OSError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def command_for(plan_file: Path) -> list[str]:
    """Return the command of a process that works on a plan."""
    return [sys.executable, "-m", "failback.chaos.workload", "run", str(plan_file)]


def at_work_on(plan_file: Path) -> list[tuple[int, int]]:
    """Pid and start ticks of every process that works on a plan, also of one that just begins."""
    words = command_for(plan_file)[1:]
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    found = [(pid, processes.read_ticks(pid)) for pid in pids if command_of(pid)[1:] == words]
    return [(pid, ticks) for pid, ticks in found if ticks is not None]


def stop_orphan(plan_file: Path, timeout: float = 15.0) -> bool:
    """Stop a workload process whose harness is gone; true when it does not run any more."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        found = at_work_on(plan_file)
        for pid, ticks in found:
            with already_gone():
                processes.send_signal(pid, ticks, signum)
        if all(processes.await_exit(pid, ticks, timeout) for pid, ticks in found):
            break
    return not at_work_on(plan_file)


def command_of(pid: int) -> list[str]:
    """Return the words that a process was started with; none of one that is gone or a zombie."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return [os.fsdecode(word) for word in words if word]


already_gone = partial(contextlib.suppress, TargetError)  # what is gone needs no signal


def last_seq(logs: Path, process: WorkloadProcess) -> int | None:
    """What a process that ended in order wrote as its last line; ``None`` after a kill."""
    path = logs / f"{process.proc_no:03d}-{process.name}.log"
    try:
        lines = path.read_bytes().rstrip(b"\n").splitlines()
        note = json.loads(lines[-1])
        return int(note["last_seq"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
