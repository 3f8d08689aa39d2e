"""Run the checks and test tiers in order and end with one summary: what ``make test`` does.

Every tier runs even when an earlier one failed, so that one run shows everything; the exit code is
1 if any failed. ``--only TIER`` runs one. With ``FAILBACK_REQUIRE=all`` a skip for a missing tool
is a failure (tests/conftest.py). The Kubernetes control plane, whose first build takes long, is
built in the background from the beginning and awaited before the tier that needs it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SOURCES = ["operator", "broker-image", "chaos", "analytics", "tests", "tools"]
NOT_SOAK = "not soak"
BUILD_SECONDS = 40 * 60
"""How long the tier ``kube`` waits for the control plane's build."""

Command = list[str]


def pytest(marker: str, *arguments: str) -> Command:
    expression = f"{marker} and {NOT_SOAK}"
    return [sys.executable, "-m", "pytest", "tests", "-q", "-m", expression, *arguments]


TIERS: dict[str, list[Command]] = {
    "lint": [
        [str(BIN / "ruff"), "check", *SOURCES],
        [str(BIN / "ruff"), "format", "--check", *SOURCES],
        [sys.executable, "-m", "mypy"],
        [str(BIN / "lint-imports")],
    ],
    "java-setup": [[sys.executable, "tools/setup_java.py"]],
    "unit": [pytest("unit", "-n", "2")],
    "integration": [pytest("integration", "-n", "2")],
    "faults": [pytest("faults")],
    "java": [pytest("java")],
    "spark": [pytest("spark")],
    "e2e": [pytest("e2e")],
    "kube-setup": [[sys.executable, "tools/setup_kube.py"]],
    "kube": [pytest("kube", "-n", "3", "--dist", "loadfile")],  # they wait more than they work
    "images": [pytest("images", "-s")],
}
NEEDS = {"java": ["java-setup"], "e2e": ["java-setup"], "kube": ["kube-setup"]}
IN_BACKGROUND = "kube-setup"


class Background:
    """A tier that runs beside the others, at low priority, with its output in a file."""

    def __init__(self, name: str) -> None:
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        [command] = TIERS[name]
        nice = ["nice", "-n", "10"] if shutil.which("nice") else []
        self._process = subprocess.Popen(
            [*nice, *command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self, seconds: float) -> bool:
        """Wait for its end, show what it said, and return whether it succeeded in time."""
        try:
            passed = self._process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            print(f"not ready after {seconds / 60:.0f} minutes: given up", flush=True)
            passed = False
        self._output.seek(0)
        print(self._output.read(), end="", flush=True)
        return passed

    def close(self) -> None:
        """End it, and what it started, if it still runs."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        self._output.close()


def run_tier(name: str) -> tuple[bool, float]:
    started = time.monotonic()
    passed = True
    for command in TIERS[name]:
        shown = " ".join([Path(command[0]).name, *command[1:]])
        print(f"\n=== {name}: {shown}", flush=True)
        passed &= subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    return passed, time.monotonic() - started


def await_tier(name: str, background: Background) -> tuple[bool, float]:
    started = time.monotonic()
    print(f"\n=== {name}: waiting for what was started in the background", flush=True)
    passed = background.wait(BUILD_SECONDS)
    return passed, time.monotonic() - started


def run_tiers(names: list[str]) -> dict[str, tuple[bool, float]]:
    """Run the tiers in order; return whether each passed and its seconds."""
    results: dict[str, tuple[bool, float]] = {}
    with ExitStack() as stack:
        background = None
        if IN_BACKGROUND in names:
            background = Background(IN_BACKGROUND)
            stack.callback(background.close)
        for name in names:
            if name == IN_BACKGROUND and background is not None:
                results[name] = await_tier(name, background)
            elif IN_BACKGROUND in NEEDS.get(name, []) and not results[IN_BACKGROUND][0]:
                print(f"\n=== {name}: not run, because {IN_BACKGROUND} failed", flush=True)
                results[name] = (False, 0.0)
            else:
                results[name] = run_tier(name)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(TIERS), help="run this tier alone")
    options = parser.parse_args()
    names = [*NEEDS.get(options.only, []), options.only] if options.only else list(TIERS)
    results = run_tiers(names)
    print("\n=== summary")
    for name, (passed, seconds) in results.items():
        print(f"{name:12} {'passed' if passed else 'FAILED':8} {seconds:7.0f} s")
    return 0 if all(passed for passed, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
