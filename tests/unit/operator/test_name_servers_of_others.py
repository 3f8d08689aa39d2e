"""Orders go to name servers of the namespace by their spec, and to those that the chart lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from failback.operator.controller.observe import Observer
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.permits import Permits
from failback.operator.kubernetes.store import Store
from failback.operator.render.context import kubernetes_context

OWN = "main-ns-0.main-ns.shop.svc.cluster.local:9876"
OTHERS = "main-ns-0.main-ns.stock.svc.cluster.local:9876"
OUTSIDE = "ns.example.org:9876"


def store() -> Store:
    """A NameServer here that claims others' addresses in its status, and one elsewhere."""
    found = Store()
    for number, (namespace, name) in enumerate((("shop", "main"), ("stock", "main"))):
        metadata = {"name": name, "namespace": namespace, "uid": namespace, "resourceVersion": "1"}
        found.show(
            {
                "apiVersion": "failback.dev/v1alpha1",
                "kind": "NameServer",
                "metadata": metadata,
                "spec": {"replicas": 1 + number},
                "status": {"addresses": [OUTSIDE, OTHERS]},
            }
        )
    return found


@pytest.mark.parametrize(
    ("listed", "read_only"),
    [
        ((), {OTHERS, OUTSIDE}),
        ((OUTSIDE,), {OTHERS}),
        (("*",), set()),
        (None, set()),
    ],
)
async def test_a_status_makes_no_name_server_ours(
    listed: tuple[str, ...] | None, read_only: set[str]
) -> None:
    nobody: Any = None
    permits = None if listed is None else Permits(name_servers=listed)
    context = replace(kubernetes_context("shop", "0.2.0"), permits=permits)
    cluster = BrokerCluster.model_validate(
        {
            "kind": "BrokerCluster",
            "metadata": {"name": "orders", "namespace": "shop"},
            "spec": {"nameServerAddresses": [OWN, OTHERS, OUTSIDE]},
        }
    )
    observer = Observer(store(), nobody, nobody)
    assert observer._read_only(cluster, [OWN, OTHERS, OUTSIDE], context) == read_only
