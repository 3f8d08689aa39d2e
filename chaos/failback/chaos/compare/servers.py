"""Processes of a run: servers that are started, killed and ended, and clients."""

from __future__ import annotations

import contextlib
import ctypes
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.chaos.cluster import processes
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import DeathRecord, SignalReceipt
from failback.chaos.errors import TargetError

HOST: Final = "127.0.0.1"
_PORTS: Final = range(16_000, 22_000)
"""Below the ephemeral ports of Linux (32,768 on), with Redis' bus port, which is 10,000 higher."""
_END_SECONDS: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1
"""``prctl(2)``: the signal that a child gets when its parent dies."""


@dataclass(slots=True)
class Server:
    """A process that ends with this one; its output goes to a file. A client has no port."""

    name: str
    command: Sequence[str]
    log: Path
    number: int = 0
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def status(self) -> int | None:
        """How it ended, as ``subprocess`` gives it; ``None`` while it runs or never ran."""
        return None if self.process is None else self.process.poll()

    def start(self) -> None:
        """Start it, again after an end. Ctrl-C reaches the run alone, which ends it in order."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait for the end; false when the time is over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.process is not None:
                self.process.wait(seconds)
        return not self.is_alive()

    def end(self) -> None:
        """End it by its pid: SIGTERM, then SIGKILL."""
        self.ask_to_end()
        if not self.wait(_END_SECONDS) and self.process is not None:
            self.process.kill()
            self.process.wait()

    def kill(self) -> tuple[SignalReceipt, DeathRecord]:
        """Send SIGKILL and wait for the death; ``doubt`` says why it did not die of it.

        Raises:
            TargetError: It was dead before, or does not die.
        """
        if self.process is None or not self.is_alive():
            raise TargetError(f"SIGKILL to {self.name}", f"it had ended before: {self.status}")
        pid = self.process.pid
        ticks = processes.read_ticks(pid) or 0
        receipt = processes.send_signal(pid, ticks, signal.SIGKILL)
        if not self.wait(2 * _END_SECONDS):
            raise TargetError(f"SIGKILL to {self.name}", "it is still alive")
        is_open = accepts(self.port)
        return receipt, death_of(pid, ticks, self.process.returncode, is_open=is_open)

    def last_words(self) -> str:
        """The last line of its output."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


def death_of(pid: int, ticks: int, status: int, *, is_open: bool) -> DeathRecord:
    """What a wait status proves, -9 being a death by SIGKILL, and an address that is still open."""
    doubt = "its address accepts connections after its death" if is_open else ""
    if status != -signal.SIGKILL:
        doubt = f"it was sent SIGKILL and ended with status {status}"
    by_signal, code = (-status, None) if status < 0 else (None, status)
    return DeathRecord(pid, ticks, by_signal, code, now(), doubt)


def accepts(port: int) -> bool:
    """Whether something accepts connections at a port of this host."""
    try:
        socket.create_connection((HOST, port), 0.5).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return neighbouring ports that nothing listens on, each with the port 10,000 above it."""
    for _ in range(200):
        first = random.choice(_PORTS)
        ports = range(first, first + count)
        if not any(accepts(port) or accepts(port + 10_000) for port in ports):
            return list(ports)
    raise TargetError("free ports", f"none from {_PORTS.start} to {_PORTS.stop}")


def await_servers(
    what: str, servers: Sequence[Server], ready: Callable[[], object], seconds: float
) -> None:
    """Wait for a condition. Raises ``TargetError`` when the time is over or a server has ended."""
    deadline = time.monotonic() + seconds
    while not ready():
        dead = next((each for each in servers if not each.is_alive()), None)
        if dead is not None:
            raise TargetError(f"{dead.name} ended with status {dead.status}", dead.last_words())
        if time.monotonic() > deadline:
            raise TargetError(what, f"not there after {seconds:g} s")
        time.sleep(0.25)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
