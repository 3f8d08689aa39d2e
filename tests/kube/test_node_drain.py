"""A drain of the node of the only pair's master, under traffic: ``kubectl drain`` and evictions.

The namespace has nodes of its own. A message is sent again until it is acknowledged, as producers
do that may not lose one; what is not after a minute has failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.protocol.errors import FailbackError
from tests.kube.test_switch import GROUP, TOPIC, consume
from tests.support.common.background_thread import Beside
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.masters_watch import MastersWatch
from tests.support.operator.operator_process import READS_NODES, condition_of
from tests.support.operator.quick_pair import QuickPair, hasty_operator
from tests.support.operator.real_cluster import LivedCluster
from tests.support.operator.resources import resource

pytestmark = pytest.mark.long

BROKER = "orders-0"
PATIENCE_SECONDS = 60.0
NODES_SECONDS = 7.0
"""The operator asks for a node every five seconds."""


class Traffic(Beside):
    """A producer that never stops and tries each message again."""

    def __init__(self, pair: QuickPair) -> None:
        super().__init__("traffic")
        self._pair = pair
        self.stored: set[tuple[int, int]] = set()
        """Queue and offset of what was acknowledged."""
        self.failed = 0
        self.retried = 0
        self.closed_seconds = 0.0
        """The longest time between two acknowledged sends."""

    def work(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        number, last = 0, time.monotonic()
        async with Producer("shop", self._pair.settings()) as producer:
            while not self.stopping.is_set():
                number += 1
                begun = time.monotonic()
                while time.monotonic() - begun < PATIENCE_SECONDS:
                    try:
                        result = await producer.send(Message(TOPIC, b"%d" % number))
                    except (FailbackError, OSError, TimeoutError):
                        self.retried += 1
                        await asyncio.sleep(0.1)
                    else:
                        self.stored.add((result.queue.queue_id, result.queue_offset))
                        now = time.monotonic()
                        self.closed_seconds = max(self.closed_seconds, now - last)
                        last = now
                        break
                else:
                    self.failed += 1
                await asyncio.sleep(0.01)


@pytest.fixture
def pair(control_plane: ControlPlane, node: NodeProcess) -> Iterator[QuickPair]:
    """One pair on three nodes of its own, under an operator that sees them."""
    namespace = Namespace(control_plane)
    try:
        with (
            node.further(namespace.name, "a", "b", "c"),
            hasty_operator(namespace, READS_NODES),
        ):
            found = QuickPair(namespace)
            found.create(failover={"onDrain": "Switch"})
            found.create_topic(TOPIC, GROUP)
            yield found
    finally:
        namespace.clean_up()


def evict(pair: QuickPair, member: int) -> int:
    return LivedCluster.evict(pair, pair.pod(member))  # type: ignore[arg-type]


def node_of(pair: QuickPair, member: int) -> str:
    return str(pair.api.get("Pod", pair.pod(member))["spec"]["nodeName"])


def waits(pair: QuickPair) -> str:
    found = condition_of(pair.api.get("BrokerCluster", "orders"), "DrainWaits")
    return f"{found['reason']} {found['message']}"


async def test_a_drain_of_the_only_pairs_master_under_traffic_fails_no_send(
    pair: QuickPair,
) -> None:
    pair.wait_settled()
    assert waits(pair) == "NoDrain "
    assert evict(pair, 0) == 429, "the master is kept, and no eviction fails for good"
    begun = time.monotonic()
    with Traffic(pair) as traffic, MastersWatch(pair.namespace.name, [BROKER]) as watch:
        await asyncio.sleep(2)
        drained = node_of(pair, 0)
        uid = pair.api.get("Pod", pair.pod(0))["metadata"]["uid"]
        flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
        await asyncio.to_thread(pair.namespace.kubectl, "drain", drained, *flags, seconds=180)
        seconds = time.monotonic() - begun
        cluster = await asyncio.to_thread(pair.wait_settled)
        await asyncio.sleep(2)
    print(
        f"drained after {seconds:.1f} s, closed for {traffic.closed_seconds:.1f} s, "
        f"{len(traffic.stored)} sent, {traffic.retried} tries more"
    )
    assert traffic.failed == 0
    assert traffic.retried > 0, "the pair was closed for a while"
    assert watch.doubles == []
    assert cluster["status"]["pairs"][0]["masterMember"] == 1
    assert pair.api.get("Pod", pair.pod(0))["metadata"]["uid"] != uid
    assert drained not in (node_of(pair, 0), node_of(pair, 1))
    (event,) = pair.events("DrainSwitch", "orders")
    (switch,) = pair.api.list("RoleSwitch")
    assert event["message"] == (
        f"orders-0-0 (node {drained} is unschedulable) hands over to orders-0-1 by RoleSwitch "
        f"{switch['metadata']['name']}"
    )
    assert condition_of(switch, "Safe")["status"] == "True", switch["status"]
    assert waits(pair) == "NoDrain "
    assert [evict(pair, 1), evict(pair, 0)] == [429, 201], "the slave goes, the master stays"
    seen = await consume(pair, lambda places: traffic.stored <= places)
    assert traffic.stored <= seen, "nothing that was acknowledged is missing"


@pytest.mark.soak
async def test_what_a_drain_waits_for_is_said_and_a_mark_on_the_pod_is_enough(
    pair: QuickPair,
) -> None:
    pair.wait_settled()
    api = pair.api
    api.patch("Node", node_of(pair, 1), {"spec": {"unschedulable": True}})
    await asyncio.sleep(NODES_SECONDS)
    mark = {"metadata": {"annotations": {"failback.dev/drain": "true"}}}
    api.patch("Pod", pair.pod(0), mark)
    told = await asyncio.to_thread(pair.wait_event, "DrainWaits", "orders")
    assert told == (
        "orders-0-0 (annotation failback.dev/drain): no slave is ready on another node that takes"
        " pods"
    )
    assert waits(pair) == f"NoOtherNode {told}"
    assert [evict(pair, 0), api.list("RoleSwitch")] == [429, []]
    api.patch("BrokerCluster", "orders", {"spec": {"failover": {"onDrain": "Wait"}}})
    api.patch("Node", node_of(pair, 1), {"spec": {"unschedulable": False}})
    wait = "RoleSwitchNeeded"
    api.wait(
        "BrokerCluster",
        "orders",
        lambda item: condition_of(item, "DrainWaits").get("reason") == wait,
        seconds=60,
    )
    assert evict(pair, 0) == 429
    where = {"clusterRef": {"name": "orders"}, "pair": BROKER, "targetMember": 1}
    api.create(resource("RoleSwitch", "mine", **where))
    api.wait(
        "RoleSwitch",
        "mine",
        lambda item: item.get("status", {}).get("phase") == "Complete",
        seconds=240,
    )
    pair.wait_settled()
    assert [evict(pair, 1), evict(pair, 0)] == [429, 201]
