"""Servers of a cluster under test: processes of this host that are started, killed and ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import Stamp
from failback.chaos.errors import TargetError

HOST: Final = "127.0.0.1"
_FIRST_PORT, _LAST_PORT = 16_000, 22_000
"""Below the ephemeral ports of Linux (32,768 on), with Redis' bus port, which is 10,000 higher."""
_END_SECONDS: Final = 5.0
_DEATH_SECONDS: Final = 10.0
_PR_SET_PDEATHSIG: Final = 1
"""``prctl(2)``: the signal that a child gets when its parent dies."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a server ended after it was sent SIGKILL."""

    issued: Stamp
    returned: Stamp
    gone: Stamp
    status: int
    """As ``subprocess`` gives it: -9 for a death by SIGKILL."""
    refuses: bool
    """Whether its address refuses connections."""

    @property
    def doubt(self) -> str:
        """Why the kill is not proved; empty where it is."""
        if self.status != -signal.SIGKILL:
            return f"it was sent SIGKILL and ended with status {self.status}"
        return "" if self.refuses else "its address accepts connections after its death"


class Child:
    """A process that ends with this one; its output goes to a file."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._environment = {**os.environ, **environment}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again after an end."""
        with self._log.open("ab") as log:
            self.process = self._open(log)

    def _open(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,  # Ctrl-C reaches the run alone, which ends the others in order
            preexec_fn=_die_with_parent,
        )

    @property
    def pid(self) -> int:
        assert self.process is not None, "it was started"
        return self.process.pid

    @property
    def status(self) -> int | None:
        """How it ended, as ``subprocess`` gives it; ``None`` while it runs or never ran."""
        return None if self.process is None else self.process.poll()

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        """Wait for the end; false when the time is over."""
        if self.process is None:
            return True
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """End it by its pid: SIGTERM, then SIGKILL. It is no child of another one's."""
        self.ask_to_end()
        if not self.wait(_END_SECONDS) and self.process is not None:
            self.process.kill()
            self.process.wait()

    def last_words(self) -> str:
        """The last line of its output."""
        with contextlib.suppress(OSError):
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return lines[-1][:200] if lines else ""
        return ""


class Server(Child):
    """A server that can be killed, with a proof that it died of it."""

    def __init__(
        self,
        name: str,
        number: int,
        port: int,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(name, command, log, environment)
        self.number = number
        self.port = port

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def kill(self) -> Death:
        """Send SIGKILL and wait for the death.

        Raises:
            TargetError: It was dead before, or does not die.
        """
        if not self.is_alive():
            raise TargetError(f"SIGKILL to {self.name}", f"it had ended before: {self.status}")
        assert self.process is not None
        issued = now()
        self.process.kill()
        returned = now()
        if not self.wait(_DEATH_SECONDS):
            raise TargetError(f"SIGKILL to {self.name}", "it is still alive")
        return Death(issued, returned, now(), self.process.returncode, not accepts(self.port))


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
        first = random.randrange(_FIRST_PORT, _LAST_PORT - count)
        ports = list(range(first, first + count))
        if all(_is_free(port) and _is_free(port + 10_000) for port in ports):
            return ports
    raise TargetError("free ports", f"none between {_FIRST_PORT} and {_LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
