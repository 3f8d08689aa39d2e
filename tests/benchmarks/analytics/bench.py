"""Makes runs of any size with known answers, and races the engines on them.

    python -m tests.benchmarks.analytics.bench generate --rows 5000000 --out DIR
    python -m tests.benchmarks.analytics.bench run --run DIR --engines local-counts,duckdb

``generate`` writes a whole run folder (see ``tests.benchmarks.analytics.synthetic``). ``run``
alternates the engines of ``tests.benchmarks.analytics.engine_race``, takes the least CPU time of
each, checks every answer against the truth and prints figures and ratios; exit code 1 on a wrong
answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.benchmarks.analytics.engine_race import ENGINES, is_right
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.benchmarks.analytics.usage import CpuMeter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Entry(NamedTuple):
    """An engine on a generated run."""

    engine: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Lap:
    """One engine over one run."""

    wall_seconds: float
    cpu_seconds: float
    right: bool


def lap(entry: Entry, spark: SparkSession | None) -> Lap:
    """Run one engine and compare its answer with the truth beside the run."""
    truth = json.loads((entry.folder / "truth.json").read_text())
    wall = time.monotonic()
    with CpuMeter() as cpu:
        found = ENGINES[entry.engine](entry.folder, spark)
        used = cpu.seconds()
    return Lap(time.monotonic() - wall, used, is_right(found, truth))


@contextlib.contextmanager
def session_for(engines: Sequence[str]) -> Iterator[SparkSession | None]:
    """A Spark session if one of the engines is Spark's."""
    if not any(engine.startswith("spark") for engine in engines):
        yield None
        return
    from failback.analytics.analysis.engines.spark.session import session

    with session() as spark:
        yield spark


def race(order: Iterable[Entry], spark: SparkSession | None = None) -> dict[Entry, Lap]:
    """Run laps in this order; of each entry the one with the least CPU time, wrong if any was.

    Other work and the clock of a shared machine come and go: entries whose times are compared
    should take turns.
    """
    best: dict[Entry, Lap] = {}
    for entry in order:
        mine = lap(entry, spark)
        other = best.get(entry, mine)
        best[entry] = replace(
            min(mine, other, key=lambda each: each.cpu_seconds),
            right=mine.right and other.right,
        )
    return best


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    versions = {"python": platform.python_version()}
    for name in ("duckdb", "numpy", "pyarrow", "pyspark"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {"machine": f"{platform.machine()}, {os.cpu_count()} cores", **versions}


def figures_of(best: Mapping[str, Lap]) -> dict[str, Any]:
    """Seconds per engine, CPU as a multiple of DuckDB's where it ran, and who was wrong."""
    duckdb = best.get("duckdb")
    return {
        "cpu_seconds": {engine: round(each.cpu_seconds, 2) for engine, each in best.items()},
        "wall_seconds": {engine: round(each.wall_seconds, 2) for engine, each in best.items()},
        "ratios": {
            f"{engine}/duckdb": round(each.cpu_seconds / duckdb.cpu_seconds, 3)
            for engine, each in best.items()
            if duckdb is not None and each is not duckdb
        },
        "wrong": sorted(engine for engine, each in best.items() if not each.right),
        **machine(),
    }


def generated(plan: Plan, folder: Path) -> None:
    """Write a run, in a process of its own: what that leaves in memory would count as ours."""
    command = [sys.executable, "-m", "tests.benchmarks.analytics.bench", "generate"]
    command += ["--out", str(folder)]
    for each in fields(plan):
        command += [f"--{each.name.replace('_', '-')}", str(getattr(plan, each.name))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.analytics.bench")
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("generate", help="write a run with known answers")
    for field in fields(Plan):
        kind = type(field.default)
        make.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    make.add_argument("--out", type=Path, required=True)
    again = commands.add_parser("run", help="race engines on a generated run")
    again.add_argument("--run", type=Path, required=True)
    again.add_argument("--engines", default="local-counts,local-causes,duckdb")
    again.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    if options.command == "generate":
        plan = Plan(**{field.name: getattr(options, field.name) for field in fields(Plan)})
        print(json.dumps(generate(plan, options.out)["groups"]["g0"]["causes"]))
        return 0
    engines = options.engines.split(",")
    unknown = sorted(set(engines) - set(ENGINES))
    if unknown:
        again.error(f"--engines: {unknown[0]} is none of {', '.join(ENGINES)}")
    with session_for(engines) as spark:
        order = [Entry(engine, options.run) for engine in engines] * options.rounds
        best = {entry.engine: each for entry, each in race(order, spark).items()}
    found = figures_of(best)
    print(json.dumps(found, indent=1))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
