"""The kinds that programs of failback ask for, and their paths at the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Object = dict[str, Any]
"""One Kubernetes object, as JSON data."""
GROUP: Final = "failback.dev"
VERSION: Final = "v1alpha1"
RESOURCES: Final[Mapping[str, tuple[str, str, str]]] = {
    "Service": ("", "v1", "services"),
    "ConfigMap": ("", "v1", "configmaps"),
    "Pod": ("", "v1", "pods"),
    "PersistentVolumeClaim": ("", "v1", "persistentvolumeclaims"),
    "Event": ("", "v1", "events"),
    "Namespace": ("", "v1", "namespaces"),
    "Node": ("", "v1", "nodes"),
    "StatefulSet": ("apps", "v1", "statefulsets"),
    "Deployment": ("apps", "v1", "deployments"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "Lease": ("coordination.k8s.io", "v1", "leases"),
    "Job": ("batch", "v1", "jobs"),
    "PodMonitor": ("monitoring.coreos.com", "v1", "podmonitors"),
    "NetworkChaos": ("chaos-mesh.org", "v1alpha1", "networkchaos"),
    "SparkApplication": ("sparkoperator.k8s.io", "v1beta2", "sparkapplications"),
    "NameServer": (GROUP, VERSION, "nameservers"),
    "BrokerCluster": (GROUP, VERSION, "brokerclusters"),
    "Topic": (GROUP, VERSION, "topics"),
    "SubscriptionGroup": (GROUP, VERSION, "subscriptiongroups"),
    "RoleSwitch": (GROUP, VERSION, "roleswitches"),
    "OffsetSnapshot": (GROUP, VERSION, "offsetsnapshots"),
    "ChaosExperiment": (GROUP, VERSION, "chaosexperiments"),
    "ReconsumptionReport": (GROUP, VERSION, "reconsumptionreports"),
}
"""Kind → API group (empty = core), version and plural."""
SHORT_NAMES: Final[Mapping[str, str]] = {
    "BrokerCluster": "fbc",
    "NameServer": "fns",
    "Topic": "fbt",
    "SubscriptionGroup": "fbg",
    "RoleSwitch": "fbs",
    "OffsetSnapshot": "fbo",
    "ChaosExperiment": "fbx",
    "ReconsumptionReport": "fbr",
}
"""Our own kinds → what people type for one, as for kubectl."""


def prefix(kind: str) -> str:
    """Return the path of a kind's API group."""
    group, version, _ = RESOURCES[kind]
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def path(kind: str, namespace: str, name: str = "", sub: str = "") -> str:
    """Return the path of a kind, an object or its subresource; no namespace = the cluster's."""
    where = f"/namespaces/{namespace}" if namespace else ""
    parts = (RESOURCES[kind][2], name, sub)
    return prefix(kind) + where + "".join(f"/{part}" for part in parts if part)
