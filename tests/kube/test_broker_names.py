"""A second cluster takes no broker name, by whichever address it knows the name servers."""

from __future__ import annotations

from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, is_true, operator
from tests.support.operator.quick_pair import QUICK, QuickPair
from tests.support.operator.resources import resource


async def test_a_name_that_brokers_answer_to_is_not_taken(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace, **QUICK):
        pair = QuickPair(namespace)
        pair.create()
        pair.create_topic("PAID")
        address = pair.api.get("Pod", "main-ns-0")["status"]["podIP"]
        spellings = {
            "by-service": f"main-namesrv.{namespace.name}.svc.cluster.local:9876",
            "by-pod": f"{address}:9876",
        }
        words = {
            "by-service": f"BrokerCluster {namespace.name}/orders is older",
            "by-pod": "the name servers list orders-0 at ",
        }
        for name, server in spellings.items():
            spec = {"nameServerAddresses": [server], "brokerNamePrefix": "orders"}
            pair.api.create(resource("BrokerCluster", name, **spec))
        for name, text in words.items():
            ready = condition_of(pair.api.wait("BrokerCluster", name, is_taken), "Ready")
            assert ready["message"].startswith(text)
            assert pair.api.list("Pod", labels=f"failback.dev/cluster={name}") == []
            assert pair.api.list("StatefulSet", labels=f"failback.dev/cluster={name}") == []
        assert await pair.registered() == {member: pair.address(member) for member in (0, 1)}
        pair.wait_settled()

        pair.api.delete("BrokerCluster", "by-service")
        pair.api.delete("BrokerCluster", "orders")
        pair.api.wait("BrokerCluster", "by-pod", is_true("Ready"), seconds=180)


def is_taken(item: Object) -> bool:
    ready = condition_of(item, "Ready") if item.get("status", {}).get("conditions") else None
    return bool(ready and ready["reason"] == "NameTaken")
