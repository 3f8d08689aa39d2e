"""A roll under traffic: its order, a pause in it, and what producer and consumer see of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLES, order
from failback.client.consumelog.writer import ConsumeLog
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import FailbackError
from failback.protocol.message import MessageExt
from tests.support.common.polling import wait_until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import is_true, operator
from tests.support.operator.real_cluster import GROUP, TOPIC, LivedCluster

Place = tuple[int, int]
"""Queue and offset of a message: there is one pair."""


@pytest.mark.soak
async def test_a_roll_keeps_its_order_stops_at_a_pause_loses_nothing_and_repeats_nothing(
    namespace: Namespace, node: NodeProcess, tmp_path: Path
) -> None:
    with operator(namespace):
        cluster = LivedCluster(namespace, pairs=1, slavesPerPair=1, masterRole="SYNC_MASTER")
        cluster.wait_settled()
        settings = ClientSettings(namesrv_addrs=(cluster.name_server,), time_scale=0.1)
        sent, consumed = Sent(settings), Consumed(settings, tmp_path / "log")
        async with consumed:
            sending = asyncio.create_task(sent.run())
            try:
                await _until(lambda: len(sent.acknowledged) > 100, "messages before the roll")
                await _roll_with_a_pause(cluster)
                after = len(sent.acknowledged)
                await _until(lambda: len(sent.acknowledged) > after + 20, "messages after it")
            finally:
                sent.stop.set()
                await sending
            await _until(lambda: sent.acknowledged <= consumed.seen, "every message that is stored")
        deliveries = consumed.deliveries()
        assert sent.acknowledged <= deliveries.keys(), "the log has what the handler had"
        assert {place: count for place, count in deliveries.items() if count > 1} == {}


async def _roll_with_a_pause(cluster: LivedCluster) -> None:
    """Change what needs a restart; pause between two steps; wait for the end."""
    replaced: list[str] = []
    before = cluster.lives()
    cluster.change(flushDiskType="SYNC_FLUSH")
    await _until(lambda: _at(cluster, "Roll"), "the roll")
    cluster.annotate(pause_reconciliation="true")
    await _until(lambda: "NotPaused" in _blocked(cluster) or _is_paused(cluster), "a pause")
    paused = cluster.lives()
    await asyncio.sleep(10)
    assert _master(cluster.lives()) == _master(paused) == _master(before)
    cluster.annotate(pause_reconciliation=None)

    def is_over() -> bool:
        for pod in cluster.api.list("Pod", labels="failback.dev/cluster=orders"):
            name = pod["metadata"]["name"].removesuffix("-0")
            new = pod["metadata"]["uid"] != before[name][0]
            if new and name not in replaced:
                replaced.append(name)
        return cluster.is_settled(cluster.read())

    await _until(is_over, "the end of the roll", 400)
    assert replaced == ["orders-0-1", "orders-0-0"]


def _master(lives: dict[str, tuple[str, int, str]]) -> str:
    return lives["orders-0-0"][0]


def _at(cluster: LivedCluster, kind: str) -> bool:
    return bool((cluster.read()["status"].get("currentOperation") or {}).get("type") == kind)


def _blocked(cluster: LivedCluster) -> list[str]:
    operation = cluster.read()["status"].get("currentOperation") or {}
    return list(operation.get("blockedBy", ()))


def _is_paused(cluster: LivedCluster) -> bool:
    return bool(is_true("Paused")(cluster.read()))


async def _until(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    await asyncio.to_thread(wait_until, condition, what, seconds)


class Sent:
    """A producer that never stops, and where what it was told is stored lies."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.acknowledged: set[Place] = set()
        self.stop = asyncio.Event()

    async def run(self) -> None:
        number = 0
        async with Producer("shop", self._settings) as producer:
            while not self.stop.is_set():
                number += 1
                try:
                    result = await producer.send(Message(TOPIC, b"%d" % number))
                    self.acknowledged.add((result.queue.queue_id, result.queue_offset))
                except (FailbackError, OSError, TimeoutError):
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.02)


class Consumed:
    """The one member of the group, with a consume log; it runs as long as the block."""

    def __init__(self, settings: ClientSettings, folder: Path) -> None:
        self._folder = folder
        self._log = ConsumeLog(folder, run="roll", proc_no=1, role="consumer", host="test")
        self._consumer = PushConsumer(
            GROUP,
            settings,
            self._handle,
            hook=LogHook(self._log),
            consume_from=ConsumeFrom.FIRST_OFFSET,
        )
        self._consumer.subscribe(TOPIC)
        self.seen: set[Place] = set()

    async def _handle(self, messages: list[MessageExt]) -> ConsumeResult:
        self.seen |= {(each.queue_id, each.queue_offset) for each in messages}
        return ConsumeResult.SUCCESS

    async def __aenter__(self) -> Consumed:
        await self._consumer.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._consumer.shutdown()
        self._log.close()

    def deliveries(self) -> Counter[Place]:
        """Return how often each message was given to the handler, as the consume log has it."""
        found: Counter[Place] = Counter()
        for file in sorted(self._folder.glob("*.fblog")):
            for record in read_hot(file).records:
                if record[0] == TABLES["deliver"].code:
                    row: dict[str, Any] = dict(zip(order("deliver"), record[4:], strict=False))
                    assert row["ptopic"] == TOPIC, "nothing came by way of a retry"
                    found[row["qid"], row["qoff"]] += 1
        return found
