"""Real brokers run as the pods of the objects that the operator renders."""

from __future__ import annotations

import json
from typing import Any

import pytest

from failback.client.admin.admin import AdminClient
from failback.operator.render.context import kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess

pytestmark = pytest.mark.soak

NAME_SERVER: Object = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "NameServer",
    "metadata": {"name": "main"},
    "spec": {"replicas": 1},
}
CLUSTER: Object = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "BrokerCluster",
    "metadata": {"name": "orders"},
    "spec": {"nameServerRef": {"name": "main"}, "pairs": 1, "slavesPerPair": 1},
}
PODS = ("main-ns-0", "orders-0-0-0", "orders-0-1-0")


def set_up(namespace: Namespace) -> None:
    """Create the resources and, in the operator's place, what it renders for them."""
    created = [namespace.api.create(manifest) for manifest in (NAME_SERVER, CLUSTER)]
    items = [decode(manifest) for manifest in created]
    for manifest in render(items, kubernetes_context(namespace.name, "0.1.0")):
        namespace.api.apply(manifest, manager="test")


def is_ready(found: Object) -> bool:
    conditions = found["status"]["conditions"]
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def restarted(found: Object) -> bool:
    return is_ready(found) and found["status"]["containerStatuses"][0]["restartCount"] > 0


def init_status(namespace: Namespace, pod: str) -> dict[str, Any]:
    """Ask the container's init about its child."""
    told = namespace.kubectl("exec", pod, "--", "failback-init", "status", "--json").out
    return dict(json.loads(told))


async def test_brokers_become_ready_register_and_are_killed_behind_their_init(
    namespace: Namespace, node: NodeProcess
) -> None:
    set_up(namespace)
    for pod in PODS:
        namespace.api.wait("Pod", pod, is_ready, seconds=120)
    address = f"main-ns-0.main-ns.{namespace.name}.svc.cluster.local:9876"
    async with AdminClient([address]) as admin:
        route = await admin.cluster_info()
    master = f"orders-0-0-0.orders-brokers.{namespace.name}.svc.cluster.local:10911"
    assert route.broker_addr_table["orders-0"].broker_addrs[0] == master

    pid = node.pids(namespace.name, "orders-0-0-0")[1]
    before = init_status(namespace, "orders-0-0-0")
    assert before["child"]["pid"] != 1
    kill_child(namespace, "KILL")
    found = namespace.api.wait("Pod", "orders-0-0-0", restarted, seconds=120)
    ended = found["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert ended["exitCode"] == 137
    assert node.pids(namespace.name, "orders-0-0-0")[1] != pid
    # The init containers' children are in the record too: they ended in order.
    death = init_status(namespace, "orders-0-0-0")["deaths"][-1]
    assert (death["signal"], death["pid"]) == (9, before["child"]["pid"])


def test_a_replaced_broker_finds_its_store_and_a_held_one_stays_down(
    namespace: Namespace, node: NodeProcess
) -> None:
    set_up(namespace)
    first = namespace.api.wait("Pod", "orders-0-0-0", is_ready, seconds=120)
    store = node.claim_folder(namespace.name, "data-orders-0-0-0")
    assert (store / "checkpoint").is_file()
    namespace.api.delete("Pod", "orders-0-0-0")
    namespace.api.wait(
        "Pod",
        "orders-0-0-0",
        lambda found: found["metadata"]["uid"] != first["metadata"]["uid"] and is_ready(found),
        seconds=120,
    )
    assert node.claim_folder(namespace.name, "data-orders-0-0-0") == store

    kill_child(namespace, "9", "--hold")
    namespace.api.wait("Pod", "orders-0-0-0", lambda found: not is_ready(found), seconds=60)
    wait_until(lambda: held_and_down(namespace), "the container that holds its child down")
    namespace.kubectl("exec", "orders-0-0-0", "--", "failback-init", "release")
    namespace.api.wait("Pod", "orders-0-0-0", is_ready, seconds=120)


def kill_child(namespace: Namespace, *words: str) -> None:
    """Kill through the init. The command may die with the container: only its receipt counts."""
    command = ("exec", "orders-0-0-0", "--", "failback-init", "kill", *words)
    assert json.loads(namespace.kubectl(*command, check=False).out)["signum"] == 9


def held_and_down(namespace: Namespace) -> bool:
    command = ("exec", "orders-0-0-0", "--", "failback-init", "status", "--json")
    done = namespace.kubectl(*command, check=False)
    if done.code:  # between two containers there is none to ask
        return False
    told = json.loads(done.out)
    return bool(told["held"]) and told["child"] is None
