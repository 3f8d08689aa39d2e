"""The real name server as a process, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from tests.support.common.polling import wait_until
from tests.support.net.ports import free_port_block

ROOT = Path(__file__).parents[3]


def python_env() -> dict[str, str]:
    """The environment in which a child finds ``failback`` as this process does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


class NamesrvProcess:
    """``with NamesrvProcess(tmp_path) as namesrv: ... namesrv.addr``."""

    def __init__(self, folder: Path, **properties: str) -> None:
        port = free_port_block(2)
        self.addr = f"127.0.0.1:{port}"
        self.http = f"http://127.0.0.1:{port + 1}"
        self.conf = folder / "namesrv.conf"
        self.kv_file = folder / "kvConfig.json"
        self._log = folder / "namesrv.log"
        settings = {
            "listenPort": str(port),
            "bindAddress": "127.0.0.1",
            "failbackHttpPort": str(port + 1),
            "kvConfigPath": str(self.kv_file),
            **properties,
        }
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start and wait for the line that says it serves."""
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "failback.namesrv", "-c", str(self.conf)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=python_env(),
            )
        wait_until(
            lambda: "The Name Server boot success" in self.log or self.exit_code() is not None,
            "the name server's ready line",
        )
        assert self.exit_code() is None, self.log

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def exit_code(self) -> int | None:
        return self.process.poll() if self.process else None

    def terminate(self) -> int:
        """Ask for an orderly stop; return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def http_status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(self.http + path, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
