"""Real brokers of Apache run as pods, in the version of their image and side by side."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from failback.client.admin.admin import AdminClient
from failback.operator.render.context import kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode
from failback.protocol.errors import BrokerError
from tests.kube.own_server.test_lab_brokers import NAME_SERVER
from tests.support.common.polling import wait_until
from tests.support.java.apache import LOG_FILE_BYTES, server_home
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess

pytestmark = pytest.mark.soak

PODS = ("demo-0-0-0", "demo-0-1-0")
FRUGAL = "-Xms256m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def serves(pod: Object) -> bool:
    """Ready but for the gate, which an operator opens."""
    found = pod.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("ContainersReady", "True") for each in found)


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_pair_shares_one_port_and_says_the_version_of_its_image(
    namespace: Namespace, node: NodeProcess, version: str
) -> None:
    server_home(version)
    cluster: Object = {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": "BrokerCluster",
        "metadata": {"name": "demo"},
        "spec": {
            "nameServerRef": {"name": "main"},
            "slavesPerPair": 1,
            "engine": {"type": "Apache", "version": version, "javaOptions": FRUGAL},
            "config": {"mappedFileSizeCommitLog": str(LOG_FILE_BYTES)},
        },
    }
    items = [decode(namespace.api.create(manifest)) for manifest in (NAME_SERVER, cluster)]
    for manifest in render(items, kubernetes_context(namespace.name, "0.1.0")):
        namespace.api.apply(manifest, manager="test")
    for pod in PODS:
        namespace.api.wait("Pod", pod, serves, seconds=300)
    name_server = f"main-ns-0.main-ns.{namespace.name}.svc.cluster.local:9876"

    async def versions() -> dict[str, str]:
        async with AdminClient([name_server], timeout_ms=60_000) as admin:
            table = (await admin.cluster_info()).broker_addr_table
            found = {}
            for address in table["demo-0"].broker_addrs.values() if "demo-0" in table else ():
                with suppress(BrokerError):  # 4.9 answers 1 until it has counted for a second
                    found[address] = (await admin.runtime_info(address))["brokerVersionDesc"]
            return found

    wait_until(lambda: len(asyncio.run(versions())) == 2, "two registered brokers", seconds=60)
    service = f"demo-brokers.{namespace.name}.svc.cluster.local:10911"
    said = f"V{version}".replace(".", "_")
    assert asyncio.run(versions()) == {f"{pod}.{service}": said for pod in PODS}
