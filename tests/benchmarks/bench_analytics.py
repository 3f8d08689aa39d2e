"""The analytics engines against DuckDB and Spark's own groupBy, on runs with known answers.

    make bench-analytics                                  ten million deliveries
    make bench-analytics ARGS="--rows 100000000 --markdown docs/analytics-engines.md"

A hundred million need 12 GB of disk below ``--scratch`` and half an hour. Exact repeats are counted
in all of them, causes and whole reports are made of half as many. Every figure is a ratio of CPU
seconds of whole process trees inside this one run, the least of ``--rounds`` each, because other
work may share the machine. Every answer is checked, per group and queue, against what the run was
made to hold; exit code 1 if one is wrong. Whether a target is met is printed and, with
``--strict``, decides the exit code too.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from failback.analytics.collect.decode import decode
from failback.analytics.collect.ids import SegmentId
from failback.analytics.collect.settings import Limits
from failback.analytics.engines.spark import why_not
from failback.analytics.jobs.bench import machine, race, session_for
from failback.analytics.jobs.usage import CpuMeter
from failback.analytics.synthetic import Plan
from failback.client.consumelog.lake_files import ARROW_STREAM, parquet_bytes
from failback.client.consumelog.segments import SEGMENT_KEY
from tests.benchmarks.documents import Table, with_figures
from tests.benchmarks.targets import Target, at_least, at_most

COUNTING: Final = ("duckdb", "local-counts", "spark-counts", "spark-group-by")
EXPLAINING: Final = (
    "local-read", "local-stage-a", "local-causes", "local-report", "spark-stage-a", "spark-causes",
)  # fmt: skip
OPPONENTS: Final = ("duckdb", "spark-group-by")
SEGMENT_ROWS: Final = 1 << 17
SHORT_LAPS: Final = 4
"""So many times the rounds where a lap takes tenths of a second."""
PEAK: Final = at_most(3 * 1024)
INGESTED: Final = at_least(1.0)
COMMAND: Final = "make bench-analytics"
Bar = tuple[str, float, Target]
"""What, the figure, and what it has to reach."""


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
    if options.markdown:
        with_figures(options.markdown.read_text(), COMMAND, "")  # it has a place for them
    missing = why_not() if not options.without_spark else "left out"
    if missing:
        print(f"without spark: {missing}")
    began = time.monotonic()
    found = measure(options, with_spark=not missing)
    minutes = (time.monotonic() - began) / 60
    print(json.dumps({"rows": options.rows, **asdict(found), **machine()}))
    figures = as_markdown(options, found, minutes)
    print(f"\n{figures}")
    for each in found.wrong:
        print(f"wrong answer: {each}", file=sys.stderr)
    if options.markdown and not found.wrong:
        text = with_figures(options.markdown.read_text(), COMMAND, figures)
        options.markdown.write_text(text)
    missed = not all(target.is_met(figure) for _, figure, target in found.bars)
    return 1 if found.wrong or (options.strict and missed) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=2)
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
    peaks: list[int] = []
    with tempfile.TemporaryDirectory(prefix="failback-bench-", dir=options.scratch) as scratch:
        for part in parts(options.rows, engines):
            racing = list(dict.fromkeys(each for _, _, chosen in part for each in chosen))
            with session_for(racing) as spark:
                if spark is not None:
                    warm_up(Path(scratch) / "warm", racing, spark)
                for name, plan, chosen in part:
                    folder = Path(scratch) / name
                    generated(plan, folder)
                    short = name not in ("half", "whole")
                    rounds = options.rounds * (SHORT_LAPS if short else 1)
                    laps = race(folder, chosen, rounds, spark)
                    cpu = {e: round(each.cpu_seconds, 2) for e, each in laps.items()}
                    mib = {e: each.peak_mib for e, each in laps.items() if e not in OPPONENTS}
                    found.cpu[name] = cpu
                    peaks += mib.values()
                    found.wrong += [f"{name}: {e}" for e, each in laps.items() if not each.right]
                    figures = f"CPU s {json.dumps(cpu)}, peak MiB {json.dumps(mib)}"
                    print(f"{name}: {figures}", flush=True)
                    if name == "whole":
                        best = max(ingestion(folder) for _ in range(options.rounds))
                        what = "segments to Parquet, million rows per CPU second"
                        found.bars.append((what, best / 1e6, INGESTED))
                    shutil.rmtree(folder)
    found.bars += ratios(found.cpu, with_spark=with_spark)
    found.bars.append(("peak memory of a process of ours, MiB", max(peaks), PEAK))
    return found


def parts(rows: int, engines: Sequence[str]) -> list[list[tuple[str, Plan, Sequence[str]]]]:
    """The runs of each Spark session: name, what to generate, and who races on it.

    What the opponent left in Spark's process would count as ours where memory is looked at.
    """
    whole = Plan(rows=rows)
    counts = [name for name in engines if name.endswith("-counts")]
    tenth = replace(whole, rows=rows // 10)
    return [
        [("half", replace(whole, rows=rows // 2), [n for n in engines if n in EXPLAINING])],
        [
            ("whole", whole, [name for name in engines if name in COUNTING]),
            ("tenth", tenth, counts),
            ("one queue", replace(tenth, queues=1), counts),
            ("many queues", replace(tenth, queues=1000), counts),
            ("hot queue", replace(tenth, rate_skew="zipf:1.1"), counts),
        ],
    ]


def generated(plan: Plan, folder: Path) -> None:
    """Write a run, in a process of its own: what that leaves in memory would count as ours."""
    command = [sys.executable, "-m", "failback.analytics.jobs.bench", "generate"]
    command += ["--out", str(folder)]
    for each in fields(plan):
        command += [f"--{each.name.replace('_', '-')}", str(getattr(plan, each.name))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def warm_up(folder: Path, engines: Sequence[str], spark: SparkSession) -> None:
    """Let Spark compile and start its workers: that is paid once per session."""
    generated(Plan(rows=200_000), folder)
    race(folder, [name for name in engines if name.startswith("spark")], 1, spark)
    shutil.rmtree(folder)


def ratios(cpu: dict[str, dict[str, float]], *, with_spark: bool) -> list[Bar]:
    found: list[Bar] = []
    for run, a, b, limit in (
        ("whole", "local-counts", "duckdb", 0.35),
        ("half", "local-causes", "local-read", 3),
        ("half", "local-causes", "local-stage-a", 1.7),
        ("whole", "spark-counts", "duckdb", 2.0),
        ("whole", "spark-counts", "spark-group-by", 0.25),
        ("half", "spark-causes", "spark-stage-a", 1.7),
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
    path = max(folder.glob("lake/table=deliver/run=*/*.parquet"), key=lambda p: p.stat().st_size)
    table = pq.read_table(path, partitioning=None)
    bodies = list(segments(table))
    limits, rows = Limits(), 0
    with CpuMeter() as cpu:
        for named, body in bodies:
            decoded = decode(named, body, ARROW_STREAM, "", limits)
            parquet_bytes(decoded.table)
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
    versions = machine()
    head = ", ".join(
        [versions.pop("machine"), *(f"{name} {version}" for name, version in versions.items())]
    )
    head += f". Measured {time.strftime('%Y-%m-%d')} in {minutes:.0f} minutes, "
    head += f"the least of {options.rounds} rounds."
    bars = Table(f"{options.rows:,} deliveries", ("what", "figure (target)"))
    bars.rows += [[what, target.verdict(figure)] for what, figure, target in found.bars]
    seconds = Table("CPU seconds", ("engine", *found.cpu))
    for engine in (*COUNTING, *EXPLAINING):
        row = [f"{run[engine]:,.2f}" if engine in run else "" for run in found.cpu.values()]
        seconds.rows += [[engine, *row]] if any(row) else []
    return f"{head}\n\n{bars.markdown()}\n{seconds.markdown()}"


if __name__ == "__main__":
    sys.exit(main())
