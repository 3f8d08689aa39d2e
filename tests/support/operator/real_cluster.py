"""A cluster of real brokers under a real operator, asked and changed from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from failback.client.admin.admin import AdminClient
from failback.protocol.errors import FailbackError
from tests.support.common.polling import SCALE
from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.operator_process import condition_of, is_true
from tests.support.operator.resources import (
    marks,
    member_at,
    name_server_at,
    properties_of,
    resource,
)

TOPIC, GROUP = "ORDER_PAID", "billing"
CONFIG = {"failbackTimeScale": "0.1", "mappedFileSizeCommitLog": str(4 * 1024 * 1024)}
_SETTLED = ("Ready", "ConfigApplied", "RolesConsistent", "ReplicationHealthy", "MetadataSynced")


class LivedCluster:
    """``orders`` of a namespace, its name server ``main``, topic ORDER_PAID and group billing."""

    def __init__(self, namespace: Namespace, **spec: Any) -> None:
        self.namespace = namespace
        self.api = namespace.api
        owner = {"clusterRef": {"name": "orders"}}
        scale = spec.pop("nameServerConfig", {"failbackTimeScale": "0.1"})
        servers = {"replicas": spec.pop("nameServers", 1), "config": scale}
        servers |= spec.pop("nameServerSpec", {})
        self._create("NameServer", "main", servers)
        self._create(
            "BrokerCluster",
            "orders",
            {"nameServerRef": {"name": "main"}, "config": CONFIG, **spec},
        )
        self._create("Topic", "order-paid", {**owner, "topicName": TOPIC})
        self._create("SubscriptionGroup", GROUP, {**owner, "groupName": GROUP})

    def _create(self, kind: str, name: str, spec: Object) -> None:
        self.api.create(resource(kind, name, **spec))

    # --- what it is ---------------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        return name_server_at(self.namespace.name)

    def address(self, member: str) -> str:
        """Return the address of a member such as ``orders-0-1``."""
        return member_at(self.namespace.name, member)

    def read(self) -> Object:
        return self.api.get("BrokerCluster", "orders")

    def members(self) -> list[str]:
        """Return the names of all members, by pair and ordinal."""
        found = self.api.list("StatefulSet", labels="failback.dev/cluster=orders")
        return sorted(str(item["metadata"]["name"]) for item in found)

    def lives(self) -> dict[str, tuple[str, int, str]]:
        """Return, by member, its pod's uid and restarts, and its template's newest revision."""
        found = {}
        for name in self.members():
            pod = self.api.get("Pod", f"{name}-0")
            restarts = sum(item["restartCount"] for item in pod["status"]["containerStatuses"])
            revision = self.api.get("StatefulSet", name)["status"]["updateRevision"]
            found[name] = (str(pod["metadata"]["uid"]), restarts, str(revision))
        return found

    def file(self, member: str) -> dict[str, str]:
        """Return the properties of a member's ConfigMap."""
        return properties_of(self.api.get("ConfigMap", member)["data"]["broker.conf"])

    async def answers(self, key: str) -> dict[str, str]:
        """Return what each member's broker says of a key (GET_BROKER_CONFIG), once it serves."""
        async with AdminClient([self.name_server]) as admin:
            return {name: await self._answer(admin, name, key) for name in self.members()}

    async def _answer(self, admin: AdminClient, member: str, key: str) -> str:
        async with asyncio.timeout(60 * SCALE):
            while True:
                try:
                    return (await admin.broker_config(self.address(member))).get(key, "")
                except (FailbackError, OSError):
                    await asyncio.sleep(0.2)

    # --- what is done to it -------------------------------------------------------------------

    def change(self, **spec: Any) -> None:
        self.api.patch("BrokerCluster", "orders", {"spec": spec})

    def annotate(self, **values: str | None) -> None:
        """Set or remove annotations of our prefix; ``_`` in a name is ``-``."""
        self.api.patch("BrokerCluster", "orders", marks(**values))

    def evict(self, pod: str) -> int:
        """Evict a pod as ``kubectl drain`` does; return the answer's code."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace.name},
        }
        try:
            self.api.request("POST", self.api.path("Pod", pod, subresource="eviction"), body)
        except ApiError as error:
            return error.code
        return 201

    # --- waits --------------------------------------------------------------------------------

    def is_settled(self, item: Object) -> bool:
        """Tell whether all is as the newest spec wants it, and nothing is under way."""
        status = item.get("status", {})
        return (
            status.get("observedGeneration") == item["metadata"]["generation"]
            and all(is_true(kind)(item) for kind in _SETTLED)
            and condition_of(item, "Reconciling").get("status") == "False"
            and not status.get("currentOperation")
        )

    def wait_settled(self, seconds: float = 300) -> Object:
        return self.api.wait("BrokerCluster", "orders", self.is_settled, seconds=seconds)

    def wait_for(self, kind: str, reason: str, seconds: float = 120) -> Object:
        """Wait until a condition of the cluster has a reason; return that condition."""

        def holds(item: Object) -> bool:
            return condition_of(item, kind).get("reason") == reason

        found = self.api.wait("BrokerCluster", "orders", holds, seconds=seconds)
        return condition_of(found, kind)

    def events(self, reason: str) -> list[Object]:
        return [item for item in self.api.list("Event") if item["reason"] == reason]


@contextmanager
def unchanged_lives(cluster: LivedCluster) -> Iterator[None]:
    """Assert that no pod restarts, is replaced or is to be replaced while the block runs."""
    before = cluster.lives()
    yield
    assert cluster.lives() == before
