"""The same load from a producer that costs little itself: plain frames, one connection.

The Java client takes most of two shared cores, so its rates say as much about it as about the
broker. Here the producer is ``loadgen``: 1, 16 or 64 sends outstanding, 1 KiB, ASYNC_FLUSH.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.bench_broker_path import load
from tests.benchmarks.bench_broker_path import measure as measure_window
from tests.benchmarks.broker import targets
from tests.benchmarks.broker.engines import Site, medians, say, sites
from tests.benchmarks.broker.generator import Window
from tests.benchmarks.broker.scale import Scale
from tests.benchmarks.broker.sends import compared, latencies
from tests.benchmarks.documents import Table, number

_OUTSTANDING: Final = (1, 16, 64)


def measure(scale: Scale, folder: Path) -> list[Table]:
    """Return the table of the lean producer."""
    table = Table(
        "A lean producer on one connection, 1 KiB, ASYNC_MASTER, ASYNC_FLUSH",
        (
            "sends outstanding",
            "msg/s ours",
            "Apache",
            "rate ours/Apache",
            "CPU µs ours",
            "Apache",
            "CPU ours/Apache",
            "p50 / p99 / p99.9 ms ours",
            "Apache",
        ),
    )
    with sites(folder) as pair:
        for site in pair.values():
            load(site.master.address, 1, 64, scale.warm_seconds)
        for outstanding in _OUTSTANDING:
            measures = {
                engine: partial(_window, site, outstanding, scale) for engine, site in pair.items()
            }
            found = medians(measures.items(), scale.rounds)
            ours, apache = found["failback"], found["apache"]
            row = [str(outstanding), number(ours.rate), number(apache.rate)]
            row.append(f"{ours.rate / apache.rate:.2f}")
            row += compared(targets.send_cpu(1), ours.cpu_us[0], apache.cpu_us[0])
            table.rows.append([*row, latencies(ours), latencies(apache)])
            say(f"lean: {outstanding} outstanding")
    return [table]


def _window(site: Site, outstanding: int, scale: Scale) -> Window:
    pid, address = site.master.process.pid, site.master.address
    found = measure_window(pid, address, (1, outstanding), scale.seconds)
    return Window(
        rate=found["rate"],
        cpu_us=(found["cpu_us"],),
        p50_ms=found["p50_ms"],
        p99_ms=found["p99_ms"],
        p999_ms=found["p999_ms"],
        messages=int(found["rate"] * scale.seconds),
        errors=int(found["errors"]),
        unsure=0,
        first_error="",
    )
