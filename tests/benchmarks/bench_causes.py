"""The confusion matrix of the causes, from runs on real brokers in which one cause acts.

Run: ``python -m tests.benchmarks.bench_causes [NAME ...] [--keep DIR] [--out FILE]``. Each run has
a cluster of its own and takes 20 to 60 s; the matrix is printed as Markdown. ``--out`` adds the
result of every run to a JSON file as soon as it is there, and takes those that are there already
into the matrix, so a matrix can be made run by run. Ends with 1 when a run is off its diagonal.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.support.chaos.cause_catalogue import NOT_PROVOKED, RUNS, named
from tests.support.chaos.cause_runs import Labelled, carry_out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(map(str, RUNS)))
    parser.add_argument("--keep", type=Path, help="keep clusters' and runs' folders here")
    parser.add_argument("--out", type=Path, help="JSON file of results")
    parser.add_argument("--print", action="store_true", help="run nothing: print what is in --out")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without ending the cluster
    found = _read(options.out)
    chosen = [] if options.print else [named(name) for name in options.names] or RUNS
    failed = False
    for run in chosen:
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="failback-causes-") as scratch:
                result = carry_out(run, (options.keep or Path(scratch)) / str(run))
        except AssertionError as error:  # the run proves nothing; the others may
            print(f"{run}: {error}", flush=True)
            failed = True
            continue
        print(f"{result} in {time.monotonic() - began:.0f} s", flush=True)
        found[str(run)] = result.labels
        if options.out:
            options.out.write_text(json.dumps(found, indent=1))
    results = [Labelled(run, found[str(run)], Path()) for run in RUNS if str(run) in found]
    print(f"\n{matrix(results)}\n\n{reading(results)}")
    return 0 if not failed and all(result.holds for result in results) else 1


def _read(file: Path | None) -> dict[str, Counter[str]]:
    if file is None or not file.exists():
        return {}
    return {name: Counter(labels) for name, labels in json.loads(file.read_text()).items()}


def matrix(results: list[Labelled]) -> str:
    """One row per run: the cause that acted, and the labels that its duplicates were given."""
    lines = [
        "| run | cause that acts | duplicates | labelled so | other labels |",
        "|---" * 5 + "|",
    ]
    for result in results:
        others = ", ".join(
            f"{label} {count}"
            for label, count in sorted(result.labels.items())
            if label != result.run.label
        )
        lines.append(
            f"| {result.run} | {result.run.label} | {result.total:,} | {result.share:.1%} |"
            f" {others or 'none'} |"
        )
    return "\n".join(lines)


def reading(results: list[Labelled]) -> str:
    """How each run brings its cause about, and the labels that are not provoked."""
    lines = ["| run | cause | how it comes about |", "|---|---|---|"]
    lines += [f"| {each.run} | {each.run.label} | {each.run.how} |" for each in results]
    lines += ["", "| not provoked | why |", "|---|---|"]
    lines += [f"| {label} | {why} |" for label, why in NOT_PROVOKED.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
