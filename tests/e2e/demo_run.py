"""``failback demo`` as a user runs it, and what it left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from tests.support.common.polling import SCALE
from tests.support.processes.child_process import failback_command, failback_environment

ARMS = ("stay", "handover")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    output: str
    errors: str
    seconds: float


@dataclass(frozen=True)
class Demo:
    """A demo that has ended, and the folder that it was given."""

    runs: Path
    done: Done

    def run_dir(self, arm: str) -> Path:
        (found,) = self.runs.glob(f"demo-*/{arm}")
        return found

    def report_file(self, arm: str, name: str = "report.json") -> Path:
        return self.run_dir(arm) / "report" / name

    def report(self, arm: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.report_file(arm).read_text())
        return found

    def table(self) -> dict[str, dict[str, str]]:
        """The table it printed: arm -> column -> cell."""
        lines = self.done.output.splitlines()
        (head,) = (number for number, line in enumerate(lines) if line.startswith("ARM "))
        names = re.split(r"\s{2,}", lines[head])
        rows = (re.split(r"\s{2,}", line) for line in lines[head + 1 :])
        table = takewhile(lambda row: len(row) == len(names), rows)
        return {row[0]: dict(zip(names, row, strict=True)) for row in table}


def run_command(
    *arguments: str,
    seconds: float = 300,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Done:
    """Run ``failback ARGUMENTS`` to its end; ``environment`` is laid over this process's."""
    began = time.monotonic()
    done = subprocess.run(
        failback_command("cli", *arguments),
        env={**os.environ, **failback_environment(), **(environment or {})},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds * SCALE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def run_demo(
    runs: Path,
    *options: str,
    seconds: float = 300,
    environment: Mapping[str, str] | None = None,
) -> Demo:
    words = ("demo", "--runs", str(runs), *options)
    return Demo(runs, run_command(*words, seconds=seconds, environment=environment))
