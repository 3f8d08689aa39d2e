"""Run the checks and test tiers in order and end with one summary: what ``make test`` does.

Every tier runs even when an earlier one failed, so that one run shows everything; the exit code is
1 if any failed. ``--only TIER`` runs one. With ``FAILBACK_REQUIRE=all`` a skip for a missing tool
is a failure (tests/conftest.py). The Kubernetes control plane, whose first build takes long, is
built in the background from the beginning and awaited before the tier that needs it.

Tiers on real processes share a noisy machine. If few of their tests fail, those run once more, one
after the other; the summary names each that passed only then. They are faults to look into, and no
reason to hold everything else back. A test that fails twice has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
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


PURE = [
    *("env", "FAILBACK_PURE=1", sys.executable, "-m", "pytest", "-q", "-n", "2"),
    *("-m", NOT_SOAK, "--ignore-glob=*test_native_*", "tests/unit/store", "tests/unit/broker"),
]
"""The broker as it is without a C compiler."""

BY_FILE = ("-n", "2", "--dist", "loadfile")
"""For tiers that wait more than they work: two files at a time."""

TIERS: dict[str, list[Command]] = {
    "lint": [
        [str(BIN / "ruff"), "check", *SOURCES],
        [str(BIN / "ruff"), "format", "--check", *SOURCES],
        [sys.executable, "-m", "mypy"],
        [sys.executable, "-m", "mypy", "tests", "tools"],
        [str(BIN / "lint-imports")],
    ],
    "java-setup": [[sys.executable, "tools/setup_java.py"]],
    "unit": [pytest("unit", "-n", "2"), PURE],
    "integration": [pytest("integration", "-n", "2")],
    "faults": [pytest("faults", *BY_FILE)],
    "java": [pytest("java", *BY_FILE)],
    "spark": [pytest("spark")],
    "e2e": [pytest("e2e")],
    "kube-setup": [[sys.executable, "tools/setup_kube.py"]],
    "kube": [pytest("kube", "-n", "3", "--dist", "loadfile")],
    "images": [pytest("images", "-s")],
}
NEEDS = {"java": ["java-setup"], "e2e": ["java-setup"], "kube": ["kube-setup"]}
IN_BACKGROUND = "kube-setup"
TRIED_AGAIN = ("integration", "faults", "java", "e2e", "kube")
FEW = 3
"""A tier with more failures than these is broken, not unlucky."""
FAILED_TESTS = Path(".pytest_cache/v/cache/lastfailed")


@dataclass(frozen=True, slots=True)
class Result:
    """How a tier ended."""

    passed: bool
    seconds: float
    unsteady: list[str] = field(default_factory=list)
    """Tests that failed, and passed when they ran again alone."""


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


def run_tier(name: str) -> Result:
    started = time.monotonic()
    passed, unsteady = True, list[str]()
    for command in TIERS[name]:
        if name in TRIED_AGAIN:
            done, found = run_with_second_try(name, command, ROOT)
            passed, unsteady = passed and done, unsteady + found
        else:
            passed &= run(name, command, ROOT)
    return Result(passed, time.monotonic() - started, unsteady)


def run(name: str, command: Command, folder: Path) -> bool:
    shown = " ".join([Path(command[0]).name, *command[1:]])
    print(f"\n=== {name}: {shown}", flush=True)
    return subprocess.run(command, cwd=folder, check=False).returncode == 0


def run_with_second_try(name: str, command: Command, folder: Path) -> tuple[bool, list[str]]:
    """Run pytest, and what failed once more if that is little.

    Returns:
        Whether all passed in the end, and the tests that did so only the second time.
    """
    record = folder / FAILED_TESTS
    record.unlink(missing_ok=True)
    if run(name, command, folder):
        return True, []
    failed = sorted(json.loads(record.read_text())) if record.exists() else []
    if not 0 < len(failed) <= FEW:
        return False, []
    again = run(f"{name}, once more", [*command[:3], "-q", *failed], folder)
    return again, failed if again else []


def await_tier(name: str, background: Background) -> Result:
    started = time.monotonic()
    print(f"\n=== {name}: waiting for what was started in the background", flush=True)
    passed = background.wait(BUILD_SECONDS)
    return Result(passed, time.monotonic() - started)


def run_tiers(names: list[str]) -> dict[str, Result]:
    """Run the tiers in order."""
    results: dict[str, Result] = {}
    with ExitStack() as stack:
        background = None
        if IN_BACKGROUND in names:
            background = Background(IN_BACKGROUND)
            stack.callback(background.close)
        for name in names:
            if name == IN_BACKGROUND and background is not None:
                results[name] = await_tier(name, background)
            elif IN_BACKGROUND in NEEDS.get(name, []) and not results[IN_BACKGROUND].passed:
                print(f"\n=== {name}: not run, because {IN_BACKGROUND} failed", flush=True)
                results[name] = Result(False, 0.0)
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
    for name, result in results.items():
        print(f"{name:12} {'passed' if result.passed else 'FAILED':8} {result.seconds:7.0f} s")
    for name, result in results.items():
        for test in result.unsteady:
            print(f"UNSTEADY: {name}: {test} failed, and passed when it ran again")
    return 0 if all(result.passed for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
