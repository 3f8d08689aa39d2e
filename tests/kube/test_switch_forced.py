"""A forced switch away from a master that had more than its slave."""

from __future__ import annotations

import asyncio

from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.protocol.errors import FailbackError
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.masters_watch import MastersWatch
from tests.support.operator.operator_process import condition_of
from tests.support.operator.quick_pair import QuickPair, hasty_operator
from tests.support.operator.resources import resource

TOPIC, SWITCH, CLAIM = "PAID", "forced", "data-orders-0-0-0"
TAIL, MORE = 150, 20
"""Messages that only the old master has: more than its check compares; and the new master's."""
LAST, LATER = b"only the old master has this", b"the new master takes this"


async def test_what_only_the_old_master_had_is_reported_and_wiped_once(
    namespace: Namespace, node: NodeProcess
) -> None:
    with hasty_operator(namespace):
        pair = QuickPair(namespace)
        pair.create(failover={"mode": "Manual"})
        pair.create_topic(TOPIC)
        tail = await make_a_tail(pair)

        with MastersWatch(namespace.name, ["orders-0"]) as watch:
            found = await force(pair)
        assert watch.doubles == []
        assert watch.seen["orders-0"] == {pair.address(1)}
        assert found["status"]["phase"] == "Complete", found["status"]
        assert condition_of(found, "Safe")["reason"] == "Diverged"
        assert found["status"]["targetLag"] in ("Zero", "Under1Mi"), "before it was gone"
        steps = {step["name"]: step.get("evidence", {}) for step in found["status"]["steps"]}
        assert steps["RejoinOldMaster"]["tailBytes"] == tail
        assert f"{tail} bytes of its log only it has" in pair.wait_event("SlaveDiverged", SWITCH)

        assert pair.verify_exit(0) == 3
        assert await pair.registered() == {0: pair.address(1)}, "it never attached"
        logs = node.claim_folder(namespace.name, CLAIM) / "commitlog"
        assert any(LAST in file.read_bytes() for file in logs.glob("0*")), "its claim is kept"
        await it_is_wiped_once(pair, node, tail)


async def make_a_tail(pair: QuickPair) -> int:
    """Leave the slave alone, behind a master that is held down; return the bytes it lacks."""
    await send(pair, b"both have this", 20)
    whole = await pair.end_of(0)
    await until_end(pair, 1, whole)
    pair.kill_and_hold(1)
    await send(pair, LAST, TAIL)
    end = await pair.end_of(0)
    pair.kill_and_hold(0)
    pair.release(1)
    assert await pair.end_of(1) == whole
    return end - whole


async def until_end(pair: QuickPair, member: int, end: int) -> None:
    """Return once a member's log ends there."""
    for _ in range(600):
        if await pair.end_of(member) == end:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"member {member} never had the log up to {end}")


async def force(pair: QuickPair) -> Object:
    """Ask for the switch, send as soon as anybody takes messages, return the switch at its end."""
    spec = {
        "clusterRef": {"name": "orders"},
        "pair": "orders-0",
        "targetMember": 1,
        "mode": "Forced",
    }
    pair.api.create(resource("RoleSwitch", SWITCH, **spec))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send(pair, LATER, MORE))
        over = tasks.create_task(
            asyncio.to_thread(pair.api.wait, "RoleSwitch", SWITCH, is_over, seconds=300)
        )
    return over.result()


def is_over(item: Object) -> bool:
    return item.get("status", {}).get("phase") in ("Complete", "Failed")


async def send(pair: QuickPair, body: bytes, count: int) -> None:
    """Send so many messages, each again until it is taken."""
    async with Producer("shop", pair.settings()) as producer, asyncio.timeout(300):
        while count:
            try:
                await producer.send(Message(TOPIC, body))
                count -= 1
            except (FailbackError, OSError):
                await asyncio.sleep(0.2)


async def it_is_wiped_once(pair: QuickPair, node: NodeProcess, tail: int) -> None:
    """Have the volume wiped for the bytes it gives up; then ask again with the uid that is gone."""
    uid = pair.api.get("PersistentVolumeClaim", CLAIM)["metadata"]["uid"]
    cluster = pair.api.wait(
        "BrokerCluster",
        "orders",
        lambda item: uid in condition_of(item, "ReplicationHealthy").get("message", ""),
        seconds=60,
    )
    told = condition_of(cluster, "ReplicationHealthy")
    assert told["reason"] in ("Diverged", "SlaveAhead")
    assert "force-resync" not in told["message"], "the longer log is not the one to wipe"
    pair.annotate(force_resync_member=f"{uid}:{tail}")
    pair.api.wait(
        "PersistentVolumeClaim", CLAIM, lambda item: item["metadata"]["uid"] != uid, seconds=120
    )
    again = pair.wait_settled()["status"]["pairs"][0]["members"][0]["claimUid"]
    assert again != uid
    assert await pair.end_of(0) == await pair.end_of(1)
    logs = node.claim_folder(pair.namespace.name, CLAIM) / "commitlog"
    content = b"".join(file.read_bytes() for file in sorted(logs.glob("0*")))
    assert content.count(LATER) >= MORE
    assert LAST not in content, "it is not merged"

    pod = pair.api.get("Pod", pair.pod(0))["metadata"]["uid"]
    pair.annotate(force_resync_member=None)
    pair.annotate(force_resync_member=f"{uid}:{tail}")
    await asyncio.sleep(7)  # a pass of every resource lies within
    assert pair.api.get("Pod", pair.pod(0))["metadata"]["uid"] == pod
    assert pair.api.get("PersistentVolumeClaim", CLAIM)["metadata"]["uid"] == again
    begun = [item for item in pair.events("OperationStarted") if "Resync" in item["message"]]
    assert len(begun) == 1
