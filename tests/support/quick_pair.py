"""A pair of real brokers and their name server on Kubernetes, ten times as quick."""

from __future__ import annotations

from typing import Any, Final

from failback.client.admin import AdminClient
from failback.client.settings import ClientSettings
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator_process import is_true
from tests.support.polling import wait_until

SCALE: Final = 0.1
QUICK: Final = {
    "FAILBACK_POLL_SCALE": "0.2",
    "FAILBACK_RESYNC_SECONDS": "5",
    "FAILBACK_ADMIN_TIMEOUT_SECONDS": "10",
}
"""Variables of an operator that looks often, and is patient with brokers of a busy machine: of an
order whose answer it did not wait for, it posts no event."""
_CONDITIONS: Final = (
    "Ready",
    "ConfigApplied",
    "RolesConsistent",
    "ReplicationHealthy",
    "MetadataSynced",
)


def resource(kind: str, name: str, **spec: Any) -> Object:
    """Return a custom resource of ours."""
    metadata = {"name": name}
    return {"apiVersion": "failback.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


class QuickPair:
    """BrokerCluster ``orders`` of one pair and NameServer ``main`` in a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.api = namespace.api
        self.name_server = f"main-ns-0.main-ns.{namespace.name}.svc.cluster.local:9876"

    def create(self) -> None:
        scale = {"failbackTimeScale": str(SCALE)}
        self.api.create(resource("NameServer", "main", replicas=1, config=scale))
        self.api.create(
            resource(
                "BrokerCluster",
                "orders",
                nameServerRef={"name": "main"},
                pairs=1,
                slavesPerPair=1,
                config={**scale, "mappedFileSizeCommitLog": str(4 * 1024 * 1024)},
                updateStrategy={"minReadySeconds": 1},
            )
        )

    def wait_settled(self) -> Object:
        """Wait until nothing is left to do; return the cluster."""

        def is_settled(item: Object) -> bool:
            whole = all(is_true(kind)(item) for kind in _CONDITIONS)
            return whole and not item["status"].get("currentOperation")

        return self.api.wait("BrokerCluster", "orders", is_settled, seconds=240)

    def address(self, member: int) -> str:
        """Return the address of a member of the pair."""
        host = f"orders-0-{member}-0.orders-brokers.{self.namespace.name}"
        return f"{host}.svc.cluster.local:10911"

    def admin(self) -> AdminClient:
        return AdminClient([self.name_server])

    def settings(self) -> ClientSettings:
        """Return the settings of producers and consumers of the pair."""
        return ClientSettings(
            namesrv_addrs=(self.name_server,), client_ip="127.0.0.1", time_scale=SCALE
        )

    def events(self, reason: str, about: str = "") -> list[Object]:
        """Return the operator's events of a reason, of one object if one is named."""
        return [
            item
            for item in self.api.list("Event")
            if item["reason"] == reason and item["involvedObject"]["name"].startswith(about)
        ]

    def wait_event(self, reason: str, about: str = "") -> str:
        """Return the message of the first event of a reason."""
        wait_until(lambda: self.events(reason, about), f"event {reason}", 60)
        return str(self.events(reason, about)[0]["message"])
