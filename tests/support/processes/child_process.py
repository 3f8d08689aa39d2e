"""Real processes in tests: started, watched by their output, killed, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.common.polling import SCALE, wait_until

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("operator", "broker-image", "chaos", "analytics")


class TestProcess:
    """One process with its output in files; startable again after its end."""

    __test__ = False

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        self._starts_at = 0

    def start(self) -> None:
        """Start it; :meth:`lines` shows what it prints from now on."""
        assert not self.alive, f"{self.name} runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._starts_at = self._out.stat().st_size if self._out.exists() else 0
        with self._out.open("ab") as out, self._err.open("ab") as err:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                env=self._environment,
                cwd=self.folder,
            )

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def lines(self) -> list[str]:
        """Return the whole lines printed since the last start."""
        if not self._out.exists():
            return []
        data = self._out.read_bytes()[self._starts_at :]
        return data[: data.rfind(b"\n") + 1].decode(errors="replace").splitlines()

    def errors(self) -> str:
        return self._err.read_text(errors="replace") if self._err.exists() else ""

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Return the first line with ``text``; fail if the process ends without it."""

        def find() -> str | None:
            for line in self.lines():
                if text in line:
                    return line
            if not self.alive:
                tail = "\n".join([*self.lines()[-20:], *self.errors().splitlines()[-20:]])
                raise AssertionError(f"{self.name} ended before {text!r}:\n{tail}")
            return None

        wait_until(find, f"{text!r} from {self.name}", seconds)
        line = find()
        assert line is not None
        return line

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30 * SCALE)
        self._close_input()

    def stop(self, seconds: float = 60) -> int:
        """SIGTERM; return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(seconds * SCALE)
        self._close_input()
        return code

    def wait(self, seconds: float = 60) -> int:
        """Wait for its end; return the exit code."""
        assert self._process is not None
        code = self._process.wait(seconds * SCALE)
        self._close_input()
        return code

    def end_input(self, seconds: float = 60) -> int:
        """Close its standard input, which our Java programs take as the end; return the code."""
        assert self._process is not None
        self._close_input()
        return self._process.wait(seconds * SCALE)

    def dispose(self) -> None:
        """End it whatever state it is in."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(30 * SCALE)
        self._close_input()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def failback_command(package: str, *arguments: str) -> list[str]:
    """Return the command of one of our own processes, e.g. ``broker`` or ``namesrv``."""
    return [sys.executable, "-m", f"failback.{package}", *arguments]


def failback_environment() -> dict[str, str]:
    """Return the environment in which our processes find the sources under test."""
    return {"PYTHONPATH": os.pathsep.join(str(ROOT / source) for source in SOURCES)}


@contextmanager
def disposing(processes: list[TestProcess]) -> Iterator[list[TestProcess]]:
    """End every process of the list, last first, whatever the test did."""
    try:
        yield processes
    finally:
        for process in reversed(processes):
            process.dispose()
