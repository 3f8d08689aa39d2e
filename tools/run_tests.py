"""Run the checks and test tiers in order and end with one summary: what ``make test`` does.

Every tier runs even when an earlier one failed, so that one run shows everything; the exit code is
1 if any failed. ``--only TIER`` runs one. With ``FAILBACK_REQUIRE=all`` a skip for a missing tool
is a failure (tests/conftest.py).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SOURCES = ["operator", "broker-image", "chaos", "analytics", "tests", "tools"]
NOT_SOAK = "not soak"

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
    "kube": [pytest("kube")],
}
NEEDS = {"java": ["java-setup"], "e2e": ["java-setup"]}


def run_tier(name: str) -> tuple[bool, float]:
    started = time.monotonic()
    passed = True
    for command in TIERS[name]:
        shown = " ".join([Path(command[0]).name, *command[1:]])
        print(f"\n=== {name}: {shown}", flush=True)
        passed &= subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    return passed, time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(TIERS), help="run this tier alone")
    options = parser.parse_args()
    names = [*NEEDS.get(options.only, []), options.only] if options.only else list(TIERS)
    results = {name: run_tier(name) for name in names}
    print("\n=== summary")
    for name, (passed, seconds) in results.items():
        print(f"{name:12} {'passed' if passed else 'FAILED':8} {seconds:7.0f} s")
    return 0 if all(passed for passed, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
