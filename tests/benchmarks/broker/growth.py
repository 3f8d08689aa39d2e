"""Many queues beside Apache, and what our CPU per message does when store and queues grow."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.broker import stores, targets
from tests.benchmarks.broker.engines import Site, medians, say, warm_up
from tests.benchmarks.broker.generator import LoadGenerator, Window
from tests.benchmarks.broker.scale import Scale
from tests.benchmarks.broker.sends import compared, latencies
from tests.benchmarks.broker.table import size
from tests.benchmarks.documents import Table, number

_TOPIC: Final = "Many"
_GROWN: Final = "Grown"
_QUEUES_EACH: Final = 8
_THREADS: Final = 64
_GROWTH_ROUNDS: Final = 5
_FILL_BODY_BYTES: Final = 4096


def measure_queues(scale: Scale, folder: Path, generator: LoadGenerator) -> list[Table]:
    """Return: all topics in turn beside Apache; ours with 8 queues beside ours with all."""
    with ExitStack() as stack:
        few = Site("failback", folder / "few")
        ours = Site("failback", folder / "ours")
        apache = Site("apache", folder / "apache")
        for site, topics in ((few, 1), (ours, scale.topics), (apache, scale.topics)):
            names = {f"{_TOPIC}{number}": _QUEUES_EACH for number in range(topics)}
            stores.write_topics(site.master.store, names)
            stack.callback(site.dispose)
            site.start()
            # Each topic's first send asks the name server: the warm-up is long enough for all.
            warm_up(generator, site, _TOPIC, max(scale.warm_seconds, 8), topics=topics)
        measures = {
            "few": partial(_window, generator, few, _TOPIC, scale, topics=1),
            "ours": partial(_window, generator, ours, _TOPIC, scale, topics=scale.topics),
            "apache": partial(_window, generator, apache, _TOPIC, scale, topics=scale.topics),
        }
        found = medians(measures.items(), max(scale.rounds, 3))
        memory = {"ours": ours.memory_mib()[0], "apache": apache.memory_mib()[0]}
    say("queues: done")
    return [_queues_table(scale, found, memory), _few_table(scale, found)]


def _queues_table(scale: Scale, found: Mapping[str, Window], memory: Mapping[str, float]) -> Table:
    table = Table(
        f"{scale.topics:,} topics x {_QUEUES_EACH} queues, {_THREADS} threads, 1 KiB, cell (a)",
        (
            "msg/s ours",
            "Apache",
            "rate ours/Apache",
            "CPU µs ours",
            "Apache",
            "CPU ours/Apache",
            "p50 / p99 / p99.9 ms ours",
            "Apache",
            "p99 ours/Apache",
            "anonymous MiB ours",
            "Apache",
        ),
    )
    ours, apache = found["ours"], found["apache"]
    row = [number(ours.rate), number(apache.rate)]
    row.append(targets.send_rate(_THREADS).verdict(ours.rate / apache.rate))
    row += compared(targets.send_cpu(1), ours.cpu_us[0], apache.cpu_us[0])
    row += [latencies(ours), latencies(apache)]
    row.append(targets.P99.verdict(ours.p99_ms / max(apache.p99_ms, 0.001)))
    row += [number(memory["ours"]), number(memory["apache"])]
    table.rows.append(row)
    return table


def _few_table(scale: Scale, found: Mapping[str, Window]) -> Table:
    many = scale.topics * _QUEUES_EACH
    return _growth_table(
        "Our CPU per message when queues become many",
        (f"{_QUEUES_EACH} queues", f"{many:,} queues"),
        found["few"],
        found["ours"],
    )


def measure_store(scale: Scale, folder: Path, generator: LoadGenerator) -> list[Table]:
    """Return our CPU per message on a small store and on a large one."""
    sizes = {"small": scale.grown_from_bytes, "large": scale.grown_to_bytes}
    with ExitStack() as stack:
        measures = {}
        for name, log_bytes in sizes.items():
            site = Site("failback", folder / name)
            stack.callback(site.dispose)
            stores.fill(site.master.store, log_bytes, _GROWN, _FILL_BODY_BYTES)
            say(f"growth: a store of {size(log_bytes)} is there")
            site.start()
            warm_up(generator, site, _GROWN, 4)
            measures[name] = partial(_window, generator, site, _GROWN, scale)
        found = medians(measures.items(), max(scale.rounds, _GROWTH_ROUNDS))
    shutil.rmtree(folder, ignore_errors=True)
    return [
        _growth_table(
            "Our CPU per message when the store grows",
            (size(scale.grown_from_bytes), size(scale.grown_to_bytes)),
            found["small"],
            found["large"],
        )
    ]


def _growth_table(title: str, names: tuple[str, str], small: Window, large: Window) -> Table:
    columns = (f"CPU µs with {names[0]}", f"with {names[1]}", "growth")
    row = [number(small.cpu_us[0]), number(large.cpu_us[0])]
    row.append(targets.GROWTH.verdict(large.cpu_us[0] / small.cpu_us[0]))
    note = f"{_THREADS} threads, 1 KiB, ASYNC_MASTER, ASYNC_FLUSH; "
    note += f"{number(small.rate)} and {number(large.rate)} messages a second."
    return Table(title, columns, [row], [note])


def _window(
    generator: LoadGenerator, site: Site, topic: str, scale: Scale, **options: int
) -> Window:
    return generator.send(
        site.address,
        topic,
        site.pids,
        threads=_THREADS,
        size=1024,
        warm=int(scale.ramp_seconds * 1000),
        millis=int(scale.seconds * 1000),
        **options,
    )
