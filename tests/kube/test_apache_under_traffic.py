"""Two pairs of Apache's brokers through everything that is done to them, under traffic.

Timers are real: Apache's cannot be scaled. One group's member runs through; the other group's is
stopped while a step runs, and a new one starts after it, as a deployment does. With the carry
neither consumes anything again.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import pytest

from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import FailbackError
from failback.protocol.message import MessageExt
from tests.support.common.polling import wait_until
from tests.support.java.apache import LOG_FILE_BYTES
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import is_true, operator
from tests.support.operator.real_cluster import GROUP, TOPIC, LivedCluster
from tests.support.operator.resources import resource

pytestmark = [pytest.mark.soak, pytest.mark.long, pytest.mark.timeout(1500)]

FRUGAL = "-Xms192m -Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
STAYS, MOVES = GROUP, "moves"
OUTAGE_SECONDS: Final = 75
"""A consumer of Apache turns to the slave within 30 s, and must have told it something."""


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
async def test_nothing_is_lost_or_consumed_again(
    namespace: Namespace, node: NodeProcess, version: str
) -> None:
    with node.further(namespace.name, "a", "b", "c"), operator(namespace):
        cluster = created(namespace, version)
        await until(lambda: whole(cluster), "two pairs", 300)
        async with traffic(cluster) as seen:
            steps: dict[str, Callable[[], object]] = {
                "OperationFinished": lambda: roll(cluster),
                "RoleSwitchFinished": lambda: switch(cluster),
                "DrainSwitch": lambda: drain(cluster),
                "MasterDown": lambda: kill(cluster, node),
                "Recovered": lambda: delete(cluster),
                "PairAdded": lambda: scale(cluster),
            }
            for event, step in steps.items():
                before = seen.count()
                replacing = asyncio.create_task(seen.replace_member())
                await asyncio.to_thread(step)
                await replacing
                await until(lambda: whole(cluster), f"two pairs after {event}", 300)
                await until(partial(seen.has_more, before + 50), f"traffic after {event}", 120)
                print(event, "after", seen.count(), "messages")
                told = {each["reason"] for each in cluster.api.list("Event")}
                assert event in told, sorted(told)
            await seen.settle()
        for group, counts in seen.delivered.items():
            assert seen.stored - counts.keys() == set(), f"{group} lacks these"
            assert {each: n for each, n in counts.items() if n > 1} == {}, f"{group}: again"


def created(namespace: Namespace, version: str) -> LivedCluster:
    """Create NameServer, cluster, topic and both groups."""
    cluster = LivedCluster(
        namespace,
        nameServerConfig={},
        engine={"type": "Apache", "version": version, "javaOptions": FRUGAL},
        pairs=2,
        slavesPerPair=1,
        config={"mappedFileSizeCommitLog": str(LOG_FILE_BYTES)},
        failover={"onDrain": "Switch"},
    )
    owner = {"clusterRef": {"name": "orders"}}
    cluster.api.create(resource("SubscriptionGroup", MOVES, **owner))
    return cluster


# --- what is done -------------------------------------------------------------------------------


def roll(cluster: LivedCluster) -> None:
    cluster.change(flushDiskType="SYNC_FLUSH")
    wait_until(lambda: at(cluster, "Roll"), "the roll", 60)


def switch(cluster: LivedCluster) -> None:
    spec = {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": 1}
    cluster.api.create(resource("RoleSwitch", "swap", **spec))
    cluster.api.wait("RoleSwitch", "swap", is_true("Complete"), seconds=400)


def drain(cluster: LivedCluster) -> None:
    """Evict the master of the second pair until its eviction is allowed."""
    pod = master(cluster, "1")
    cluster.api.patch("Pod", pod, {"metadata": {"annotations": {"failback.dev/drain": "true"}}})
    wait_until(lambda: cluster.evict(pod) == 201, f"the eviction of {pod}", 400)


def kill(cluster: LivedCluster, node: NodeProcess) -> None:
    """Kill the first pair's master in its container, and hold it down for a while."""
    pod = master(cluster, "0")
    words = ("exec", pod, "-c", "broker", "--", "sh", "-c")
    cluster.namespace.kubectl(*words, "echo test >/run/failback/hold")
    node.kill_program(cluster.namespace.name, pod)
    time.sleep(OUTAGE_SECONDS)
    release = (*words, "rm /run/failback/hold")
    wait_until(lambda: cluster.namespace.kubectl(*release, check=False).code == 0, "release", 60)


