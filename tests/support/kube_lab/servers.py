"""The servers of a control plane as processes that never outlive the test run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.common.polling import SCALE

_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


class Server:
    """One server: started with its output in a file, stopped in order or killed.

    It gets SIGKILL when the thread that started it ends, so start it from the main thread.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = [*_WITH_PARENT, *command]
        self._folder = folder
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert not self.alive, f"{self.name} runs already"
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def check(self) -> None:
        """Fail with the end of the log when it has ended by itself."""
        if not self.alive:
            tail = self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""
            raise AssertionError(f"{self.name} ended:\n{tail}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30 * SCALE)

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, seconds: float = 10) -> None:
        """SIGTERM, then SIGKILL: with clients still watching an API server takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
