"""The report's engines against DuckDB and against known answers, on a generated run.

Run: ``python -m tests.benchmarks.bench_report [--rows N] [--rounds R] [--engines LIST]``. CPU
seconds of the whole process tree count, because other work may share the machine; the least of the
rounds is taken. ``local`` and ``spark`` are whole analyses with causes over deliveries, sends and
scans; ``local-a`` is what DuckDB's GROUP BY over five keys answers as well: how often each offset
was handled, Parquet read included (aim: at most half of DuckDB's
time). Also prints the wall time of ``failback report`` with each engine, session start included.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from failback.analytics.engines.spark import why_not
from failback.analytics.jobs.bench import Plan, generate, race
from failback.analytics.report import report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--engines", default="local-a,local,duckdb,spark")
    options = parser.parse_args()
    engines = options.engines.split(",")
    missing = why_not()
    if "spark" in engines and missing:
        print(f"without spark: {missing}")
        engines.remove("spark")
    with tempfile.TemporaryDirectory(prefix="failback-bench-") as scratch:
        folder = Path(scratch) / "run"
        generate(Plan(rows=options.rows), folder)
        walls = {}
        for engine in ("local", "spark"):
            if engine in engines:
                started = time.monotonic()
                report(folder, engine, Path(scratch) / engine)
                walls[engine] = round(time.monotonic() - started, 1)
        found = race(folder, engines, options.rounds)
    figures = {"rows": options.rows, "report_wall_seconds": walls, **found}
    for name, ratio in found["ratios"].items():
        print(f"{name}: {ratio} (CPU)")
    print(json.dumps(figures))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
