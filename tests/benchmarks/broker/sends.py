"""Cells (a), (b), (c): synchronous sends under each kind of durability."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.broker import targets
from tests.benchmarks.broker.engines import Site, medians, say, sites, warm_up, write_back
from tests.benchmarks.broker.generator import LoadGenerator, Window
from tests.benchmarks.broker.scale import Scale
from tests.benchmarks.broker.table import size
from tests.benchmarks.documents import Table, number
from tests.benchmarks.targets import Target
from tests.support.java.apache import Engine


class Durability(NamedTuple):
    """When a send is answered."""

    role: str
    flush: str
    has_slave: bool


DURABILITIES: Final = {
    "a": Durability("ASYNC_MASTER", "ASYNC_FLUSH", has_slave=False),
    "b": Durability("SYNC_MASTER", "ASYNC_FLUSH", has_slave=True),
    "c": Durability("SYNC_MASTER", "SYNC_FLUSH", has_slave=True),
}
_TOPIC: Final = "Load"
_COLUMNS: Final = (
    "body",
    "threads",
    "batch",
    "msg/s ours",
    "Apache",
    "rate ours/Apache",
    "CPU µs ours",
    "Apache",
    "CPU ours/Apache",
    "p50 / p99 / p99.9 ms ours",
    "Apache",
    "p99 ours/Apache",
)
_SLAVE_COLUMNS: Final = ("slave CPU µs ours", "Apache", "slave CPU ours/Apache")


def measure(cell: str, scale: Scale, folder: Path, generator: LoadGenerator) -> list[Table]:
    """Return the table of one durability, and of memory after its load."""
    durability = DURABILITIES[cell]
    slave = " with a slave" if durability.has_slave else ""
    title = f"({cell}) {durability.role}, {durability.flush}{slave}"
    columns = _COLUMNS + (_SLAVE_COLUMNS if durability.has_slave else ())
    table = Table(title, columns)
    memory = Table(
        f"({cell}) anonymous memory after the load, MiB",
        ("body", "process", "ours", "Apache", "ours/Apache"),
    )
    for body_bytes in scale.sizes:
        _measure_size(durability, body_bytes, scale, folder, generator, table, memory)
    return [table, memory]


def _measure_size(
    durability: Durability,
    body_bytes: int,
    scale: Scale,
    folder: Path,
    generator: LoadGenerator,
    table: Table,
    memory: Table,
) -> None:
    """Fresh stores for each size of body, so that the disk holds what a run writes."""
    with sites(
        folder / f"{body_bytes}",
        role=durability.role,
        has_slave=durability.has_slave,
        flushDiskType=durability.flush,
    ) as pair:
        for site in pair.values():
            warm_up(generator, site, _TOPIC, scale.warm_seconds)
        for batch in scale.batches:
            for threads in scale.threads:
                cell = partial(_window, generator, threads, batch, body_bytes, scale)
                found = _compare(pair, cell, scale.rounds)
                say(f"{table.title}: {size(body_bytes)}, {threads} threads, batch {batch}")
                _add_row(table, body_bytes, threads, batch, found)
        _add_memory(memory, body_bytes, pair)
        generator.close_producers()


def _window(
    generator: LoadGenerator, threads: int, batch: int, body_bytes: int, scale: Scale, site: Site
) -> Window:
    write_back()
    return generator.send(
        site.address,
        _TOPIC,
        site.pids,
        threads=threads,
        batch=batch,
        size=body_bytes,
        warm=int(scale.ramp_seconds * 1000),
        millis=int(scale.seconds * 1000),
        bytes=scale.window_bytes,
    )


def _compare(
    pair: dict[Engine, Site], window: Callable[[Site], Window], rounds: int
) -> dict[str, Window]:
    measures = [(engine, partial(window, site)) for engine, site in pair.items()]
    return medians(measures, rounds)


def _add_row(
    table: Table, body_bytes: int, threads: int, batch: int, found: dict[str, Window]
) -> None:
    ours, apache = found["failback"], found["apache"]
    rate, cpu = targets.send_rate(threads), targets.send_cpu(batch)
    row = [size(body_bytes), str(threads), str(batch)]
    row += [number(ours.rate), number(apache.rate), rate.verdict(ours.rate / apache.rate)]
    row += compared(cpu, ours.cpu_us[0], apache.cpu_us[0])
    row += [latencies(ours), latencies(apache)]
    row.append(targets.P99.verdict(ours.p99_ms / max(apache.p99_ms, 0.001)))
    if len(ours.cpu_us) > 1:
        row += compared(targets.SLAVE_CPU, ours.cpu_us[1], apache.cpu_us[1])
    table.rows.append(row)
    for name, each in (("ours", ours), ("Apache", apache)):
        if each.errors or each.unsure:
            where = f"{size(body_bytes)}, {threads} threads, batch {batch}, {name}"
            table.notes.append(
                f"{where}: {each.errors} sends failed ({each.first_error[:120]}), "
                f"{each.unsure} of {each.messages} messages stored without SEND_OK."
            )


def _add_memory(memory: Table, body_bytes: int, pair: dict[Engine, Site]) -> None:
    ours, apache = pair["failback"].memory_mib(), pair["apache"].memory_mib()
    for name, one, other in zip(("master", "slave")[: len(ours)], ours, apache, strict=True):
        row = [size(body_bytes), name]
        memory.rows.append(row + compared(targets.LOADED_MEMORY, one, other))


def compared(target: Target, ours: float, apache: float) -> list[str]:
    """Return three cells: both figures and the verdict on their ratio."""
    return [number(ours), number(apache), target.verdict(ours / apache if apache else 0.0)]


def latencies(window: Window) -> str:
    return f"{window.p50_ms:.2f} / {window.p99_ms:.2f} / {window.p999_ms:.2f}"
