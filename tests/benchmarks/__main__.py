"""``make bench``: every benchmark in turn, each in a process of its own.

``python -m tests.benchmarks`` runs all; names select: ``python -m tests.benchmarks broker report``.
Figures are printed as ratios against the opponent in the same run. Nothing is asserted here: a
machine's figures are to be read, not to fail a build. The broker's whole table takes an hour and
the predictor's grid half of one: both are asked for by name (``make bench-broker``,
``make bench-predictor``); here the one is run at its small scale, the other once under one setting.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ARGUMENTS = {
    "broker": ("--scale", "small"),
    "predictor": ("flush-5000-commit-5000-compat", "--repetitions", "1"),
}


def available() -> dict[str, Path]:
    return {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}


def main() -> int:
    found = available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*found, []], help=", ".join(found))
    options = parser.parse_args()
    failed = []
    for name in options.names or found:
        print(f"\n=== {name}", flush=True)
        module = f"tests.benchmarks.{found[name].stem}"
        command = [sys.executable, "-m", module, *ARGUMENTS.get(name, ())]
        if subprocess.run(command, cwd=HERE.parent.parent).returncode:
            failed.append(name)
    if failed:
        print(f"did not finish: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
