"""A cluster's life on a real API server, with real brokers behind its pods."""

from __future__ import annotations

import pytest

from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator_process import is_true, operator

pytestmark = pytest.mark.kube

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


def test_a_cluster_becomes_ready_with_real_brokers(namespace: Namespace, node: NodeProcess) -> None:
    with operator(namespace):
        namespace.api.create(NAME_SERVER)
        namespace.api.create(CLUSTER)
        namespace.api.wait("NameServer", "main", is_true("Ready"), seconds=60)
        cluster = namespace.api.wait("BrokerCluster", "orders", is_true("Ready"), seconds=120)
    assert cluster["status"]["readyPairs"] == 1
