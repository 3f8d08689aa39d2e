"""A real ``failback-init`` with a run directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.common.polling import SCALE, wait_until
from tests.support.processes.child_process import ROOT, SOURCES

INIT = [sys.executable, "-m", "failback.init"]
DEADLINE_SECONDS = 60 * SCALE


class InitLab:
    """Starts inits in one run directory, and the commands that come through exec."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / name) for name in SOURCES),
            "FAILBACK_RUN_DIR": str(self.run_dir),
        }
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self, *command: str, before: Sequence[str] = (), program: Sequence[str] = INIT
    ) -> subprocess.Popen[str]:
        """Start an init with ``command``; ``before`` is put in front (unshare)."""
        process = subprocess.Popen(
            [*before, *program, "--", *command],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self._started.append(process)
        return process

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of the commands beside the init."""
        return subprocess.run(
            [*INIT, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call("status", "--json").stdout)
        return found

    def child(self) -> dict[str, Any]:
        """Wait for the child and return its record."""
        wait_until(lambda: self.status()["child"], "a child")
        found: dict[str, Any] = self.status()["child"]
        return found

    def deaths(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status()["deaths"]
        return found

    def end(self) -> None:
        """Kill what a failed test left; its child dies with the init."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE_SECONDS)


def said(process: subprocess.Popen[str], line: str) -> None:
    """Wait for one line on standard output."""
    assert process.stdout is not None
    for found in process.stdout:
        if found.rstrip("\n") == line:
            return
    raise AssertionError(f"the process ended without saying {line!r}")


def ended(process: subprocess.Popen[str]) -> int:
    """Wait for the end; return the exit code."""
    return process.wait(timeout=DEADLINE_SECONDS)


def gone(pid: int) -> bool:
    """Tell whether a process is away; a zombie is."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
