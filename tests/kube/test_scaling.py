"""Pairs come and go and volumes grow, under real brokers."""

from __future__ import annotations

import asyncio

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import FailbackError
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import operator
from tests.support.operator.real_cluster import GROUP, TOPIC, LivedCluster, unchanged_lives


@pytest.mark.soak
async def test_pairs_come_and_go_and_volumes_grow(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    with operator(namespace):
        cluster = LivedCluster(namespace, pairs=2, slavesPerPair=1, storage={"size": "4Gi"})
        cluster.wait_settled()
        cluster.change(pairs=3)
        await _a_new_pair_is_told_before_it_takes_writes(cluster)
        await leave_unread(cluster, "orders-2-0")
        cluster.change(pairs=2)
        told = drain_is_blocked(cluster)
        assert GROUP in told
        assert "orders-2" in told
        assert (await cluster.answers("brokerPermission"))["orders-2-0"] == "4"
        assert cluster.read()["status"]["replicas"] == 3
        cluster.change(pairs=3)
        cluster.wait_settled()
        assert (await cluster.answers("brokerPermission"))["orders-2-0"] == "6"
        cluster.annotate(skip_scaledown_check="orders-2")
        cluster.change(pairs=2)
        for name in ("orders-2-0", "orders-2-1"):
            cluster.api.wait_gone("StatefulSet", name, seconds=240)
        assert cluster.wait_settled()["status"]["replicas"] == 2
        claims = {item["metadata"]["name"] for item in namespace.api.list("PersistentVolumeClaim")}
        assert {"data-orders-2-0-0", "data-orders-2-1-0"} <= claims
        _volumes_grow(cluster)


def drain_is_blocked(cluster: LivedCluster) -> str:
    """Wait until the drain names what it waits for."""
    wait_until(lambda: cluster.events("DrainBlocked"), "event DrainBlocked", 240)
    return str(cluster.events("DrainBlocked")[0]["message"])


async def _a_new_pair_is_told_before_it_takes_writes(cluster: LivedCluster) -> None:
    """Look at the third pair until the cluster has settled: open means that it knows the topic."""
    seen = []
    async with AdminClient([cluster.name_server]) as admin:
        while not cluster.is_settled(cluster.read()):
            address = cluster.address("orders-2-0")
            try:
                config = await admin.broker_config(address)
                topics = (await admin.all_topic_config(address)).topic_config_table
                groups = (await admin.all_groups(address)).subscription_group_table
            except (FailbackError, OSError, TimeoutError):
                await asyncio.sleep(0.2)
                continue
            # the permission was read first: what it allowed, the tables already had
            seen.append((config.get("brokerPermission"), TOPIC in topics and GROUP in groups))
    assert seen[-1] == ("6", True)
    assert ("6", False) not in seen


async def leave_unread(cluster: LivedCluster, member: str) -> None:
    """Store messages of the group's topic on every pair; of one the group has read none of them."""
    settings = ClientSettings(namesrv_addrs=(cluster.name_server,), time_scale=0.1)
    address = cluster.address(member)
    async with Producer("shop", settings) as producer, AdminClient([cluster.name_server]) as admin:
        for number in range(60):
            await producer.send(Message(TOPIC, b"%d" % number))
        ends = [await admin.max_offset(address, TOPIC, queue) for queue in range(8)]
        assert sum(ends) > 0
        for queue in range(8):
            await admin.update_offset(address, GROUP, TOPIC, queue, 0)


def _volumes_grow(cluster: LivedCluster) -> None:
    """Grow the volumes: the StatefulSets are made again around pods that stay."""
    api = cluster.api
    before = {name: api.get("StatefulSet", name)["metadata"]["uid"] for name in cluster.members()}
    pods = {name: life[:2] for name, life in cluster.lives().items()}
    cluster.change(storage={"size": "5Gi"})
    cluster.wait_settled()
    after = {name: api.get("StatefulSet", name) for name in cluster.members()}
    assert all(item["metadata"]["uid"] != before[name] for name, item in after.items())
    assert {name: life[:2] for name, life in cluster.lives().items()} == pods
    for name, item in after.items():
        claim = api.get("PersistentVolumeClaim", f"data-{name}-0")
        assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
        wanted = item["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]
        assert wanted["storage"] == "5Gi"


@pytest.mark.soak
async def test_a_class_that_does_not_grow_is_told_once_and_left_alone(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    with operator(namespace) as running:
        storage = {"size": "4Gi", "storageClassName": "fixed"}
        cluster = LivedCluster(namespace, pairs=1, slavesPerPair=0, storage=storage)
        cluster.wait_settled()
        with unchanged_lives(cluster):
            cluster.change(storage={"size": "5Gi"})
            warning = cluster.wait_for("Warning", "VolumeResizeRefused")
            assert "orders-0-0" in warning["message"]
            namespace.api.wait("BrokerCluster", "orders", _is_observed)
            await asyncio.sleep(2)  # the events of that pass
            mark = control_plane.audit.mark()
            await asyncio.sleep(15)
            assert control_plane.audit.writes(since=mark, user=running.identity.user) == []
        refused = cluster.events("VolumeResizeRefused")
        assert len(refused) == 1, refused


def _is_observed(item: Object) -> bool:
    """Whether the newest spec was carried out as far as it can be."""
    return bool(item["status"].get("observedGeneration") == item["metadata"]["generation"])
