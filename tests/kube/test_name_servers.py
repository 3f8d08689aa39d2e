"""Name servers come and go under real brokers, and no broker restarts."""

from __future__ import annotations

from functools import partial

import pytest

from tests.support.common.polling import wait_until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, operator
from tests.support.operator.real_cluster import LivedCluster, unchanged_lives

pytestmark = pytest.mark.long


def _never_without_a_name_server(cluster: LivedCluster, ready: set[str]) -> None:
    """Assert that every broker's list has an address whose pod is ready."""
    for name in cluster.members():
        known = cluster.file(name)["namesrvAddr"].split(";")
        assert any(address.partition(".")[0] in ready for address in known), (name, known)


@pytest.mark.soak
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
