"""What a broker and a name server need before any load: time to boot, memory at rest."""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.broker import targets
from tests.benchmarks.broker.engines import ENGINES, Site, alternating, say
from tests.benchmarks.broker.proc import anonymous_mib
from tests.benchmarks.broker.scale import Scale
from tests.benchmarks.broker.sends import compared
from tests.benchmarks.documents import Table
from tests.support.java.apache import Engine


@dataclass(frozen=True, slots=True)
class Footing:
    """Of one start: seconds until the broker said that it serves, MiB at rest."""

    boot_seconds: float
    broker_mib: float
    namesrv_mib: float


def measure(scale: Scale, folder: Path) -> list[Table]:
    """Return the table of boot and idle memory."""
    rounds = max(scale.rounds, 3)
    measures = {engine: partial(_start, engine, scale, folder / engine) for engine in ENGINES}
    found = alternating(measures.items(), rounds)
    table = Table("At rest", ("figure", "ours", "Apache", "ours/Apache"))
    rows = (
        ("boot of a broker, s", "boot_seconds", targets.BOOT),
        ("anonymous memory of a broker, MiB", "broker_mib", targets.IDLE_MEMORY),
        ("anonymous memory of a name server, MiB", "namesrv_mib", targets.IDLE_MEMORY),
    )
    for title, name, target in rows:
        ours, apache = (
            statistics.median(getattr(each, name) for each in found[engine]) for engine in ENGINES
        )
        table.rows.append([title, *compared(target, ours, apache)])
    return [table]


def _start(engine: Engine, scale: Scale, folder: Path) -> Footing:
    site = Site(engine, folder)
    try:
        site.namesrv.start()
        began = time.time()
        site.master.start()
        # Its only line on standard output says that it serves: the file's time is that moment.
        served = (site.master.folder / "broker.out").stat().st_mtime
        time.sleep(scale.idle_seconds)
        found = Footing(
            served - began,
            site.memory_mib()[0],
            anonymous_mib(site.namesrv.process.pid),
        )
        say(f"footing: {engine} boots in {found.boot_seconds:.2f} s")
        return found
    finally:
        site.dispose()
        shutil.rmtree(folder, ignore_errors=True)
