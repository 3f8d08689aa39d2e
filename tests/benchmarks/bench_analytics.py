"""The analytics engines against DuckDB and Spark's own groupBy, on runs with known answers.

    make bench-analytics                                  ten million deliveries
    make bench-analytics ARGS="--rows 100000000 --markdown docs/design/counting.md"
    make bench-analytics ARGS="--only driver --markdown docs/analytics-engines.md"

The first of its two parts is a race, the other looks at the driver of whole reports on a cluster,
of ``--rows``, three and ten times as many deliveries, of a tenth of that where each repeat is alone
(``tests.benchmarks.analytics.driver``).

Ten million take 330 MB of disk below ``--scratch``; a hundred million, of which a tenth is written
in four further shapes, take half an hour. Exact repeats are counted in all of them, causes and
whole reports are made of half as many. Every figure is a ratio of CPU seconds of whole process
trees inside this one run, the least of ``--rounds`` laps or more, which take turns, because other
work may share the machine. Every answer is checked, per group and queue, against what the run was
made to hold; exit code 1 if one is wrong. Whether a target is met is printed and, with
``--strict``, decides the exit code too.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.collector.decode import decode
from failback.analytics.collector.settings import Limits
from failback.analytics.lake.segment_ids import SegmentId
from failback.client.consumelog.upload.lake_files import lake_rows, parquet_bytes
from failback.client.consumelog.upload.segments import SEGMENT_KEY
from tests.benchmarks.analytics import driver
from tests.benchmarks.analytics.bench import Entry, Lap, generated, machine, race, session_for
from tests.benchmarks.analytics.synthetic import Plan
from tests.benchmarks.analytics.usage import CpuMeter
from tests.benchmarks.documents import Table, with_figures
from tests.benchmarks.targets import Target, at_least, at_most

COUNTING: Final = ("duckdb", "local-counts", "spark-counts", "spark-group-by")
EXPLAINING: Final = (
    "local-read", "local-partials", "local-causes", "local-report", "spark-partials",
    "spark-tables-partials", "spark-causes",
)  # fmt: skip
SEGMENT_ROWS: Final = 1 << 17
SHORT_LAPS: Final = 4
"""Laps of a round where one takes us tenths of a second, or seconds."""
INGESTED: Final = at_least(1.0)
RACE: Final = "race"
DRIVER: Final = "driver"
PARTS: Final = {
    RACE: "make bench-analytics",
    DRIVER: "make bench-analytics ARGS='--only driver'",
}
"""What is measured, and the command that a document names for it."""
Bar = tuple[str, float, Target]
"""What, the figure, and what it has to reach."""


@dataclass(frozen=True, slots=True)
class Run:
    """What to generate, and who races on it."""

    name: str
    plan: Plan
    racing: Sequence[str]


@dataclass
class Measured:
    """What a run of the benchmark found."""

    bars: list[Bar] = field(default_factory=list)
    cpu: dict[str, dict[str, float]] = field(default_factory=dict)
    """Seconds of each engine on each run."""
    wrong: list[str] = field(default_factory=list)
    """Run and engine of every wrong answer."""


def main() -> int:
    options = parse()
    document = options.markdown.read_text() if options.markdown else None
    if document is not None:
        with_figures(document, PARTS[options.only or RACE], "")  # it has a place for them
    missing = why_not() if not options.without_spark else "left out"
    if missing:
        print(f"without spark: {missing}")
    wanted = [name for name in PARTS if options.only in (None, name)]
    bars: list[Bar] = []
    wrong: list[str] = []
    for name in wanted:
        if name == DRIVER and missing:
            continue
        found, figures = part_of(name, options, with_spark=not missing)
        print(f"\n{figures}")
        bars += found.bars
        wrong += found.wrong
        if options.markdown and not found.wrong and name == (options.only or RACE):
            text = with_figures(options.markdown.read_text(), PARTS[name], figures)
            options.markdown.write_text(text)
    for each in wrong:
        print(f"wrong answer: {each}", file=sys.stderr)
    missed = not all(target.is_met(figure) for _, figure, target in bars)
    return 1 if wrong or (options.strict and missed) else 0


def part_of(
    name: str, options: argparse.Namespace, *, with_spark: bool
) -> tuple[Measured | driver.Measured, str]:
    """What a part of the benchmark found, and its section of a document."""
    began = time.monotonic()
    found: Measured | driver.Measured
    if name == RACE:
        found = measure(options, with_spark=with_spark)
        print(json.dumps({"rows": options.rows, **asdict(found), **machine()}))
        return found, as_markdown(options, found, _minutes(began))
    with tempfile.TemporaryDirectory(prefix="failback-bench-", dir=options.scratch) as scratch:
        sizes = [options.rows * factor for factor in driver.FACTORS]
        chosen = [case for case in driver.CASES if options.repeats in (None, case.name)]
        found = driver.measured(sizes, chosen, Path(scratch))
    print(json.dumps({**asdict(found), **machine()}))
    head = f"{_machine()}. Measured {time.strftime('%Y-%m-%d')} in {_minutes(began):.0f} minutes."
    return found, f"{head}\n\n{found.markdown()}"


def _minutes(began: float) -> float:
    return (time.monotonic() - began) / 60


def _machine() -> str:
    versions = machine()
    name = versions.pop("machine")
    return ", ".join([name, *(f"{what} {version}" for what, version in versions.items())])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=PARTS, help="the part to measure; both by default")
    repeats = [case.name for case in driver.CASES]
    parser.add_argument("--repeats", choices=repeats, help="of the driver's cases this one")
    parser.add_argument("--scratch", type=Path, help="where the runs are written")
    parser.add_argument("--without-spark", action="store_true")
    parser.add_argument("--strict", action="store_true", help="fail on a missed target too")
    parser.add_argument("--markdown", type=Path, help="document whose figures are replaced")
    return parser.parse_args()


def measure(options: argparse.Namespace, *, with_spark: bool) -> Measured:
    engines = [
        name for name in (*COUNTING, *EXPLAINING) if with_spark or not name.startswith("spark")
    ]
    found = Measured()
    with tempfile.TemporaryDirectory(prefix="failback-bench-", dir=options.scratch) as scratch:
        for part in parts(options.rows, engines):
            for entry, best in raced(part, Path(scratch), options.rounds).items():
                name = entry.folder.name
                found.cpu.setdefault(name, {})[entry.engine] = round(best.cpu_seconds, 3)
                found.wrong += [] if best.right else [f"{name}: {entry.engine}"]
            for run in part:
                folder = Path(scratch) / run.name
                if run.name == "whole":
                    rate = max(ingestion(folder) for _ in range(options.rounds * SHORT_LAPS))
                    what = "segments to Parquet, million rows per CPU second"
                    found.bars.append((what, rate / 1e6, INGESTED))
                shutil.rmtree(folder)
    found.bars += ratios(found.cpu, with_spark=with_spark)
    return found


def parts(rows: int, engines: Sequence[str]) -> list[list[Run]]:
    """The runs of each Spark session: those with full causes, and those that are counted."""
    whole = Plan(rows=rows)
    counts = [name for name in engines if name.endswith("-counts")]
    tenth = replace(whole, rows=rows // 10)
    return [
        [Run("half", replace(whole, rows=rows // 2), [n for n in engines if n in EXPLAINING])],
        [
            Run("whole", whole, [name for name in engines if name in COUNTING]),
            Run("tenth", tenth, counts),
            Run("one queue", replace(tenth, queues=1), counts),
            Run("many queues", replace(tenth, queues=1000), counts),
            Run("hot queue", replace(tenth, rate_skew="zipf:1.1"), counts),
        ],
    ]


def raced(part: Sequence[Run], scratch: Path, rounds: int) -> dict[Entry, Lap]:
    """Generate the runs, and race on all of them in one Spark session."""
    engines = list(dict.fromkeys(name for run in part for name in run.racing))
    with session_for(engines) as spark:
        if spark is not None:
            warm_up(scratch / "warm", engines, spark)
        for run in part:
            generated(run.plan, scratch / run.name)
        found = race(order(part, scratch, rounds), spark)
    for entry, best in found.items():
        what = f"{entry.folder.name}, {entry.engine}"
        print(f"{what}: {best.cpu_seconds:.2f} CPU seconds", flush=True)
    return found


def order(part: Sequence[Run], scratch: Path, rounds: int) -> list[Entry]:
    """Laps by turns: a shared machine is faster at one time than at another.

    Counting takes us seconds at most, so it is done more often than the rest.
    """
    entries = [Entry(engine, scratch / run.name) for run in part for engine in run.racing]
    short = [entry for entry in entries if entry.engine.endswith("-counts")]
    return [*entries, *short * (SHORT_LAPS - 1)] * rounds


def warm_up(folder: Path, engines: Sequence[str], spark: SparkSession) -> None:
    """Let Spark compile and start its workers: that is paid once per session."""
    generated(Plan(rows=200_000), folder)
    race([Entry(name, folder) for name in engines if name.startswith("spark")], spark)
    shutil.rmtree(folder)


def ratios(cpu: dict[str, dict[str, float]], *, with_spark: bool) -> list[Bar]:
    found: list[Bar] = []
    for run, a, b, limit in (
        ("whole", "local-counts", "duckdb", 0.1),
        ("half", "local-causes", "local-read", 3),
        ("half", "local-causes", "local-partials", 1.7),
        ("whole", "spark-counts", "duckdb", 0.25),
        ("whole", "spark-counts", "spark-group-by", 0.05),
        ("half", "spark-causes", "spark-partials", 1.7),
    ):
        if with_spark or not a.startswith("spark"):
            found.append((f"{a} / {b}", cpu[run][a] / cpu[run][b], at_most(limit)))
    for engine in ("local-counts", "spark-counts") if with_spark else ("local-counts",):
        for what, a, b, limit in (
            ("ten times the rows", "whole", "tenth", 11.0),
            ("1 to 1,000 queues", "many queues", "one queue", 1.3),
            ("one hot queue", "hot queue", "tenth", 1.3),
        ):
            figure = cpu[a][engine] / cpu[b][engine]
            found.append((f"{engine}, {what}", figure, at_most(limit)))
    return found


def ingestion(folder: Path) -> float:
    """Rows per CPU second from segments as they are uploaded to Parquet as it lies in the lake."""
    paths = folder.glob("lake/table=deliver/date=*/run=*/*.parquet")
    path = max(paths, key=lambda path: path.stat().st_size)
    table = pq.read_table(path, partitioning=None)
    run = pa.array([path.parent.name.removeprefix("run=")] * table.num_rows)
    table = table.append_column("run", run.dictionary_encode())  # an upload has the column
    bodies = list(segments(table))
    limits, rows = Limits(), 0
    with CpuMeter() as cpu:
        for named, body in bodies:
            decoded = decode(named, body, "", limits)
            parquet_bytes(lake_rows(decoded.table, "deliver"))
            rows += decoded.table.num_rows
        return rows / cpu.seconds()


def segments(table: Any) -> Iterator[tuple[SegmentId, bytes]]:
    """The table cut into uploads of about the largest size that shippers send."""
    note = json.loads(table.schema.metadata[SEGMENT_KEY.encode()])
    for index, at in enumerate(range(0, table.num_rows, SEGMENT_ROWS)):
        piece = table.slice(at, SEGMENT_ROWS)
        lo = note["seq_lo"] + at
        mine = {**note, "index": index, "seq_lo": lo, "seq_hi": lo + piece.num_rows - 1,
                "rows": piece.num_rows, "records": piece.num_rows}  # fmt: skip
        meta = {**table.schema.metadata, SEGMENT_KEY.encode(): json.dumps(mine).encode()}
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        with pa.ipc.new_stream(sink, piece.schema.with_metadata(meta), options=options) as writer:
            writer.write_table(piece.combine_chunks())
        yield SegmentId(note["run"], note["proc"], index, "deliver"), sink.getvalue().to_pybytes()


def as_markdown(options: argparse.Namespace, found: Measured, minutes: float) -> str:
    """The section of the document: whether each target is met, and what that comes from."""
    head = f"{_machine()}. Measured {time.strftime('%Y-%m-%d')} in {minutes:.0f} minutes, "
    often = options.rounds * SHORT_LAPS
    head += f"the least of {options.rounds} rounds, of {often} of our counts and segments."
    bars = Table(f"{options.rows:,} deliveries", ("what", "figure (target)"))
    bars.rows += [[what, target.verdict(figure)] for what, figure, target in found.bars]
    seconds = Table("CPU seconds", ("engine", *found.cpu))
    for engine in (*COUNTING, *EXPLAINING):
        row = [f"{run[engine]:,.2f}" if engine in run else "" for run in found.cpu.values()]
        seconds.rows += [[engine, *row]] if any(row) else []
    return f"{head}\n\n{bars.markdown()}\n{seconds.markdown()}"


if __name__ == "__main__":
    sys.exit(main())
