"""Two masters of one pair are told of and left alone until a person has ended one of them."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.net.ports import free_port_block
from tests.support.operator.operator_process import OperatorProcess, condition_of, operator
from tests.support.operator.quick_pair import QUICK, SCALE, QuickPair
from tests.support.operator.resources import resource
from tests.support.operator.witnessed_operator import CHANGING
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

MEMBERS = (0, 1)
OBJECTS = {"configmaps", "statefulsets", "persistentvolumeclaims", "pods/eviction"}
"""What the members of a pair run from."""
_ORDER = re.compile(r'^failback_operator_admin_requests_total\{code="(\d+)",.*\} (\S+)$', re.M)


@pytest.mark.soak
async def test_a_member_started_by_hand_as_a_second_master_is_left_alone(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    with operator(namespace, **QUICK) as running:
        pair = QuickPair(namespace)
        pair.create()
        pair.create_topic("PAID")
        running.process.kill()
        await make_a_master_by_hand(pair)
        pair.api.patch("BrokerCluster", "orders", {"spec": {"slaveReadEnable": True}})

        before, mark = pods(pair), control_plane.audit.mark()
        running.start()
        words = two_masters_are_told(pair, {pair.address(member) for member in MEMBERS})
        assert "orders-0-1 is not the master member" in words
        operation_is_blocked(pair)
        await asyncio.sleep(7)  # a pass of every resource lies within
        assert written(control_plane, running, mark) & OBJECTS == set()
        assert orders(running) == {}
        assert pods(pair) == before
        assert await answers(pair, "slaveReadEnable") == ["false", "false"]
        assert await answers(pair, "brokerRole") == ["ASYNC_MASTER", "ASYNC_MASTER"]

        pair.annotate(hold_member="orders-0-1")
        pair.api.wait_gone("Pod", pair.pod(1))
        pair.api.wait("BrokerCluster", "orders", has_one_master, seconds=120)
        pair.api.wait("ConfigMap", "orders-0-1", says("brokerRole=SLAVE"), seconds=60)
        pair.annotate(hold_member=None)
        pair.wait_settled()
        assert await pair.registered() == {member: pair.address(member) for member in MEMBERS}
        assert await answers(pair, "slaveReadEnable") == ["true", "true"]


@pytest.mark.soak
async def test_a_stranger_under_the_name_of_a_pair_is_told_of_and_left_alone(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    with operator(namespace, **QUICK) as running:
        pair = QuickPair(namespace)
        pair.create()
        pair.create_topic("PAID")
        with stranger(pair, broker_id=7) as address:
            cluster = pair.api.wait("BrokerCluster", "orders", is_stale, seconds=120)
            told = condition_of(cluster, "RolesConsistent")["message"]
            assert told == f"{address} is registered as orders-0 and is none of its members"
        pair.wait_settled()

        before, mark, sent = pods(pair), control_plane.audit.mark(), orders(running)
        with stranger(pair, broker_id=0) as address:
            two_masters_are_told(pair, {pair.address(0), address})
            pair.api.wait("BrokerCluster", "orders", follows_a_stranger, seconds=60)
            pair.api.patch("BrokerCluster", "orders", {"spec": {"slaveReadEnable": True}})
            operation_is_blocked(pair)
            spec = {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": 1}
            pair.api.create(resource("RoleSwitch", "swap", **spec))
            pair.api.wait("RoleSwitch", "swap", waits_for_a_single_master, seconds=60)
            await asyncio.sleep(7)  # a pass of every resource lies within
            assert written(control_plane, running, mark) & OBJECTS == set()
            assert orders(running) == sent
            assert await answers(pair, "slaveReadEnable") == ["false", "false"]
            pair.api.delete("RoleSwitch", "swap")
            pair.api.wait_gone("RoleSwitch", "swap")
        pair.api.wait("BrokerCluster", "orders", has_one_master, seconds=300)
        pair.wait_settled()
        assert await answers(pair, "slaveReadEnable") == ["true", "true"]
        assert pods(pair) == before
        assert await pair.registered() == {member: pair.address(member) for member in MEMBERS}


# --- masters ------------------------------------------------------------------------------------


async def make_a_master_by_hand(pair: QuickPair) -> None:
    """Let the slave's file say master and start a pod from it, as somebody does who is in haste."""
    text = pair.api.get("ConfigMap", "orders-0-1")["data"]["broker.conf"]
    lines = text.replace("brokerRole=SLAVE", "brokerRole=ASYNC_MASTER")
    data = {"broker.conf": lines.replace("brokerId=1\n", "brokerId=0\n")}
    pair.api.patch("ConfigMap", "orders-0-1", {"data": data})
    old = pair.api.get("Pod", pair.pod(1))["metadata"]["uid"]
    pair.api.delete("Pod", pair.pod(1))
    pair.api.wait(
        "Pod",
        pair.pod(1),
        lambda item: (
            item["metadata"]["uid"] != old and item["status"]["containerStatuses"][0]["ready"]
        ),
        seconds=120,
    )
    assert await answers(pair, "brokerId") == ["0", "0"]


