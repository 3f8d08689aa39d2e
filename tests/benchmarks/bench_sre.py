"""The collector: deliveries per core, memory with 200 agents, and what 20 kills under load lose.
The exporter: a survey and a scrape of a broker with 1,000 topics and 100 groups on each.
The dashboard: its first page and the page of a large report, by the browser's own clock.

Run: ``python -m tests.benchmarks.bench_sre [--quick] [--only exporter]``. The collector is a
process of its own, with one connection per agent; its CPU and resident memory are read from
``/proc``. Prints a line per figure and JSON on the last one. Aims: at least 300,000 deliveries per
second and core, less than 300 MiB with 200 agents, nothing lost, a scrape within 2 s.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import arrow_schema
from failback.client.consumelog.upload.collector_client import CollectorAway
from failback.client.consumelog.upload.lake_files import arrow_table
from failback.client.consumelog.upload.segments import SEGMENT_KEY, Segment, segments_of
from failback.client.consumelog.writer import ConsumeLog
from tests.benchmarks import dashboard_pages, exporter_rate
from tests.support.analytics.collector_lab import (
    CollectorLab,
    check_lake,
    running_collector,
    uploads_of,
    write_log,
)
from tests.support.clients.consumelog import begin

RUN = "bench"
PARTS = ("collector", "dashboard", "exporter")
AGENTS = 200
KILLS = 20
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def one_segment(folder: Path, deliveries: int) -> Segment:
    """What a full hot file becomes: 4 MiB of begin and end records."""
    with ConsumeLog(
        folder, run=RUN, proc_no=0, role="consumer", host="h", segment_seconds=3600.0,
        segment_bytes=64 << 20, sync_seconds=0,
    ) as log:  # fmt: skip
        for n in range(deliveries):
            log.deliver_end(begin(log, n, qid=n % 8), "SUCCESS", True, n)
        path = log.path
    (segment,) = segments_of(read_hot(path))
    path.unlink()
    return segment


class Bodies:
    """Segments of many processes from one: other metadata and other constants."""

    def __init__(self, segment: Segment) -> None:
        self._table = arrow_table(segment)
        self._note = json.loads(self._table.schema.metadata[SEGMENT_KEY.encode()])
        self.deliveries = self._table.num_rows

    def make(self, number: int, index: int) -> tuple[str, bytes, str]:
        """Name, body and hash of one segment."""
        proc = (number + 1).to_bytes(16, "big")
        rows = self._table.num_rows
        columns = {
            "proc": pa.array([proc]).cast(pa.binary(16)).take(pa.array([0] * rows)),
            "proc_no": pa.array([number], pa.int32()).take(pa.array([0] * rows)),
        }
        table = self._table
        schema = arrow_schema("deliver")
        for name, column in columns.items():
            at = schema.get_field_index(name)
            table = table.set_column(at, schema.field(at), column)
        note = {**self._note, "proc": proc.hex(), "proc_no": number, "index": index}
        metadata = {**self._table.schema.metadata, SEGMENT_KEY.encode(): json.dumps(note).encode()}
        table = table.replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        body: bytes = sink.getvalue().to_pybytes()
        name = f"{RUN}/{proc.hex()}/{index:08d}/deliver"
        return name, body, hashlib.sha256(body).hexdigest()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)


@contextmanager
def sampled_memory(pid: int) -> Iterator[list[float]]:
    """Resident memory five times a second, for as long as the block runs."""
    samples: list[float] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(0.2):
            samples.append(rss_mib(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def send_all(
    lab: CollectorLab, agent: int, bodies: Bodies, count: int, problems: list[str]
) -> None:
    """One agent: its own process and connection, one segment after the other."""
    client = lab.client()
    for index in range(count):
        name, body, sha256 = bodies.make(agent, index)
        while (answer := client.send_segment(name, body, sha256)).status == 429:
            time.sleep(answer.retry_after_seconds or 1)
        if answer.status != 201:
            problems.append(str(answer))
    client.close()


def with_agents(lab: CollectorLab, agents: int, bodies: Bodies, each: int) -> dict[str, float]:
    problems: list[str] = []
    threads = [
        threading.Thread(target=send_all, args=(lab, agent, bodies, each, problems))
        for agent in range(agents)
    ]
    pid = lab.process.pid
    cpu, wall, before = cpu_seconds(pid), time.perf_counter(), rss_mib(pid)
    with sampled_memory(pid) as samples:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    cpu, wall = cpu_seconds(pid) - cpu, time.perf_counter() - wall
    if problems:
        raise SystemExit(f"{len(problems)} uploads failed: {problems[0]}")
    deliveries = agents * each * bodies.deliveries
    third = max(1, len(samples) // 3)
    return {
        "deliveries": deliveries,
        "cpu_seconds": round(cpu, 2),
        "deliveries_per_core_second": round(deliveries / cpu),
        "deliveries_per_second": round(deliveries / wall),
        "rss_mib_before": round(before),
        "rss_mib_first_third": round(max(samples[:third], default=before)),
        "rss_mib_last_third": round(max(samples[-third:], default=before)),
        "rss_mib_max": round(max(samples, default=before)),
    }


def kill_rounds(folder: Path, kills: int) -> dict[str, int]:
    """Kill the collector again and again under load; the lake must be the truth afterwards."""
    hot = folder / "hot"
    senders = 4
    last = {n: write_log(hot / str(n), proc_no=n, deliveries=2500) for n in range(1, senders + 1)}
    truth = {n: uploads_of(hot / str(n)) for n in last}
    resent = [0]

    def send(number: int) -> None:
        client = lab.client()
        for upload in truth[number]:
            while True:
                try:
                    answer = client.send_segment(upload.id, upload.body, upload.sha256)
                    if answer.status in {200, 201}:
                        break
                except (CollectorAway, http.client.HTTPException):
                    pass
                resent[0] += 1
                time.sleep(0.02)
        client.close()

    with running_collector(folder / "lab") as lab:
        threads = [threading.Thread(target=send, args=(number,)) for number in last]
        for thread in threads:
            thread.start()
        done = 0
        while done < kills and any(thread.is_alive() for thread in threads):
            time.sleep(0.05 + 0.01 * (done % 7))
            lab.kill()
            lab.start()
            done += 1
        for thread in threads:
            thread.join()
        everything = [upload for uploads in truth.values() for upload in uploads]
        check_lake(lab.lake, everything)
        client = lab.client()
        answer = client.close_run("lab", last)
        client.close()
    return {
        "kills_under_load": done,
        "segments": len(everything),
        "repeated_requests": resent[0],
        "gaps": len(answer.document.get("gaps", ())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument(
        "--only", choices=("collector", "exporter", "dashboard"), help="one of them"
    )
    options = parser.parse_args()
    share = 10 if options.quick else 1
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only in (None, "collector"):
            measure_collector(folder, share, figures)
        if options.only in (None, "dashboard"):
            figures["dashboard"] = dashboard_pages.measure(folder / "dashboard", share)
            for line in dashboard_pages.lines(figures["dashboard"]):
                print(line)
        if options.only in (None, "exporter"):
            figures["exporter"] = found = exporter_rate.measure(
                folder / "exporter", 1000 // share, 100
            )
            print(
                f"exporter, {found['topics']:,} topics x {found['groups']} groups: scrape"
                f" {found['scrape_seconds_median']} s, at most {found['scrape_seconds_max']} s"
                f" ({found['series']:,} series); survey {found['survey_seconds']} s"
            )
    figures["python"] = sys.version.split()[0]
    figures["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    print(json.dumps(figures))
    return 0


def measure_collector(folder: Path, share: int, figures: dict[str, Any]) -> None:
    """Fill in the figures of the collector, printing a line for each."""
    full = Bodies(one_segment(folder / "full", 16_000))
    with running_collector(folder / "rate") as lab:
        with_agents(lab, 2, full, 2)  # warm
    with running_collector(folder / "rate2") as lab:
        figures["rate"] = rate = with_agents(lab, 4, full, max(2, 40 // share))
    print(
        f"4 agents, segments of 16,000: {rate['deliveries_per_core_second']:,} deliveries/s per"
        f" core of the collector ({rate['deliveries_per_second']:,}/s by the clock)"
    )
    small = Bodies(one_segment(folder / "small", 2_000))
    with running_collector(folder / "agents") as lab:
        figures["agents"] = many = with_agents(lab, AGENTS, small, max(2, 20 // share))
    print(
        f"{AGENTS} agents, segments of 2,000: RSS at most {many['rss_mib_max']} MiB"
        f" (first third {many['rss_mib_first_third']}, last {many['rss_mib_last_third']});"
        f" {many['deliveries_per_core_second']:,} deliveries/s per core"
    )
    figures["kills"] = kills = kill_rounds(folder / "kills", max(2, KILLS // share))
    print(
        f"{kills['kills_under_load']} kills under load: {kills['segments']} segments, each once"
        f" in the lake, {kills['gaps']} gaps, {kills['repeated_requests']} requests repeated"
    )


if __name__ == "__main__":
    sys.exit(main())
