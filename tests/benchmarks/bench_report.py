"""The Spark report of a large run: wall time with session start, and the answer checked.

Run: ``python -m tests.benchmarks.bench_report [--rows N] [--engine spark|local]``. A run of
``--rows`` deliveries with known answers is generated first (not timed); then ``failback report`` is
timed as a whole process, once per engine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def timed(command: list[str]) -> float:
    """Run a command; wall seconds. The report's verdict may be any, bad input may not (2)."""
    began = time.perf_counter()
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if code not in (0, 1, 3):
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--engine", choices=("spark", "local"), action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        module = "failback.analytics.jobs.bench"
        generate = [sys.executable, "-m", module, "generate", "--rows", str(options.rows)]
        subprocess.run([*generate, "--out", str(run)], check=True, stdout=subprocess.DEVNULL)
        for engine in options.engine or ("spark", "local"):
            out = Path(temporary) / engine
            command = [sys.executable, "-m", "failback.cli", "report", str(run)]
            seconds = timed([*command, "--engine", engine, "--out", str(out)])
            totals = json.loads((out / "report.json").read_text())["totals"]
            print(
                f"{engine:6} {options.rows} deliveries: {seconds:6.1f} s in all, "
                f"{totals['dup']} duplicates, {options.rows / seconds / 1000:.0f} k deliveries/s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
