"""One operator for all namespaces, with the ClusterRole of the chart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.chart import objects, settings
from tests.support.operator.operator_process import CHART, OperatorProcess, is_true
from tests.support.operator.quick_pair import QUICK, QuickPair
from tests.support.operator.resources import resource

CLUSTER: dict[str, Any] = {"clusterRef": {"name": "orders"}}


@pytest.fixture
def shops(control_plane: ControlPlane, node: NodeProcess) -> Iterator[tuple[QuickPair, QuickPair]]:
    """Two namespaces beside the operator's own."""
    made = [Namespace(control_plane) for _ in range(2)]
    try:
        yield QuickPair(made[0]), QuickPair(made[1])
    finally:
        for namespace in made:
            namespace.clean_up()


@pytest.fixture
def everywhere(namespace: Namespace, node: NodeProcess) -> Iterator[OperatorProcess]:
    """An operator of the whole cluster, in a namespace of its own."""
    words = settings(("rbac.scope=cluster", "crds.install=false"))
    shown = namespace.helm(
        "template", "failback", str(CHART), "--show-only", "templates/rbac.yaml", *words
    ).out
    rules = [
        item["rules"]
        for item in objects(shown)
        if item["kind"] == "ClusterRole" and "operator" in item["metadata"]["name"]
    ]
    assert len(rules) == 1
    identity = namespace.identity("op", cluster_rules=rules[0])
    found = OperatorProcess(
        namespace, identity, FAILBACK_WATCH_NAMESPACES="", FAILBACK_WATCH_CRDS="true", **QUICK
    )
    try:
        found.start()
        found.wait_until_ready()
        yield found
    finally:
        found.process.dispose()


@pytest.mark.soak
def test_clusters_of_one_name_live_apart_and_a_deleted_namespace_goes(
    shops: tuple[QuickPair, QuickPair],
    everywhere: OperatorProcess,
    control_plane: ControlPlane,
) -> None:
    for pair in shops:
        pair.create()
        pair.api.create(resource("Topic", "paid", **CLUSTER, deletionPolicy="Delete"))
        pair.api.create(resource("SubscriptionGroup", "billing", **CLUSTER))
    for pair in shops:
        cluster = pair.wait_settled()
        members = cluster["status"]["pairs"][0]["members"]
        assert all(f".{pair.namespace.name}." in item["address"] for item in members)
        pair.api.wait("Topic", "paid", is_true("Synced"), seconds=60)
        pair.api.wait("SubscriptionGroup", "billing", is_true("Synced"), seconds=60)
    first, second = shops

    # Topic and group hold a finalizer: the operator takes it off although the brokers go too.
    assert first.api.get("Topic", "paid")["metadata"]["finalizers"]
    kept = second.api.get("Pod", "orders-0-0-0")["metadata"]["uid"]
    control_plane.api.delete("Namespace", first.namespace.name)
    for kind, name in (("Topic", "paid"), ("SubscriptionGroup", "billing")):
        first.api.wait_gone(kind, name, seconds=120)
    for kind in ("BrokerCluster", "NameServer", "StatefulSet", "ConfigMap"):
        assert everywhere.process.alive
        wait_empty(first, kind)
    control_plane.api.wait_gone("Namespace", first.namespace.name, seconds=120)

    second.wait_settled()
    second.api.wait("Topic", "paid", is_true("Ready"), seconds=60)
    assert second.api.get("Pod", "orders-0-0-0")["metadata"]["uid"] == kept
    second.api.delete("Topic", "paid")
    second.api.wait_gone("Topic", "paid", seconds=60)
    assert "Traceback" not in everywhere.process.errors()


def wait_empty(pair: QuickPair, kind: str) -> None:
    for item in pair.api.list(kind):
        pair.api.wait_gone(kind, item["metadata"]["name"], seconds=120)
