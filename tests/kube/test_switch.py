"""Master and slave of a pair change places because a resource says so."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.protocol.message import MessageExt
from tests.support.common.polling import until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.masters_watch import MastersWatch
from tests.support.operator.operator_process import condition_of, is_true, operator
from tests.support.operator.quick_pair import QUICK, QuickPair
from tests.support.operator.resources import resource

pytestmark = pytest.mark.long

TOPIC, GROUP, PAIR = "PAID", "billing", "orders-0"
SENT, ENOUGH = 200, 60
STEPS = [  # without DrainWrites: no other pair takes the messages
    "Preflight",
    "TakeLease",
    "Replicate",
    "SyncOffsets",
    "StopOldMaster",
    "StartNewMaster",
    "ApplyOffsets",
    "OpenWrites",
    "RejoinOldMaster",
    "Verify",
]
Place = tuple[int, int]
"""Queue and offset of a message."""


@pytest.fixture(scope="module")
def pair(control_plane: ControlPlane, node: NodeProcess) -> Iterator[QuickPair]:
    """One pair with a topic and a group; each test asks who is master at its begin."""
    namespace = Namespace(control_plane)
    try:
        with operator(namespace, **QUICK):
            found = QuickPair(namespace)
            found.create()
            owner: dict[str, Any] = {"clusterRef": {"name": "orders"}}
            found.api.create(resource("Topic", "paid", **owner, topicName=TOPIC))
            found.api.create(resource("SubscriptionGroup", GROUP, **owner))
            found.wait_settled()
            found.api.wait("Topic", "paid", is_true("Synced"), seconds=60)
            found.api.wait("SubscriptionGroup", GROUP, is_true("Synced"), seconds=60)
            yield found
    finally:
        namespace.clean_up()


def master_of(pair: QuickPair) -> int:
    """Return the member that the cluster's status calls master."""
    return int(pair.wait_settled()["status"]["pairs"][0]["masterMember"])


def ask_for_switch(pair: QuickPair, name: str, target: int, **spec: Any) -> None:
    """Apply a RoleSwitch as a user does."""
    switch = resource(
        "RoleSwitch",
        name,
        clusterRef={"name": "orders"},
        pair="orders-0",
        targetMember=target,
        **spec,
    )
    pair.namespace.kubectl("apply", "-f", "-", stdin=json.dumps(switch))


def is_over(item: Object) -> bool:
    return item.get("status", {}).get("phase") in ("Complete", "Failed")


def step_of(item: Object) -> str:
    """Return the step of a cluster's operation; empty when it has none."""
    return str((item["status"].get("currentOperation") or {}).get("step", ""))


class Handled:
    """A handler that notes where the messages were that it gets."""

    def __init__(self) -> None:
        self.seen: set[Place] = set()

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        self.seen |= {(message.queue_id, message.queue_offset) for message in messages}
        await asyncio.sleep(0.01)
        return ConsumeResult.SUCCESS


def lease_holder(pair: QuickPair) -> str:
    """Return who holds the Lease of the pair; empty when nobody does."""
    found = pair.api.find("Lease", "failback-orders-0") or {"spec": {}}
    return str(found["spec"].get("holderIdentity") or "")


async def send(pair: QuickPair, count: int) -> set[Place]:
    """Send messages; return where they were stored."""
    async with Producer("shop", pair.settings()) as producer:
        results = [await producer.send(Message(TOPIC, b"%d" % index)) for index in range(count)]
    return {(found.queue.queue_id, found.queue_offset) for found in results}


async def consume(pair: QuickPair, enough: Callable[[set[Place]], bool]) -> set[Place]:
    """Consume until it is enough, commit, and return where the messages were."""
    handled = Handled()
    consumer = PushConsumer(GROUP, pair.settings(), handled, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: enough(handled.seen), "enough messages", 90)
    return handled.seen


async def committed_at(pair: QuickPair, member: int) -> dict[int, int]:
    async with pair.admin() as admin:
        return (await admin.all_offsets(pair.address(member))).get(f"{TOPIC}@{GROUP}", {})


async def listed_master(pair: QuickPair) -> str:
    async with pair.admin() as admin:
        return (await admin.cluster_info()).broker_addr_table[PAIR].broker_addrs[0]


