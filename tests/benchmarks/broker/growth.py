"""Many queues beside Apache, growing stores, and new names on a broker that has many."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import threading
import time
from collections.abc import Awaitable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.clients import ConsumerData, HeartbeatData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import GetMaxOffsetRequestHeader
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
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
_NAMED_TOPICS, _NAMED_GROUPS, _BURST = 10_000, 5_000, 1_000
_NAMES_ROUNDS: Final = 5
_ONE_BY_ONE: Final = 40


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


def measure_names(scale: Scale, folder: Path, generator: LoadGenerator) -> list[Table]:
    """Return what new names cost a broker that has 10,000 topics and 5,000 groups."""
    with ExitStack() as stack:
        site = Site("failback", folder)
        stack.callback(site.dispose)
        stores.write_topics(
            site.master.store, {f"{_TOPIC}{number}": 4 for number in range(_NAMED_TOPICS)}
        )
        stores.write_groups(site.master.store, [f"g{each}" for each in range(_NAMED_GROUPS)])
        site.start()
        few = f"{_TOPIC}1"
        warm_up(generator, site, few, 4)
        stands = {
            name: asyncio.run(_stands(site.master.address, name)) for name in ("topic", "group")
        }
        measures = {
            "without": partial(_window, generator, site, few, scale),
            "with": partial(_beside_names, generator, site, few, scale),
        }
        found = medians(measures.items(), max(scale.rounds, _NAMES_ROUNDS))
    columns = (
        "loop stands ms, a new topic",
        "a new group",
        "p99 ms of sends without",
        f"beside {_BURST:,} new groups",
        "ratio",
    )
    row = [targets.STANDS_MS.verdict(each) for each in stands.values()]
    row += [number(found[name].p99_ms) for name in ("without", "with")]
    row.append(targets.NEW_NAMES.verdict(found["with"].p99_ms / found["without"].p99_ms))
    note = f"{_ONE_BY_ONE} names one by one, the median of the longest wait of another connection."
    title = f"New names at {_NAMED_TOPICS:,} topics and {_NAMED_GROUPS:,} groups"
    return [Table(title, columns, [row], [note])]


async def _stands(address: str, kind: str) -> float:
    """Return for how many milliseconds others wait while one name is made, as a median."""
    async with RemotingClient() as maker, RemotingClient() as other:
        ping = partial(
            RemotingCommand.request,
            RequestCode.GET_MAX_OFFSET,
            GetMaxOffsetRequestHeader(f"{_TOPIC}0", 0),
        )

        async def longest(beside: Awaitable[object]) -> float:
            made, waits = asyncio.ensure_future(beside), []
            while not made.done():
                began = time.perf_counter()
                await other.invoke(address, ping(), 5000)
                waits.append(time.perf_counter() - began)
            await made
            return 1000 * max(waits)

        names = []
        for each in range(_ONE_BY_ONE):
            await other.invoke(address, ping(), 5000)
            names.append(await longest(_made(maker, address, kind, each)))
            await asyncio.sleep(0.15)  # the table is written once in 100 ms
        return statistics.median(names)


async def _made(client: RemotingClient, address: str, kind: str, number: int) -> None:
    admin = AdminClient(client=client)
    if kind == "topic":
        await admin.create_topic(address, TopicConfig(f"new-{number}", 4, 4))
    else:
        await admin.create_group(address, SubscriptionGroupConfig(f"new-{number}"))
    await asyncio.sleep(0.12)  # the table is written behind the answer


def _beside_names(generator: LoadGenerator, site: Site, topic: str, scale: Scale) -> Window:
    """Measure while a member brings 1,000 new groups in one heartbeat, in mid-window."""
    began = time.time_ns()

    async def burst() -> None:
        groups = [ConsumerData(f"b{began}-{each}") for each in range(_BURST)]
        body = HeartbeatData(f"c{began}", [], groups).to_json()
        async with RemotingClient(on_request=lambda _, _request: None) as client:
            request = RemotingCommand.request(RequestCode.HEART_BEAT, body=body)
            await client.invoke(site.master.address, request, 30_000)

    timer = threading.Timer(scale.ramp_seconds + scale.seconds / 2, lambda: asyncio.run(burst()))
    timer.start()
    try:
        return _window(generator, site, topic, scale)
    finally:
        timer.join()


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
