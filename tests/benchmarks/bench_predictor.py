"""The predictor's grid: what faults repeat on real brokers, beside what was predicted.

Run: ``python -m tests.benchmarks.bench_predictor [SETTING ...] [--out FILE]``. A run takes three
minutes and gives one number for each of four faults; every setting is run five times, on a cluster
of its own, several settings at a time. ``--out`` adds the result of every run to a JSON file as
soon as it is there and goes on with what is in it, so a grid can be made piece by piece. Prints the
table of docs/explanation/predictor.md and the sentence below it; ends with 1 when the grid does
not hold.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from tests.support.analytics.grid_runs import GridRuns
from tests.support.analytics.predictor_grid import (
    KEPT,
    REPETITIONS,
    SETTINGS,
    Kept,
    shortcomings,
    summary,
    table,
)


def main() -> int:
    names = {str(setting): setting for setting in SETTINGS}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*names, []], help=", ".join(names))
    parser.add_argument("--out", type=Path, help="JSON file of results")
    parser.add_argument("--keep", action="store_true", help=f"--out of the package: {KEPT.name}")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--at-once", type=int, default=2, help="clusters side by side")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so long")
    parser.add_argument("--folder", type=Path, help="of clusters and of runs that failed")
    parser.add_argument("--print", action="store_true", help="run nothing: print what is kept")
    options = parser.parse_args()
    file = KEPT if options.keep or (options.print and not options.out) else options.out
    kept = Kept.read(file) if file else Kept()
    failures: list[str] = []
    if not options.print:
        with tempfile.TemporaryDirectory(prefix="failback-grid-") as scratch:
            runs = GridRuns(kept, options.folder or Path(scratch), _say)
            _stop_in_order(runs)
            runs.run(
                [names[name] for name in options.names] or SETTINGS,
                repetitions=options.repetitions,
                at_once=options.at_once,
                seconds=options.minutes * 60,
            )
            failures = runs.failures
        kept.save()
    print(f"\n{table(kept.results)}\n\n{summary(kept.results)}")
    wrong = [*failures, *shortcomings(kept.results)]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def _say(line: str) -> None:
    print(line, flush=True)


def _stop_in_order(runs: GridRuns) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        runs.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


if __name__ == "__main__":
    sys.exit(main())
