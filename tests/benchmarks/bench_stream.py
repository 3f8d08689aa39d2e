"""Live totals on a stream of segments: how far behind they are, and what each queue's state takes.

Run: ``python -m tests.benchmarks.bench_stream [--rate 200000] [--seconds 100] [--queues 64]``. A
generated run is cut into segments as agents upload them; they are put into a lake at ``--rate``
deliveries per second while the job ``stream`` reads it with one trigger each ``--trigger`` seconds.
The lag at the end of a trigger is what lies in the lake and is not counted, in triggers' worth of
deliveries. Aims: less than 2 triggers, less than 10 KiB of state per queue. The totals at the end
are compared with what the run was made to hold; exit code 1 if they are wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from failback.analytics.analysis.engines.spark.session import session, why_not
from failback.analytics.jobs.stream import read_totals, start
from failback.analytics.lake.store import LakeStore, open_store
from failback.client.consumelog.upload.lake_files import parquet_bytes
from failback.client.consumelog.upload.layout import folder_of
from tests.benchmarks.analytics.bench import machine
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.benchmarks.analytics.usage import CpuMeter, peak_mib

SEGMENTS_PER_FILE: Final = 12
"""A file of the generated run holds a quarter of a million rows; a segment about 20,000."""
MAX_LAG: Final = 2.0
MAX_STATE_BYTES: Final = 10 * 1024
_DRAIN_SECONDS: Final = 300.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=int, default=200_000, help="deliveries per second")
    parser.add_argument("--seconds", type=int, default=100)
    parser.add_argument("--queues", type=int, default=64)
    parser.add_argument("--trigger", type=float, default=10.0, help="seconds")
    parser.add_argument("--dup-share", type=float, default=0.05)
    options = parser.parse_args()
    missing = why_not()
    if missing:
        print(missing, file=sys.stderr)
        return 2
    plan = Plan(
        rows=options.rate * options.seconds, queues=options.queues, dup_share=options.dup_share
    )
    with tempfile.TemporaryDirectory(prefix="failback-bench-") as scratch, session() as spark:
        feed = Feed(Path(scratch), plan, options.rate)
        warm = Feed(Path(scratch) / "warm", Plan(rows=400_000, queues=4), options.rate)
        warm.put_all()
        follow(spark, warm, trigger=None)
        feeder = threading.Thread(target=feed.put_all, name="feeder")
        with CpuMeter() as cpu:
            feeder.start()
            batches = follow(spark, feed, trigger=options.trigger)
            feeder.join()
            used = cpu.seconds()
        return show(options, feed, batches, used)


@dataclass(frozen=True, slots=True)
class Batch:
    """One trigger that had rows: when it ended, and what had been counted by then."""

    ended: float
    seconds: float
    counted: int


@dataclass
class Feed:
    """Segments that appear in a lake at a steady rate."""

    folder: Path
    plan: Plan
    rate: int
    put: list[tuple[float, int]] = field(default_factory=list)
    """Unix time and deliveries in the lake since then."""
    state_bytes: int = 0
    """The most that any queue's state ever took."""

    def __post_init__(self) -> None:
        run = self.folder / "run"
        self.truth = generate(self.plan, run)
        self.lake = self.folder / "lake" / folder_of("deliver", self.plan.run, "2026-01-01")
        self.lake.mkdir(parents=True)
        self._ready = list(self._segments(run, self.folder / "ready"))
        shutil.rmtree(run)

    @property
    def stores(self) -> tuple[LakeStore, LakeStore]:
        """The lake, and where the totals go."""
        return open_store(self.folder / "lake"), open_store(self.folder / "out")

    def _segments(self, run: Path, ready: Path) -> Iterator[tuple[Path, int]]:
        """All queues go on at the same time: the first part of each file, the second, ..."""
        ready.mkdir()
        parts: list[list[tuple[Path, int]]] = [[] for _ in range(SEGMENTS_PER_FILE)]
        paths = sorted(run.glob("lake/table=deliver/date=*/run=*/*.parquet"))
        for number, path in enumerate(paths):
            table = pq.read_table(path, partitioning=None)
            step = -(-table.num_rows // SEGMENTS_PER_FILE)
            for index in range(SEGMENTS_PER_FILE):
                piece = table.slice(index * step, step)
                if piece.num_rows:
                    segment = ready / f"{index:02d}-{number:05d}.parquet"
                    segment.write_bytes(parquet_bytes(piece))
                    parts[index].append((segment, piece.num_rows))
        for part in parts:
            yield from part

    def put_all(self) -> None:
        """Move the segments into the lake, each when it is due."""
        begun, rows = time.time(), 0
        for segment, count in self._ready:
            time.sleep(max(0.0, begun + rows / self.rate - time.time()))
            segment.rename(self.lake / segment.name)
            rows += count
            self.put.append((time.time(), rows))

    def in_lake(self, at: float) -> int:
        """Deliveries in the lake at an instant."""
        place = bisect_right(self.put, (at, sys.maxsize))
        return self.put[place - 1][1] if place else 0


def follow(spark: Any, feed: Feed, *, trigger: float | None) -> list[Batch]:
    """Run the job until every delivery of the plan is counted."""
    lake, out = feed.stores
    words = None if trigger is None else f"{trigger:g} seconds"
    query = start(spark, lake, feed.folder / "checkpoint", out, trigger=words)
    if trigger is None:
        query.awaitTermination()
        return []
    deadline = time.monotonic() + feed.plan.rows / feed.rate + _DRAIN_SECONDS
    while time.monotonic() < deadline and query.isActive:
        queues = read_totals(out)["queues"]
        feed.state_bytes = max([feed.state_bytes, *(row["state_bytes"] for row in queues)])
        if sum(row["delivered"] for row in queues) >= feed.plan.rows:
            break
        time.sleep(0.5)
    time.sleep(trigger)  # the progress of the last trigger comes after its totals
    progress = query.recentProgress
    query.stop()
    return list(batches_of(progress))


def batches_of(progress: Sequence[Any]) -> Iterator[Batch]:
    counted = 0
    for each in progress:
        document = json.loads(each.json)
        if document["numInputRows"]:
            counted += document["numInputRows"]
            seconds = document["durationMs"]["triggerExecution"] / 1000
            begun = datetime.fromisoformat(document["timestamp"]).timestamp()
            yield Batch(begun + seconds, seconds, counted)


def show(options: argparse.Namespace, feed: Feed, batches: Sequence[Batch], cpu: float) -> int:
    """Print the figures and whether they are right."""
    _, out = feed.stores
    queues = read_totals(out)["queues"]
    per_trigger = options.rate * options.trigger
    lags = [(feed.in_lake(batch.ended) - batch.counted) / per_trigger for batch in batches]
    took = [batch.seconds for batch in batches]
    bars = [
        ("lag, triggers, worst", max(lags), MAX_LAG),
        ("state per queue, bytes, largest", feed.state_bytes, MAX_STATE_BYTES),
    ]
    for what, figure, limit in bars:
        print(f"{'met   ' if figure < limit else 'missed'}  {what}: {figure:,.2f} (< {limit:,g})")
    found = {
        "delivered": sum(row["delivered"] for row in queues),
        "repeated": sum(row["repeated"] for row in queues),
    }
    wanted = {"delivered": feed.plan.rows, "repeated": expected_repeats(feed.truth)}
    figures = {
        "rate": options.rate,
        "queues": len(queues),
        "triggers": len(batches),
        "trigger_seconds": options.trigger,
        "batch_seconds": [round(each, 2) for each in took],
        "lags": [round(each, 2) for each in lags],
        "state_bytes": feed.state_bytes,
        "rows_per_cpu_second": round(feed.plan.rows / cpu),
        "peak_mib": peak_mib(),
        "found": found,
        "wanted": wanted,
        **machine(),
    }
    print(json.dumps(figures))
    if found != wanted:
        print(f"wrong answer: {found}, not {wanted}", file=sys.stderr)
        return 1
    return 0


def expected_repeats(truth: dict[str, Any]) -> int:
    """Deliveries of a copy that had been delivered before."""
    return sum(int(group["repeated_offsets"]) for group in truth["groups"].values())


if __name__ == "__main__":
    sys.exit(main())
