"""A drain that does not end holds up nothing: not a live key, a restart, nor a lost master."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from failback.client.admin.admin import AdminClient
from failback.protocol.errors import FailbackError
from tests.kube.test_scaling import drain_is_blocked, leave_unread
from tests.support.common.polling import SCALE
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, operator
from tests.support.operator.real_cluster import LivedCluster
from tests.support.operator.resources import resource


@pytest.mark.soak
async def test_nothing_waits_for_a_drain_that_does_not_end(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    with operator(namespace):
        cluster = LivedCluster(namespace, pairs=2, slavesPerPair=1, failover={"mode": "Manual"})
        cluster.wait_settled()
        await leave_unread(cluster, "orders-1-0")
        cluster.change(pairs=1)
        assert "orders-1" in drain_is_blocked(cluster)

        cluster.change(slaveReadEnable=True)
        for member in ("orders-0-0", "orders-0-1"):
            await until_says(cluster, member, slaveReadEnable="true")
        _a_member_is_restarted(cluster)
        await _a_lost_master_is_replaced(cluster)
        assert ("ScaleDown", "WaitEmpty") in running(cluster.read())

        cluster.annotate(give_up_groups="billing")
        namespace.api.wait_gone("StatefulSet", "orders-1-0", seconds=240)
        assert "billing@ORDER_PAID" in str(cluster.events("DrainFinished")[0]["message"])


def running(item: Object) -> set[tuple[str, str]]:
    """Return type and step of every operation of the cluster."""
    status = item["status"]
    found = [status.get("currentOperation") or {}, *(status.get("otherOperations") or ())]
    return {(each["type"], each["step"]) for each in found if each}


async def until_says(cluster: LivedCluster, member: str, **wanted: str) -> None:
    """Wait until a member's broker answers with these settings."""
    async with asyncio.timeout(240 * SCALE), AdminClient([cluster.name_server]) as admin:
        while True:
            with contextlib.suppress(FailbackError, OSError):
                config = await admin.broker_config(cluster.address(member))
                if wanted.items() <= config.items():
                    return
            await asyncio.sleep(0.2)


def _a_member_is_restarted(cluster: LivedCluster) -> None:
    before = cluster.api.get("Pod", "orders-0-1-0")["metadata"]["uid"]
    cluster.annotate(restart_member="orders-0-1")

    def is_new(pod: Object) -> bool:
        ready = condition_of(pod, "Ready").get("status") == "True"
        return ready and bool(pod["metadata"]["uid"] != before)

    cluster.api.wait("Pod", "orders-0-1-0", is_new, seconds=240)


async def _a_lost_master_is_replaced(cluster: LivedCluster) -> None:
    cluster.annotate(hold_member="orders-0-0")
    cluster.api.wait_gone("Pod", "orders-0-0-0", seconds=120)
    where = {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": 1}
    cluster.api.create(resource("RoleSwitch", "lost", mode="Forced", **where))

    await until_says(cluster, "orders-0-1", brokerRole="ASYNC_MASTER", brokerPermission="6")
