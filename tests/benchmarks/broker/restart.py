"""From the start of a broker that was killed to its first accepted send, with a large store."""

from __future__ import annotations

import shutil
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.broker import stores, targets
from tests.benchmarks.broker.engines import ENGINES, Site, alternating, say, write_back
from tests.benchmarks.broker.generator import LoadGenerator
from tests.benchmarks.broker.scale import Scale
from tests.benchmarks.broker.sends import compared
from tests.benchmarks.broker.table import size
from tests.benchmarks.documents import Table

_TOPIC: Final = "Restart"
_LOAD_MS: Final = 2000


def measure(scale: Scale, folder: Path, generator: LoadGenerator) -> list[Table]:
    """Return the table: seconds, medians over kills under load."""
    table = Table(
        f"Restart after kill -9 with a store of {size(scale.restart_bytes)}",
        ("s to the first accepted send, ours", "Apache", "ours/Apache"),
    )
    prepared = folder / "prepared"
    stores.fill(prepared, scale.restart_bytes, _TOPIC)
    found: dict[str, Site] = {}
    try:
        for engine in ENGINES:
            found[engine] = site = Site(engine, folder / engine)
            stores.copy(prepared, site.master.store)
            site.start()
            generator.first(site.address, _TOPIC, 120)
        shutil.rmtree(prepared)
        measures = {name: partial(_kill, generator, site) for name, site in found.items()}
        seconds = alternating(measures.items(), scale.rounds)
    finally:
        for site in found.values():
            site.dispose()
    ours, apache = (statistics.median(seconds[engine]) for engine in ENGINES)
    table.rows.append(compared(targets.RESTART, ours, apache))
    return [table]


def _kill(generator: LoadGenerator, site: Site) -> float:
    """Kill the broker under load, start it, return the seconds to the first accepted send."""
    options = {"threads": 16, "size": 1024, "millis": _LOAD_MS}
    write_back()  # of the stores that were copied, and of what the start before has written
    generator.send(site.address, _TOPIC, (), **options)
    site.master.kill()
    began = time.time()
    generator.begin_first(site.address, _TOPIC, 300)
    site.master.start()
    seconds = generator.end_first() - began
    say(f"restart: {site.engine} {seconds:.2f} s")
    return seconds
