"""A pod that the API server refuses: what refuses it is in the status, and goes when it does."""

from __future__ import annotations

from typing import Any

from tests.support.kube_lab.api import Api, Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.operator_process import condition_of, is_true, operator
from tests.support.operator.resources import resource

QUICK = {"FAILBACK_POLL_SCALE": "0.2", "FAILBACK_RESYNC_SECONDS": "5"}
ROOM = {"requests.cpu": "4", "requests.memory": "8Gi", "limits.memory": "8Gi", "limits.cpu": "9"}
"""A quota on all that a container can be asked to say."""
LIMITED = {
    "requests": {"cpu": "100m", "memory": "256Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}


def quota(api: Api, **hard: str) -> None:
    """Make a quota, and say what a controller that counts would say of it."""
    head = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "room"}}
    api.apply({**head, "spec": {"hard": hard}})
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    api.patch("ResourceQuota", "room", {"status": status}, subresource="status")


def refused(words: str) -> Any:
    def says(item: Object) -> bool:
        said = condition_of(item, "Ready") or {}
        return said.get("reason") == "PodRefused" and words in str(said.get("message"))

    return says


def test_what_refuses_a_pod_is_said_and_pods_come_once_it_is_mended(namespace: Namespace) -> None:
    api = namespace.api
    namespace.pretend_pods()
    quota(api, **{**ROOM, "requests.cpu": "50m"})
    with operator(namespace, FAILBACK_ALLOWED_ACCOUNTS="gone", **QUICK):
        api.create(resource("NameServer", "main", replicas=2, resources=LIMITED))
        servers = {"nameServerRef": {"name": "main"}}
        api.create(resource("BrokerCluster", "orders", **servers, resources=LIMITED))
        for kind, name, pod in (
            ("NameServer", "main", "main-ns-0"),
            ("BrokerCluster", "orders", "orders-0-0-0"),
        ):
            found = api.wait(kind, name, refused(f"{pod}: exceeded quota: room"), seconds=60)
            message = str(condition_of(found, "Ready")["message"])
            assert "requested: requests.cpu=100m" in message
            assert "failed error" not in message
        quota(api, **ROOM)
        api.wait("NameServer", "main", lambda item: not refused("")(item), seconds=60)
        for pod in ("main-ns-0", "main-ns-1", "orders-0-0-0", "orders-0-1-0"):
            api.wait("Pod", pod, is_true("Ready"), seconds=60)

        account = {"podTemplate": {"serviceAccountName": "gone"}}
        api.create(resource("NameServer", "other", resources=LIMITED, **account))
        api.wait("NameServer", "other", refused('serviceaccount "gone" not found'), seconds=60)
        bound = {"limits": [{"type": "Container", "max": {"memory": "600Mi"}}]}
        head = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bound"}}
        api.apply({**head, "spec": bound})
        apache = {"type": "Apache", "version": "4.9.7"}
        wanted = {**LIMITED, "limits": {"cpu": "1", "memory": "1Gi"}}
        api.create(resource("NameServer", "large", engine=apache, resources=wanted))
        words = "maximum memory usage per Container is 600Mi, but limit is 1Gi"
        api.wait("NameServer", "large", refused(words), seconds=60)
