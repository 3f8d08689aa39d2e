"""Alerts of the chart fire in a real Prometheus because of what real brokers go through.

A master is killed, its slave takes commits meanwhile, and the master comes back with its old file:
the slave's progress is about to be overwritten, then it is. A slave gets a history of its own; a
group is fast and offsets are seldom written; a file can't be written; a master is down; a topic is
deleted for which a message waits.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.dashboards import DASHBOARDS

from failback.client.admin.admin import AdminClient
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.protocol.message import MessageExt
from failback.protocol.route import TopicConfig
from tests.support.analytics.collector_lab import running_collector, uploads_of, write_log
from tests.support.common.polling import SCALE as PATIENCE
from tests.support.common.polling import wait_until
from tests.support.dashboard.prometheus_lab import BROKER_SCALE, RULES_FACTOR, AlertLab, watching
from tests.support.java.apache import Broker
from tests.support.net.ports import free_port

EMPTY = {
    "Overwrite countdown": "over once the slave has copied",
    "Exposure": "not known: the master has just been started",
    "In flight": "nobody pulls",
    "Messages out": "nobody pulls",
    "Dead letters": "there are none",
    "Budget burn": "no reports",
    "Re-consumed, by cause": "no reports",
    "Share of all deliveries": "no reports",
    "Seconds of handlers wasted": "no reports",
    "Verdicts": "no reports",
    "Phases of a failover": "no reports",
    "Time to report": "no reports",
    "Runs and faults": "no run goes on",
}
"""Panels that have nothing to show in this test, and why."""
ELSEWHERE = {"ingest.json", "operator.json"}
"""Pages about components that do not run here."""
ROUNDS = 5
WATCHED_MS = round(10 * 60_000 / RULES_FACTOR)
"""The ten minutes within which a gap is news."""


def expressions() -> list[tuple[str, str]]:
    """Return title and expression of every query of the pages, with its variables filled in."""
    return [
        (panel.title, filled(query))
        for name, page in DASHBOARDS.items()
        if name not in ELSEWHERE
        for panel in page.panels
        for query, _ in panel.queries
    ]


def filled(query: str) -> str:
    return re.sub(r"\$(cluster|pair|topic|consumer_group|namespace|run)\b", ".*", query).replace(
        "$__rate_interval", "1m"
    )


async def until_overwrite_is_announced(lab: AlertLab) -> None:
    """Let the master come back to a slave that knows more, until the alert has seen it.

    The slave may copy at once: then there was nothing to see, and it goes on.
    """
    before = 5000
    for _ in range(ROUNDS):
        await lab.commit(lab.master, before)
        await lab.holds(lab.slave, before)
        await lab.is_in_file(before)
        lab.master.kill()
        await lab.commit(lab.slave, before + 600)
        lab.master.start()
        await lab.holds(lab.slave, before)  # overwritten
        await asyncio.sleep(1)  # the last evaluation
        if "OffsetOverwriteImminent" in await asyncio.to_thread(lab.prometheus.fired):
            return
    raise AssertionError(f"not announced in {ROUNDS} rounds")


async def test_what_is_overwritten_is_announced_and_counted(tmp_path: Path) -> None:
    async with AlertLab(tmp_path) as lab:
        await lab.commit(lab.master, 4000)
        await lab.holds(lab.slave, 4000)
        await lab.comes(
            lambda: len(lab.prometheus.query("rocketmq_slave_offset_divergence_messages")) == 2,
            "the exporter's figures",
            seconds=60,
        )
        await asyncio.sleep(5)  # nothing happens
        assert await asyncio.to_thread(lab.prometheus.fired) == set()
        await until_overwrite_is_announced(lab)
        await lab.fires("OffsetRegression")
        rows = await asyncio.to_thread(
            lab.prometheus.query, "sum by (source) (rocketmq_offset_regressions_total)"
        )
        found = {row["metric"]["source"]: float(row["value"][1]) for row in rows}
        assert found["slave_sync"] >= 1
        await dashboards_have_data(lab)
        assert "MessagesPutAside" not in await asyncio.to_thread(lab.prometheus.fired)
        await delete_what_a_message_waits_for(lab)
        await lab.fires("MessagesPutAside")


async def delete_what_a_message_waits_for(lab: AlertLab) -> None:
    """Delete a topic while a delayed message waits for it."""
    async with Producer("shop", lab.settings()) as producer:
        await lab.admin.create_topic(lab.master.address, TopicConfig("doomed", 1, 1))
        await producer.send(Message("doomed", b"orphan", delay_level=3))
        await lab.admin.delete_topic(lab.master.address, "doomed")


async def dashboards_have_data(lab: AlertLab) -> None:
    silent = []
    for title, query in expressions():
        found: list[Any] = await asyncio.to_thread(lab.prometheus.query, query)
        if not found and title not in EMPTY:
            silent.append((title, query))
    assert silent == []


@pytest.mark.soak
async def test_a_file_that_is_not_written_and_a_master_that_is_away_are_told(
    tmp_path: Path,
) -> None:
    async with AlertLab(tmp_path) as lab:
        await lab.commit(lab.master, 4000)
        await lab.is_in_file(4000)
        await lab.holds(lab.slave, 4000)
        (lab.master.store / "config" / "consumerOffset.json.tmp").mkdir()
        await lab.fires("OffsetPersistStale")
        assert "SlaveSyncStale" not in await asyncio.to_thread(lab.prometheus.fired)
        lab.master.kill()
        await lab.fires("SlaveSyncStale")


@pytest.mark.soak
async def test_a_slave_with_messages_of_its_own_stops_and_is_told(tmp_path: Path) -> None:
    """It was started as a master once, by hand, and took messages."""
    async with AlertLab(tmp_path, failbackRules="guarded") as lab:
        await send(lab, lab.master, "T", 20)
        await follows(lab)
        assert lab.slave.stop() == 0
        alone = replace(lab.slave, name="stray", broker_id=0, role="ASYNC_MASTER")
        lab.nodes.append(alone)
        alone.start()
        await send(lab, alone, "Own", 5)
        assert alone.stop() == 0
        await send(lab, lab.master, "T", 20)
        assert "ReplicationStopped" not in await asyncio.to_thread(lab.prometheus.fired)
        lab.slave.start()
        await lab.fires("ReplicationStopped")


async def send(lab: AlertLab, node: Broker, topic: str, count: int) -> None:
    """Create a topic on one broker and send messages to it."""
    async with AdminClient() as admin, Producer("shop", lab.settings()) as producer:
        await admin.create_topic(node.address, TopicConfig(topic, 1, 1))
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number))


async def follows(lab: AlertLab) -> None:
    """Wait until the slave's log ends where its master's does."""
    async with asyncio.timeout(120 * PATIENCE):
        while True:
            ends = [
                (await lab.admin.runtime_info(node.address))["commitLogMaxOffset"]
                for node in (lab.master, lab.slave)
            ]
            if ends[0] == ends[1]:
                return
            await asyncio.sleep(0.1)


@pytest.mark.soak
async def test_a_fast_group_whose_offsets_are_seldom_written_is_told(tmp_path: Path) -> None:
    """The interval of the file is four times its default."""
    async with AlertLab(tmp_path, flushConsumerOffsetInterval=20_000) as lab:
        await lab.admin.create_topic(lab.master.address, TopicConfig("T", 4, 4))
        busy = asyncio.create_task(keep_busy(lab))
        try:
            await lab.fires("ReconsumeExposureHigh", seconds=240)
        finally:
            busy.cancel()
            with suppress(asyncio.CancelledError):
                await busy


async def keep_busy(lab: AlertLab) -> None:
    """Send and consume as fast as the machine can, until this is cancelled."""

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        return ConsumeResult.SUCCESS

    settings = lab.settings(BROKER_SCALE)
    consumer = PushConsumer("g", settings, handle, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("T")
    async with consumer, Producer("shop", lab.settings()) as producer:
        while True:
            sends = (producer.send(Message("T", b"x")) for _ in range(64))
            await asyncio.gather(
                *sends, return_exceptions=True
            )  # a busy machine lets some time out


@pytest.mark.soak
def test_a_log_that_a_machine_took_with_it_is_told(tmp_path: Path) -> None:
    """A run of two processes is closed; of one the last hot file never came."""
    port = free_port()
    with (
        running_collector(tmp_path / "collector", "--metrics-port", str(port)) as collector,
        watching(tmp_path / "prometheus", {"collector": [port]}) as prometheus,
    ):
        last = {number: write_log(tmp_path / str(number), proc_no=number) for number in (1, 2)}
        whole, torn = (uploads_of(tmp_path / str(number)) for number in last)
        assert len(torn) > 2
        for upload in (*whole, *torn[:-2]):
            assert collector.send(upload)[0] == 201
        wait_until(
            lambda: prometheus.query(f"up offset {WATCHED_MS}ms"), "an old sample", seconds=120
        )
        assert prometheus.fired() == set()
        client = collector.client()
        answer = client.close_run("lab", last)
        client.close()
        assert answer.document["gaps"]
        wait_until(lambda: "LogGaps" in prometheus.fired(), "alert LogGaps", seconds=120)
