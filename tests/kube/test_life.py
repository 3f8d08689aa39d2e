"""The life of a cluster of real brokers: live changes, deaths, evictions."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.common.polling import SCALE, wait_until
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import is_true, operator
from tests.support.operator.real_cluster import LivedCluster, unchanged_lives

READS = "slaveReadEnable"


@pytest.mark.soak
async def test_a_live_change_restarts_nothing_and_survives_every_death(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    with operator(namespace) as running:
        cluster = LivedCluster(namespace, pairs=2, slavesPerPair=1)
        cluster.wait_settled()

        async def order_of(value: bool) -> list[str]:
            """Change it live; return the members in the order of their files."""
            mark = control_plane.audit.mark()
            with unchanged_lives(cluster):
                cluster.change(slaveReadEnable=value)
                cluster.wait_settled()
            wanted = str(value).lower()
            assert set((await cluster.answers(READS)).values()) == {wanted}
            assert {cluster.file(name)[READS] for name in cluster.members()} == {wanted}
            return [
                item.name
                for item in control_plane.audit.writes(
                    since=mark, user=running.identity.user, resource="configmaps"
                )
                if item.name in cluster.members()
            ]

        enabled = ["orders-0-1", "orders-0-0", "orders-1-1", "orders-1-0"]
        disabled = ["orders-0-0", "orders-0-1", "orders-1-0", "orders-1-1"]
        assert await order_of(True) == enabled
        assert await order_of(False) == disabled
        assert await order_of(True) == enabled
        await _the_value_survives(cluster, node)
        await _evictions_take_one_member_of_a_pair(cluster)


async def _the_value_survives(cluster: LivedCluster, node: NodeProcess) -> None:
    """Kill a container with -9, then delete a pod: each reads the value from its file."""
    namespace = cluster.namespace.name
    before = cluster.lives()
    node.kill_container(namespace, "orders-0-0-0")
    wait_until(lambda: cluster.lives()["orders-0-0"][1] > before["orders-0-0"][1], "a restart", 60)
    cluster.wait_settled()
    assert (await cluster.answers(READS))["orders-0-0"] == "true"
    cluster.api.delete("Pod", "orders-0-1-0")
    uid = before["orders-0-1"][0]
    cluster.api.wait("Pod", "orders-0-1-0", lambda item: item["metadata"]["uid"] != uid)
    cluster.wait_settled()
    assert (await cluster.answers(READS))["orders-0-1"] == "true"


async def _evictions_take_one_member_of_a_pair(cluster: LivedCluster) -> None:
    """Evict both members of a pair, as a drain of all nodes would; then one that is not ready."""
    api = cluster.api
    for name in ("orders-0", "orders-1"):
        api.wait(
            "PodDisruptionBudget", name, lambda item: item["status"]["disruptionsAllowed"] == 1
        )
    assert [cluster.evict(pod) for pod in ("orders-0-0-0", "orders-0-1-0")] == [201, 429]
    kill = ("exec", "orders-1-1-0", "--", "failback-init", "kill", "9", "--hold")
    cluster.namespace.kubectl(*kill, check=False)
    api.wait(
        "PodDisruptionBudget", "orders-1", lambda item: item["status"]["disruptionsAllowed"] == 0
    )
    api.wait("Pod", "orders-1-1-0", lambda item: not is_true("Ready")(item))
    assert [cluster.evict(pod) for pod in ("orders-1-0-0", "orders-1-1-0")] == [429, 201]
    cluster.wait_settled()
    await _a_drain_leaves_each_pair_a_member(cluster)


async def _a_drain_leaves_each_pair_a_member(cluster: LivedCluster) -> None:
    """Evict every pod again and again, as drains do, until each was replaced once."""
    before = {name: life[0] for name, life in cluster.lives().items()}
    waiting = set(before)
    async with asyncio.timeout(240 * SCALE):
        while waiting:
            for name in sorted(waiting):
                cluster.evict(f"{name}-0")
                left = _ready_members(cluster)
                assert {"orders-0", "orders-1"} == {each[:-2] for each in left}, left
            pods = _uids(cluster)
            waiting = {name for name in waiting if pods.get(name) in (None, before[name])}
            await asyncio.sleep(0.2)
    cluster.wait_settled()


def _uids(cluster: LivedCluster) -> dict[str, str]:
    """Return the uid of each member's pod."""
    pods = cluster.api.list("Pod", labels="failback.dev/cluster=orders")
    found = {str(pod["metadata"]["name"]): str(pod["metadata"]["uid"]) for pod in pods}
    return {name.removesuffix("-0"): uid for name, uid in found.items()}


def _ready_members(cluster: LivedCluster) -> list[str]:
    """Return the members whose pod is ready and is not asked to go."""
    pods = cluster.api.list("Pod", labels="failback.dev/cluster=orders")
    return [
        str(pod["metadata"]["name"]).removesuffix("-0")
        for pod in pods
        if is_true("Ready")(pod) and "deletionTimestamp" not in pod["metadata"]
    ]