def delete(cluster: LivedCluster) -> None:
    cluster.api.delete("Pod", master(cluster, "1"))


def scale(cluster: LivedCluster) -> None:
    cluster.change(pairs=3)
    wait_until(lambda: len(cluster.read()["status"]["pairs"]) == 3, "a third pair", 300)


def master(cluster: LivedCluster, pair: str) -> str:
    """Return the pod that shows the role of a pair's master."""
    marks = f"failback.dev/cluster=orders,failback.dev/pair={pair},failback.dev/role=master"
    (pod,) = cluster.api.list("Pod", labels=marks)
    return str(pod["metadata"]["name"])


def at(cluster: LivedCluster, kind: str) -> bool:
    return bool((cluster.read()["status"].get("currentOperation") or {}).get("type") == kind)


def whole(cluster: LivedCluster) -> bool:
    item: Object = cluster.read()
    rest = not item.get("status", {}).get("currentOperation")
    return rest and is_true("Ready")(item) and is_true("ReplicationHealthy")(item)


async def until(condition: Callable[[], object], what: str, seconds: float) -> None:
    await asyncio.to_thread(wait_until, condition, what, seconds)


# --- traffic ------------------------------------------------------------------------------------


class Seen:
    """A producer, the members of both groups, and what was stored and delivered."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.stored: set[bytes] = set()
        self.delivered: dict[str, Counter[bytes]] = {STAYS: Counter(), MOVES: Counter()}
        self._members: dict[str, PushConsumer] = {}
        self._stop = asyncio.Event()

    def count(self) -> int:
        return len(self.stored)

    def has_more(self, than: int) -> bool:
        return len(self.stored) > than

    async def send(self) -> None:
        async with Producer("shop", self._settings) as producer:
            for number in itertools.count():
                if self._stop.is_set():
                    return
                body = b"%d" % number
                try:
                    await producer.send(Message(TOPIC, body))
                    self.stored.add(body)
                except (FailbackError, OSError, TimeoutError):
                    await asyncio.sleep(0.1)
                await asyncio.sleep(0.05)

    async def start(self, group: str) -> None:
        async def handle(messages: list[MessageExt]) -> ConsumeResult:
            self.delivered[group].update(each.body for each in messages)
            return ConsumeResult.SUCCESS

        member = PushConsumer(group, self._settings, handle, consume_from=ConsumeFrom.FIRST_OFFSET)
        member.subscribe(TOPIC)
        await member.start()
        self._members[group] = member

    async def replace_member(self) -> None:
        """Stop the moving group's member within an outage, and start another after its end."""
        await asyncio.sleep(OUTAGE_SECONDS - 20)
        await self._members.pop(MOVES).shutdown()
        await asyncio.sleep(60)
        await self.start(MOVES)

    async def settle(self) -> None:
        """Stop sending; wait until both groups had all, and then a little for what is too many."""
        self._stop.set()
        for group in self.delivered:
            await until(partial(self._has_all, group), f"{group} has all", 180)
        await asyncio.sleep(10)

    def _has_all(self, group: str) -> bool:
        return self.stored <= self.delivered[group].keys()

    async def close(self) -> None:
        self._stop.set()
        for member in self._members.values():
            await member.shutdown()


@asynccontextmanager
async def traffic(cluster: LivedCluster) -> AsyncIterator[Seen]:
    seen = Seen(ClientSettings(namesrv_addrs=(cluster.name_server,), client_ip="127.0.0.1"))
    await seen.start(STAYS)
    await seen.start(MOVES)
    sending = asyncio.create_task(seen.send())
    try:
        await until(lambda: seen.count() > 100, "the first messages", 120)
        yield seen
    finally:
        await seen.close()
        await sending