async def permission_of(pair: QuickPair, member: int) -> str:
    async with pair.admin() as admin:
        return (await admin.broker_config(pair.address(member)))["brokerPermission"]


def test_a_switch_to_the_present_master_is_refused(pair: QuickPair) -> None:
    master = master_of(pair)
    ask_for_switch(pair, "refused", master)
    found = pair.api.wait("RoleSwitch", "refused", is_over, seconds=60)
    failed = condition_of(found, "Failed")
    told = f"member {master} is already master of pair 0"
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", "Preflight", told)
    assert "steps" not in found["status"], "it touched nothing"
    assert told in pair.wait_event("RoleSwitchFailed", "refused")
    pair.api.delete("RoleSwitch", "refused")
    pair.api.wait_gone("RoleSwitch", "refused")


@pytest.mark.soak
async def test_deleting_a_switch_before_its_point_of_no_return_undoes_it(
    pair: QuickPair, node: NodeProcess
) -> None:
    master = master_of(pair)
    before = pair.api.get("Pod", f"{PAIR}-{master}-0")["metadata"]["uid"]
    ask_for_switch(pair, "undone", 1 - master)
    begun = ("TakeLease", "Replicate")
    pair.api.wait("BrokerCluster", "orders", lambda item: step_of(item) in begun, seconds=180)
    # The master is closed, and stays so while nobody knows what the target lacks.
    where = pair.namespace.name, pair.pod(1 - master)
    node.kill_program(*where, signal.SIGSTOP)
    for _ in range(600):
        if await permission_of(pair, master) == "4":
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("the master was not closed for producers")
    assert lease_holder(pair) == pair.api.get("RoleSwitch", "undone")["metadata"]["uid"]
    pair.api.delete("RoleSwitch", "undone")
    pair.api.wait_gone("RoleSwitch", "undone", seconds=120)
    node.kill_program(*where, signal.SIGCONT)
    assert master_of(pair) == master
    assert await permission_of(pair, master) == "6"
    assert await listed_master(pair) == pair.address(master)
    assert pair.api.get("Pod", f"{PAIR}-{master}-0")["metadata"]["uid"] == before
    assert lease_holder(pair) == ""
    assert "undone" in pair.wait_event("RoleSwitchRolledBack", "orders")
    assert len(await send(pair, 10)) == 10


async def test_a_planned_switch_carries_messages_and_offsets_over(pair: QuickPair) -> None:
    old = master_of(pair)
    new = 1 - old
    earlier = await committed_at(pair, old)
    sent = await send(pair, SENT)
    first = await consume(pair, lambda seen: len(seen) >= ENOUGH)
    committed = await committed_at(pair, old)
    assert sum(committed.values()) > sum(earlier.values())

    with MastersWatch(pair.namespace.name, [PAIR]) as watch:
        ask_for_switch(pair, "swap", new)
        found = await asyncio.to_thread(pair.api.wait, "RoleSwitch", "swap", is_over, seconds=400)
        assert found["status"]["phase"] == "Complete", json.dumps(found["status"])
        cluster = await asyncio.to_thread(pair.wait_settled)
    assert watch.doubles == []
    assert watch.seen[PAIR] == {pair.address(old), pair.address(new)}

    assert condition_of(found, "Safe")["status"] == "True", condition_of(found, "Safe")
    assert [step["name"] for step in found["status"]["steps"]] == STEPS
    assert found["status"]["fromMember"].endswith(str(old))
    assert found["status"]["toMember"].endswith(str(new))
    assert found["status"]["writeOutageSeconds"] >= found["status"]["readOutageSeconds"]
    assert "pairOverrides" not in cluster["spec"], "nothing is written into the user's spec"
    assert cluster["status"]["pairs"][0]["masterMember"] == new
    roles = [
        pair.api.get("Pod", f"{PAIR}-{member}-0")["metadata"]["labels"]["failback.dev/role"]
        for member in (old, new)
    ]
    assert roles == ["slave", "master"]
    assert await listed_master(pair) == pair.address(new)
    assert pair.api.find("ConfigMap", "fbs-swap") is None
    assert lease_holder(pair) == ""

    assert await committed_at(pair, new) == committed
    after = await send(pair, 10)
    rest = await consume(pair, lambda seen: sent | after <= first | seen)
    assert {place for place in rest if place[1] < committed[place[0]]} == set()
