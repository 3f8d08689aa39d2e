"""How long a survey and a scrape of a large broker take: 1,000 topics, 100 groups on each.

One real broker of ours with all topics and one offset of every group on every topic; the exporter
is its own process, as an SRE runs it. Part of ``make bench-sre``.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from failback.client.admin.admin import AdminClient
from failback.protocol.route import TopicConfig
from tests.support.common.polling import wait_until
from tests.support.java.apache import Broker, NameServer
from tests.support.net.ports import free_port
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

SCRAPES = 20


async def fill(address: str, topics: int, groups: int) -> None:
    """Create the topics and commit once for each group on each."""
    async with AdminClient(timeout_ms=30_000) as admin:
        turn = asyncio.Semaphore(64)

        async def one(topic: str) -> None:
            async with turn:
                await admin.create_topic(address, TopicConfig(topic, 4, 4))
                for group in range(groups):
                    await admin.update_offset(address, f"g{group}", topic, 0, 1)

        await asyncio.gather(*(one(f"T{number}") for number in range(topics)))


def scrape(port: int) -> tuple[float, str]:
    """Return seconds and text of one scrape."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
        text = answer.read().decode()
    return time.perf_counter() - began, text


def value(text: str, name: str) -> float | None:
    for line in text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.rpartition(" ")[2])
    return None


def measure(folder: Path, topics: int, groups: int) -> dict[str, Any]:
    """Return what one broker of that size costs the exporter."""
    with ExitStack() as stack:
        namesrv = NameServer("failback", folder / "namesrv")
        stack.callback(namesrv.process.dispose)
        namesrv.start()
        broker = Broker("failback", folder / "broker", namesrv.address)
        stack.callback(lambda: broker.process.dispose())
        broker.start()
        asyncio.run(fill(broker.address, topics, groups))
        port = free_port()
        arguments = ["exporter", "-n", namesrv.address, "--port", str(port), "--interval", "1"]
        exporter = TestProcess(
            "exporter",
            failback_command("cli", *arguments),
            folder / "exporter",
            environment=failback_environment(),
        )
        stack.callback(exporter.dispose)
        exporter.start()
        exporter.wait_for("exporter on")
        wait_until(
            lambda: "rocketmq_consumer_tps" in scrape(port)[1], "the second survey", seconds=300
        )
        surveys, scrapes, text = [], [], ""
        for _ in range(SCRAPES):
            seconds, text = scrape(port)
            scrapes.append(seconds)
            surveys.append(value(text, "failback_exporter_survey_seconds") or 0.0)
            time.sleep(0.3)
    lines = [line for line in text.splitlines() if line and line[0] != "#"]
    return {
        "topics": topics,
        "groups": groups,
        "survey_seconds": round(statistics.median(surveys), 2),
        "scrape_seconds_median": round(statistics.median(scrapes), 3),
        "scrape_seconds_max": round(max(scrapes), 3),
        "series": len(lines),
        "bytes": len(text),
    }
