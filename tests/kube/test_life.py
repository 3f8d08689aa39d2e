"""The life of a cluster of real brokers: live changes, deaths, scaling, growth, evictions."""

from __future__ import annotations

import asyncio
from functools import partial

from failback.client.admin.admin import AdminClient
from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import FailbackError
from tests.support.common.polling import SCALE, wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, is_true, operator
from tests.support.operator.real_cluster import GROUP, TOPIC, LivedCluster, unchanged_lives

READS = "slaveReadEnable"


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


async def test_pairs_come_and_go_and_volumes_grow(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    with operator(namespace):
        cluster = LivedCluster(namespace, pairs=2, slavesPerPair=1, storage={"size": "4Gi"})
        cluster.wait_settled()
        cluster.change(pairs=3)
        await _a_new_pair_is_told_before_it_takes_writes(cluster)
        await _leave_unread(cluster)
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


async def _leave_unread(cluster: LivedCluster) -> None:
    """Store messages of the group's topic on the third pair; the group has read none of them."""
    settings = ClientSettings(namesrv_addrs=(cluster.name_server,), time_scale=0.1)
    address = cluster.address("orders-2-0")
    async with Producer("shop", settings) as producer, AdminClient([cluster.name_server]) as admin:
        for number in range(60):
            await producer.send(Message(TOPIC, b"%d" % number))
        ends = [await admin.max_offset(address, TOPIC, queue) for queue in range(8)]
        assert sum(ends) > 0
        for queue in range(8):
            await admin.update_offset(address, GROUP, TOPIC, queue, 0)


def _volumes_grow(cluster: LivedCluster) -> None:
    """Grow the volumes: the StatefulSets are made anew around pods that stay."""
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


def _never_without_a_name_server(cluster: LivedCluster, ready: set[str]) -> None:
    """Assert that every broker's list has an address whose pod is ready."""
    for name in cluster.members():
        known = cluster.file(name)["namesrvAddr"].split(";")
        assert any(address.partition(".")[0] in ready for address in known), (name, known)


async def test_name_servers_come_and_go_and_no_broker_restarts(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace):
        cluster = LivedCluster(namespace, pairs=1, slavesPerPair=1)
        cluster.wait_settled()

        def ready_pods() -> set[str]:
            return {
                item["metadata"]["name"]
                for item in namespace.api.list("Pod", labels="failback.dev/nameserver=main")
                if condition_of(item, "Ready").get("status") == "True"
            }

        def told(number: int) -> bool:
            _never_without_a_name_server(cluster, ready_pods())
            files = [cluster.file(name)["namesrvAddr"].split(";") for name in cluster.members()]
            return all(len(known) == number for known in files)

        def running(number: int) -> bool:
            return len(ready_pods()) == number

        with unchanged_lives(cluster):
            for number in (3, 1):
                namespace.api.patch("NameServer", "main", {"spec": {"replicas": number}})
                wait_until(partial(told, number), f"{number} addresses", 120)
                # a pod goes four minutes after its address: clients ask for it that long
                wait_until(partial(running, number), f"{number} name servers", 600)
                cluster.wait_settled()
                found = await cluster.answers("namesrvAddr")
                assert {len(text.split(";")) for text in found.values()} == {number}
