"""A cluster's life on a real API server, with real brokers behind its pods."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest

from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import OperatorProcess, condition_of, is_true, operator

pytestmark = pytest.mark.long

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
TOPIC: Object = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "Topic",
    "metadata": {"name": "order-paid"},
    "spec": {"clusterRef": {"name": "orders"}, "topicName": "ORDER_PAID"},
}
GROUP: Object = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "SubscriptionGroup",
    "metadata": {"name": "billing"},
    "spec": {"clusterRef": {"name": "orders"}},
}
SETTLED = ("Ready", "ConfigApplied", "RolesConsistent", "ReplicationHealthy", "MetadataSynced")
CHILDREN = (
    ("StatefulSet", "orders-0-0"),
    ("StatefulSet", "orders-0-1"),
    ("ConfigMap", "orders-0-0"),
    ("ConfigMap", "orders-0-1"),
    ("Service", "orders-brokers"),
    ("PodDisruptionBudget", "orders-0"),
)


def writes(control_plane: ControlPlane, running: OperatorProcess, since: int) -> list[Any]:
    """Return what an operator wrote since a mark."""
    return list(control_plane.audit.writes(since=since, user=running.identity.user))


def create(namespace: Namespace, *manifests: Object) -> None:
    for manifest in manifests:
        namespace.api.create(manifest)


def wait_ready(namespace: Namespace, *kinds: str) -> Object:
    """Wait until the cluster is ready, and its other conditions of these types hold."""

    def holds(item: Object) -> bool:
        return all(is_true(kind)(item) for kind in ("Ready", *kinds))

    return namespace.api.wait("BrokerCluster", "orders", holds, seconds=120)


@pytest.mark.sample
def test_a_cluster_becomes_ready_and_then_nothing_is_written(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    with operator(namespace, FAILBACK_RESYNC_SECONDS="3") as running:
        create(namespace, NAME_SERVER, CLUSTER, TOPIC, GROUP)
        cluster = wait_ready(namespace, *SETTLED)
        assert cluster["status"]["observedGeneration"] == 1
        assert cluster["status"]["pairs"][0]["phase"] == "Running"
        members = cluster["status"]["pairs"][0]["members"]
        assert [item["observedRole"] for item in members] == ["ASYNC_MASTER", "SLAVE"]
        pod = namespace.api.get("Pod", "orders-0-0-0")
        assert pod["metadata"]["labels"]["failback.dev/role"] == "master"
        for kind, name in (("Topic", "order-paid"), ("SubscriptionGroup", "billing")):
            namespace.api.wait(kind, name, is_true("Ready"), seconds=60)
            namespace.api.wait(kind, name, is_true("Synced"), seconds=60)
        wait_ready(namespace, *SETTLED)
        mark = control_plane.audit.mark()
        passes = running.get("/metrics").count("unchanged")
        time.sleep(35)  # ten passes of every resource, and the slowest poll
        assert writes(control_plane, running, mark) == []
        assert passes > 0
        assert running.process.alive


def is_another(uid: str, item: Object) -> bool:
    """Tell whether an object is not the one with this uid."""
    return bool(item["metadata"]["uid"] != uid)


def test_deleted_and_changed_children_come_back(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    namespace.pretend_pods()
    with operator(namespace):
        create(namespace, NAME_SERVER, CLUSTER)
        for kind, name in CHILDREN:
            before = namespace.api.wait(kind, name)
            namespace.api.delete(kind, name)
            old = before["metadata"]["uid"]
            again = namespace.api.wait(kind, name, functools.partial(is_another, old))
            assert again["metadata"]["ownerReferences"][0]["name"] == "orders"
        changed = {"data": {"broker.conf": "brokerId=7\n"}}
        namespace.api.patch("ConfigMap", "orders-0-0", changed)
        namespace.api.wait(
            "ConfigMap", "orders-0-0", lambda item: "brokerId=0" in item["data"]["broker.conf"]
        )
        names = {item["metadata"]["name"] for item in namespace.api.list("ConfigMap")}
        assert names >= {"main-ns", "orders-0-0", "orders-0-1"}


@pytest.mark.soak
def test_a_conflict_with_another_manager_is_told_once_and_forced_each_time(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    namespace.pretend_pods()
    with operator(namespace) as running:
        create(namespace, NAME_SERVER, CLUSTER)
        namespace.api.wait("StatefulSet", "orders-0-1")
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "orders-0", "namespace": namespace.name},
            "spec": {"minAvailable": 0},
        }
        namespace.api.wait("PodDisruptionBudget", "orders-0")
        namespace.api.apply(budget, manager="somebody", force=True)
        namespace.api.wait(
            "PodDisruptionBudget", "orders-0", lambda item: item["spec"]["minAvailable"] == 1
        )
        told = wait_for_event(namespace, "FieldManagerConflict")
        assert "somebody" in told["message"]
        assert "minAvailable" in told["message"]
        mark = control_plane.audit.mark()
        namespace.api.apply(budget, manager="somebody", force=True)
        namespace.api.wait(
            "PodDisruptionBudget", "orders-0", lambda item: item["spec"]["minAvailable"] == 1
        )
        attempts = [item for item in writes(control_plane, running, mark) if item.code == 409]
        assert len(attempts) <= 3
        events = [item for item in events_of(namespace) if item["reason"] == "FieldManagerConflict"]
        assert len(events) == 1


def test_a_foreign_object_of_our_name_is_not_touched(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.pretend_pods()
    foreign: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "orders-0-1"},
        "data": {"mine": "yes"},
    }
    stored = namespace.api.create(foreign)
    with operator(namespace):
        create(namespace, NAME_SERVER, CLUSTER)
        namespace.api.wait(
            "BrokerCluster",
            "orders",
            lambda item: condition_of(item, "Ready").get("reason") == "NameTaken",
        )
        kept = namespace.api.get("ConfigMap", "orders-0-1")
        assert kept["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
        wait_for_event(namespace, "NameTaken")
        namespace.api.delete("ConfigMap", "orders-0-1")
        namespace.api.wait("StatefulSet", "orders-0-1")


def test_a_cluster_waits_for_its_name_server(namespace: Namespace, node: NodeProcess) -> None:
    namespace.pretend_pods()
    with operator(namespace):
        create(namespace, CLUSTER)
        namespace.api.wait(
            "BrokerCluster",
            "orders",
            lambda item: condition_of(item, "Ready").get("reason") == "NameServerMissing",
        )
        assert namespace.api.list("StatefulSet") == []
        create(namespace, NAME_SERVER)
        namespace.api.wait("StatefulSet", "orders-0-0")


@pytest.mark.soak
def test_paused_means_no_write_but_the_status(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane
) -> None:
    namespace.pretend_pods()
    with operator(namespace) as running:
        create(namespace, NAME_SERVER, CLUSTER)
        namespace.api.wait("StatefulSet", "orders-0-1")
        pause = {"failback.dev/pause-reconciliation": "true"}
        namespace.api.patch("BrokerCluster", "orders", {"metadata": {"annotations": pause}})
        namespace.api.wait("BrokerCluster", "orders", is_true("Paused"))
        mark = control_plane.audit.mark()
        namespace.api.delete("Service", "orders-brokers")
        time.sleep(3)
        others = [
            item
            for item in writes(control_plane, running, mark)
            if item.resource != "brokerclusters/status" and item.resource != "nameservers/status"
        ]
        assert others == []
        resume = {"failback.dev/pause-reconciliation": None}
        namespace.api.patch("BrokerCluster", "orders", {"metadata": {"annotations": resume}})
        namespace.api.wait("Service", "orders-brokers")


def test_deletion_leaves_only_the_claims(namespace: Namespace, node: NodeProcess) -> None:
    with operator(namespace) as running:
        create(namespace, NAME_SERVER, CLUSTER)
        wait_ready(namespace)
        namespace.api.delete("BrokerCluster", "orders")
        namespace.api.delete("NameServer", "main")
        for kind, name in CHILDREN:
            namespace.api.wait_gone(kind, name)
        namespace.api.wait_gone("Pod", "orders-0-0-0")
        claims = {item["metadata"]["name"] for item in namespace.api.list("PersistentVolumeClaim")}
        assert claims == {"data-orders-0-0-0", "data-orders-0-1-0"}
        wait_until(
            lambda: 'name="orders"' not in running.get("/metrics"), "the end of its metrics", 30
        )


def events_of(namespace: Namespace) -> list[Object]:
    """Return the events that the operator posted."""
    return [
        item
        for item in namespace.api.list("Event")
        if item.get("reportingComponent") == "failback-operator"
    ]


def wait_for_event(namespace: Namespace, reason: str) -> Object:
    """Return the first event of a reason."""

    def found() -> list[Object]:
        return [item for item in events_of(namespace) if item["reason"] == reason]

    wait_until(found, f"event {reason}", 30)
    return found()[0]
