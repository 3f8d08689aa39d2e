"""How fast one process produces and consumes, with and without the consume log.

    python tests/benchmarks/bench_client.py [--messages 40000] [--body 1024]

Starts our name server and broker as processes, fills a topic in batches, then measures: a consumer
with handlers that return at once (log off, log on, sync handler), and a producer with 1, 16 and 64
sends under way. Prints rates and the client's CPU per message.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / s) for s in ("operator", "broker-image", "chaos"))]

from failback.client.admin.admin import AdminClient  # noqa: E402 - after the path
from failback.client.consumelog.hook import NO_HOOK, ConsumeHook, LogHook  # noqa: E402
from failback.client.consumelog.writer import ConsumeLog  # noqa: E402
from failback.client.consumer.consumer import PushConsumer  # noqa: E402
from failback.client.model import ConsumeFrom, ConsumeResult, Message  # noqa: E402
from failback.client.producer.producer import Producer  # noqa: E402
from failback.protocol.message import MessageExt  # noqa: E402
from failback.protocol.route import TopicConfig  # noqa: E402
from tests.support.brokers.cluster_processes import ClusterProcesses  # noqa: E402

TOPIC = "bench"
QUEUES = 8
BATCH = 32


async def fill(cluster: ClusterProcesses, messages: int, body: bytes) -> None:
    async with Producer("fill", cluster.settings()) as producer:
        for lane in range(0, messages, BATCH):
            batch = [
                Message(TOPIC, body, properties={"LAB_ID": f"{n % 8:08x}-{n:011x}"})
                for n in range(lane, min(lane + BATCH, messages))
            ]
            await producer.send_batch(batch)


async def consume(
    cluster: ClusterProcesses, group: str, messages: int, hook: ConsumeHook, handler: Any
) -> tuple[float, float]:
    """Consume everything; returns messages per second and CPU µs per message."""
    done = asyncio.Event()
    handled = 0
    began = cpu = 0.0

    def count(batch: list[MessageExt]) -> ConsumeResult:
        nonlocal handled, began, cpu
        if handled == 0:
            began, cpu = time.perf_counter(), time.process_time()
        handled += len(batch)
        if handled >= messages:
            done.set()
        return ConsumeResult.SUCCESS

    async def count_async(batch: list[MessageExt]) -> ConsumeResult:
        return count(batch)

    consumer = PushConsumer(
        group,
        cluster.settings(),
        count if handler == "plain" else count_async,
        hook=hook,
        consume_from=ConsumeFrom.FIRST_OFFSET,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await done.wait()
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
    return messages / seconds, used / messages * 1e6


async def produce(
    cluster: ClusterProcesses, under_way: int, messages: int, body: bytes, hook: ConsumeHook
) -> tuple[float, float, float]:
    """Send singly; returns messages per second, CPU µs per message, p99 in ms."""
    latencies: list[float] = []
    async with Producer("bench", cluster.settings(), hook=hook) as producer:
        await producer.send(Message(TOPIC, body))

        async def send_some(count: int) -> None:
            for _ in range(count):
                begin = time.perf_counter()
                await producer.send(Message(TOPIC, body))
                latencies.append(time.perf_counter() - begin)

        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(send_some(messages // under_way) for _ in range(under_way)))
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
    latencies.sort()
    sent = len(latencies)
    return sent / seconds, used / sent * 1e6, latencies[int(sent * 0.99)] * 1000


async def measure(cluster: ClusterProcesses, messages: int, body: bytes, folder: Path) -> None:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        await admin.create_topic(cluster.broker_addr, TopicConfig(TOPIC, QUEUES, QUEUES))
    await fill(cluster, messages, body)

    def logged() -> ConsumeLog:
        return ConsumeLog(folder / "log", run="bench", proc_no=1, role="consumer")

    cases: list[tuple[str, str, Callable[[], ConsumeLog] | None]] = [
        ("no log, async handler", "async", None),
        ("log on, async handler", "async", logged),
        ("log on, plain handler", "plain", logged),
    ]
    print(f"{'consume':<28}{'msg/s':>10}{'CPU us/msg':>12}")
    for number, (name, handler, make_log) in enumerate(cases):
        log = make_log() if make_log else None
        hook = LogHook(log) if log else NO_HOOK
        rate, cpu = await consume(cluster, f"group-{number}", messages, hook, handler)
        if log:
            log.close()
        print(f"{name:<28}{rate:>10,.0f}{cpu:>12.1f}")
    print(f"{'produce':<28}{'msg/s':>10}{'CPU us/msg':>12}{'p99 ms':>9}")
    for under_way in (1, 16, 64):
        log = logged()
        count = messages // (20 if under_way == 1 else 4)
        rate, cpu, p99 = await produce(cluster, under_way, count, body, LogHook(log))
        log.close()
        print(f"{f'log on, {under_way} under way':<28}{rate:>10,.0f}{cpu:>12.1f}{p99:>9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    with (
        tempfile.TemporaryDirectory() as folder,
        ClusterProcesses(Path(folder) / "cluster", time_scale=1.0) as cluster,
    ):
        asyncio.run(measure(cluster, options.messages, bytes(options.body), Path(folder)))


if __name__ == "__main__":
    main()
