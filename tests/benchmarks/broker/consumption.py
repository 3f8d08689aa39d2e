"""Push consumption of a backlog that is there before the consumer."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.broker import targets
from tests.benchmarks.broker.engines import Site, medians, say, sites, warm_up
from tests.benchmarks.broker.generator import LoadGenerator, Window
from tests.benchmarks.broker.scale import Scale
from tests.benchmarks.broker.sends import compared
from tests.benchmarks.documents import Table, number
from tests.support.java.apache import Engine

_TOPIC: Final = "Backlog"
_BATCH: Final = 32
_DAY_MS: Final = 86_400_000
_GROUPS: Final = itertools.count()


def measure(scale: Scale, folder: Path, generator: LoadGenerator) -> list[Table]:
    """Return the table of consumption: 1 KiB bodies sent in batches, pulls of 32."""
    table = Table(
        f"Push consumption of {scale.backlog:,} messages of 1 KiB",
        ("msg/s ours", "Apache", "rate ours/Apache", "CPU µs ours", "Apache", "CPU ours/Apache"),
    )
    with sites(folder) as pair:
        for site in pair.values():
            warm_up(generator, site, "Other", scale.warm_seconds)
            _prepare(generator, site, scale.backlog)
            _consume(generator, site, min(scale.backlog, 200_000))  # the JIT of both sides
        found = _compare(generator, pair, scale)
    ours, apache = found["failback"], found["apache"]
    row = [number(ours.rate), number(apache.rate)]
    row.append(targets.CONSUME_RATE.verdict(ours.rate / apache.rate))
    table.rows.append(row + compared(targets.CONSUME_CPU, ours.cpu_us[0], apache.cpu_us[0]))
    return [table]


def _prepare(generator: LoadGenerator, site: Site, count: int) -> None:
    """Send the backlog: ``count`` messages or a little more."""
    options = {"threads": 4, "batch": _BATCH, "size": 1024, "millis": _DAY_MS}
    generator.send(site.address, _TOPIC, (), count=count, **options)
    say(f"consumption: the backlog of {site.engine} is there")


def _compare(generator: LoadGenerator, pair: dict[Engine, Site], scale: Scale) -> dict[str, Window]:
    measures = {
        engine: partial(_consume, generator, site, scale.backlog) for engine, site in pair.items()
    }
    return medians(measures.items(), scale.rounds)


def _consume(generator: LoadGenerator, site: Site, count: int) -> Window:
    """Let a new group consume ``count`` messages; the first tenth is not measured."""
    group = f"group-{next(_GROUPS)}"
    return generator.consume(
        site.address, _TOPIC, group, site.pids[:1], count=count, skip=count // 10, seconds=300
    )