@contextmanager
def stranger(pair: QuickPair, *, broker_id: int) -> Iterator[str]:
    """Run a broker that is none of the pair's members under its name; yield its address."""
    port = free_port_block(8) + 4
    folder = pair.namespace.folder / f"stranger-{broker_id}"
    folder.mkdir()
    settings = {
        "brokerClusterName": "orders" if broker_id else "elsewhere",
        "brokerName": "orders-0",
        "brokerId": broker_id,
        "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "namesrvAddr": pair.name_server,
        "storePathRootDir": folder / "store",
        "mappedFileSizeCommitLog": 4 * 1024 * 1024,
        "failbackHttpPort": 0,
        "failbackTimeScale": SCALE,
    }
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    process = TestProcess(
        "stranger",
        failback_command("broker", "-c", str(conf)),
        folder,
        environment=failback_environment(),
    )
    try:
        process.start()
        process.wait_for("boot success")
        yield f"127.0.0.1:{port}"
    finally:
        process.dispose()


# --- what is told -------------------------------------------------------------------------------


def two_masters_are_told(pair: QuickPair, addresses: set[str]) -> str:
    """Wait for condition and event; return the message of both, which names the masters."""
    cluster = pair.api.wait(
        "BrokerCluster",
        "orders",
        lambda item: condition_of(item, "RolesConsistent")["reason"] == "TwoMasters",
        seconds=180,
    )
    words = str(condition_of(cluster, "RolesConsistent")["message"])
    assert words.startswith(f"orders-0 has masters at {', '.join(sorted(addresses))}")
    assert pair.wait_event("TwoMastersDetected", "orders") == words
    return words


def operation_is_blocked(pair: QuickPair) -> None:
    """Wait until the live change that was asked for says what it waits for."""

    def is_blocked(item: Object) -> bool:
        operation = item["status"]["currentOperation"]
        waits = operation["blockedBy"] == ["SingleMaster"]
        return bool(waits and operation["type"] == "LiveConfig")

    pair.api.wait("BrokerCluster", "orders", is_blocked, seconds=60)


def has_one_master(item: Object) -> bool:
    return bool(condition_of(item, "RolesConsistent")["reason"] != "TwoMasters")


def follows_a_stranger(item: Object) -> bool:
    return bool(condition_of(item, "ReplicationHealthy")["reason"] == "SlaveFollowsStranger")


def is_stale(item: Object) -> bool:
    return bool(condition_of(item, "RolesConsistent")["reason"] == "StaleRegistration")


def waits_for_a_single_master(item: Object) -> bool:
    status = item["status"]
    return bool(status["phase"] == "Pending" and "SingleMaster" in status["blockedBy"])


def says(line: str) -> Callable[[Object], bool]:
    return lambda item: line in item["data"]["broker.conf"].splitlines()


# --- what is not done ---------------------------------------------------------------------------


def written(control_plane: ControlPlane, running: OperatorProcess, mark: int) -> set[str]:
    """Return the resources that the operator has written to since a mark."""
    found = control_plane.audit.writes(since=mark, user=running.identity.user)
    assert "delete" not in {item.verb for item in found}
    # The cluster's last valid spec is kept whatever its members do.
    return {item.resource for item in found if not item.name.endswith("-last-valid-spec")}


def orders(running: OperatorProcess) -> dict[int, int]:
    """Return how many requests that change something this operator has sent to brokers, by code."""
    found: Counter[int] = Counter()
    for code, count in _ORDER.findall(running.get("/metrics")):
        found[int(code)] += int(float(count))
    assert found, "there is no count of questions either"
    return {code: count for code, count in found.items() if code in CHANGING}


def pods(pair: QuickPair) -> list[tuple[str, int]]:
    """Return uid and restarts of each member's pod."""
    found = [pair.api.get("Pod", pair.pod(member)) for member in MEMBERS]
    return [
        (item["metadata"]["uid"], item["status"]["containerStatuses"][0]["restartCount"])
        for item in found
    ]


async def answers(pair: QuickPair, key: str) -> list[str]:
    """Return what each member itself says of a key."""
    async with pair.admin() as admin:
        return [(await admin.broker_config(pair.address(member)))[key] for member in MEMBERS]
