"""Access from outside on a real API server; a cloud's controller is played by status patches."""

from __future__ import annotations

import pytest

from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, is_true, operator

pytestmark = pytest.mark.long

NAME_SERVER: Object = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "NameServer",
    "metadata": {"name": "main"},
    "spec": {"replicas": 1, "external": {"type": "LoadBalancer"}},
}
CLUSTER: Object = {
    "apiVersion": "failback.dev/v1alpha1",
    "kind": "BrokerCluster",
    "metadata": {"name": "orders"},
    "spec": {
        "nameServerRef": {"name": "main"},
        "slavesPerPair": 0,
        "external": {"type": "LoadBalancer"},
    },
}


def give(namespace: Namespace, service: str, address: str) -> None:
    status = {"loadBalancer": {"ingress": [{"ip": address}]}}
    namespace.api.patch("Service", service, {"status": status}, subresource="status")


def waits(item: Object) -> bool:
    found = condition_of(item, "ExternalAccess")
    return bool(found and found["reason"] == "WaitingForAddress")


@pytest.mark.soak
def test_a_broker_starts_once_its_balancer_has_an_address_and_announces_it(
    namespace: Namespace, node: NodeProcess
) -> None:
    api = namespace.api
    allowed = "allow.externalServices={LoadBalancer}"
    with operator(namespace, allowed, FAILBACK_ALLOWED_EXTERNAL_SERVICES="LoadBalancer"):
        api.create(NAME_SERVER)
        api.create(CLUSTER)
        api.wait("BrokerCluster", "orders", waits, seconds=120)
        api.wait("Service", "orders-0-0-external")
        assert [each["metadata"]["name"] for each in api.list("StatefulSet")] == ["main-ns"]

        give(namespace, "orders-0-0-external", "192.0.2.7")
        give(namespace, "main-external", "192.0.2.8")
        cluster = api.wait("BrokerCluster", "orders", is_true("Ready"), seconds=120)
        assert is_true("ExternalAccess")(cluster)
        server = api.wait("NameServer", "main", is_true("ExternalAccess"), seconds=60)
        assert server["status"]["externalAddresses"] == ["192.0.2.8:9876"]
        conf = api.get("ConfigMap", "orders-0-0")["data"]["broker.conf"]
        assert "brokerIP1=192.0.2.7\n" in conf

        api.patch("BrokerCluster", "orders", {"spec": {"external": None}})
        api.wait_gone("Service", "orders-0-0-external")
