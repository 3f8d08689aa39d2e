"""Which of two clusters of the same broker names is the one that waits."""

from __future__ import annotations

from typing import Any

from failback.operator.kubernetes.store import Store
from failback.operator.planning.observed.rivals import older_rival

HERE = {"nameServerRef": {"name": "main"}}
SERVERS = ["main-ns-0:9876"]


def cluster(
    name: str, created: str = "10:00", namespace: str = "shop", **spec: Any
) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}/{name}",
        "creationTimestamp": f"2026-01-01T{created}:00Z",
    }
    return {"kind": "BrokerCluster", "metadata": metadata, "spec": spec or HERE}


def published(namespace: str, name_server: str) -> list[str]:
    return SERVERS if (namespace, name_server) == ("shop", "main") else []


def rival(own: dict[str, Any], *others: dict[str, Any]) -> str:
    return older_rival(own, others, SERVERS, published)


def test_the_younger_one_waits_and_the_older_one_does_not() -> None:
    old, young = cluster("demo"), cluster("demo2", "10:01")
    assert rival(young, old).startswith("BrokerCluster shop/demo is older")
    assert rival(old, young) == ""


def test_of_two_of_one_second_one_waits() -> None:
    one, two = cluster("demo"), cluster("demo2")
    assert [bool(rival(one, two)), bool(rival(two, one))] == [False, True]


def test_only_common_name_servers_count() -> None:
    young = cluster("demo2", "10:01")
    assert rival(young, cluster("demo", nameServerAddresses=SERVERS)) != ""
    assert rival(young, cluster("demo", nameServerAddresses=["elsewhere:9876"])) == ""
    other = cluster("demo", namespace="bank")
    assert rival(young, other) == "", "another NameServer of the same name"
    by_address = cluster("demo2", "10:01", namespace="bank", nameServerAddresses=SERVERS)
    assert rival(by_address, cluster("demo")) != ""


def test_the_store_finds_clusters_by_the_names_of_their_brokers() -> None:
    store = Store()
    first = cluster("demo")
    second = cluster("demo2", brokerNamePrefix="demo", nameServerRef={"name": "main"})
    for version, item in enumerate((first, second, cluster("other")), start=1):
        item["metadata"]["resourceVersion"] = str(version)
        store.show(item)
    assert [item["metadata"]["name"] for item in store.of_broker_names(second)] == ["demo"]
    store.deleted("shop/demo")
    assert store.of_broker_names(second) == []


SPELLINGS = (
    "main-namesrv:9876",
    "main-namesrv.shop:9876",
    "main-namesrv.shop.svc:9876",
    "MAIN-namesrv.shop.svc.cluster.local.:9876",
    "main-ns.shop.svc.cluster.local:9876",
    "main-ns-1.main-ns.shop.svc.cluster.local:9876",
    "main-external.shop:30876",
)


def test_every_name_of_a_name_server_s_pods_is_that_name_server() -> None:
    addresses = ["main-ns-0.main-ns.shop.svc.cluster.local:9876"]
    old = cluster("demo")
    for spelling in SPELLINGS:
        young = cluster("demo2", "10:01", nameServerAddresses=[spelling])
        assert older_rival(young, [old], [spelling], lambda *_: addresses) != "", spelling
    for other in ("main-namesrv.bank:9876", "spare-namesrv:9876", "main-ns.example.com:9876"):
        young = cluster("demo2", "10:01", nameServerAddresses=[other])
        assert older_rival(young, [old], [other], lambda *_: addresses) == "", other
