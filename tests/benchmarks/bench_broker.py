"""Our broker beside Apache RocketMQ 4.9 under the very same load, in alternating windows.

Run: ``python -m tests.benchmarks.bench_broker [--seconds N] [--windows N]``. 1 KiB bodies,
ASYNC_MASTER and ASYNC_FLUSH, one producer process that keeps 1, 16 or 64 sends outstanding. Both
brokers stay up; the load alternates between them (A B A B), because a machine's mood changes within
minutes. Printed per cell: messages per second, CPU (user + system) of the broker per message, and
the ratios ours/Apache of the medians. Apache is warmed up first: its CPU per message falls about
fourfold while the JIT compiles. JSON on the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.bench_broker_path import load, measure, memory_mib
from tests.support.apache import Broker, NameServer

CELLS = (1, 16, 64)
WARM_UP_SECONDS = 20.0
LOG_FILE_BYTES = 1 << 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one window")
    parser.add_argument("--windows", type=int, default=3, help="windows per broker and cell")
    parser.add_argument("--folder", type=Path, help="where the stores are put; default: temporary")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} CPUs, 1 KiB bodies, ASYNC_FLUSH")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows, memory = compare(Path(folder), options.seconds, options.windows)
    print_table(rows)
    for engine, mebibytes in memory.items():
        print(
            f"anonymous memory of {engine}: idle {mebibytes[0]:.0f}, loaded {mebibytes[1]:.0f} MiB"
        )
    print(json.dumps({"cells": rows, "anonymous_mib": memory}))
    return 0


Row = dict[str, float | str]


def compare(folder: Path, seconds: float, windows: int) -> tuple[list[Row], dict[str, list[float]]]:
    """Return one row per cell and engine, and idle and loaded memory per engine."""
    namesrv = NameServer("failback", folder / "ns")
    # The production heap and compiler: the frugal flags of the tests are not for measurements.
    brokers = {
        "failback": Broker("failback", folder / "ours", namesrv.address, name="ours"),
        "apache": Broker(
            "apache",
            folder / "apache",
            namesrv.address,
            name="apache",
            java_flags=("-Xms1g", "-Xmx1g"),
        ),
    }
    running = []
    try:
        namesrv.start()
        running.append(namesrv.process)
        for broker in brokers.values():
            broker.settings["mappedFileSizeCommitLog"] = LOG_FILE_BYTES
            broker.start()
            running.append(broker.process)
        memory = {name: [memory_mib(b.process.pid)] for name, b in brokers.items()}
        for name, broker in brokers.items():
            load(broker.address, 1, 64, WARM_UP_SECONDS if name == "apache" else 3.0)
        rows = []
        for outstanding in CELLS:
            rows += measure_cell(brokers, outstanding, seconds, windows)
        for name, broker in brokers.items():
            memory[name].append(memory_mib(broker.process.pid))
        return rows, memory
    finally:
        for process in reversed(running):
            process.stop()


def measure_cell(
    brokers: dict[str, Broker], outstanding: int, seconds: float, windows: int
) -> list[Row]:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in brokers}
    for _ in range(windows):
        for name, broker in brokers.items():
            window = measure(broker.process.pid, broker.address, (1, outstanding), seconds)
            found[name].append(window)
    return [
        {"engine": name, "in_flight": outstanding, **medians(rows)} for name, rows in found.items()
    ]


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    names = ("rate", "cpu_us", "p50_ms", "p99_ms", "p999_ms", "errors")
    return {name: statistics.median(row[name] for row in rows) for name in names}


def print_table(rows: list[Row]) -> None:
    print("in flight  engine      msg/s   CPU µs   p50 ms   p99 ms  p99.9 ms   rate ×   CPU ×")
    for ours, apache in zip(rows[::2], rows[1::2], strict=True):
        for row in (ours, apache):
            latency = "  ".join(f"{row[name]:8.2f}" for name in ("p50_ms", "p99_ms", "p999_ms"))
            line = f"{row['in_flight']:9d}  {row['engine']:9s}  {row['rate']:6.0f}"
            line += f"  {row['cpu_us']:7.1f} {latency}"
            if row is ours:
                rate = float(ours["rate"]) / float(apache["rate"])
                line += f"   {rate:6.2f}  {float(ours['cpu_us']) / float(apache['cpu_us']):6.2f}"
            print(line)


if __name__ == "__main__":
    sys.exit(main())
