"""What the watches hold: custom resources and children, as the newest events showed them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

Object = dict[str, Any]
OwnerKey = tuple[str, str, str]
"""Namespace, label (``failback.dev/cluster`` ...) and its value."""
Index = Mapping[Any, Iterable[Any]]

OWNER_LABELS: Final[Mapping[str, str]] = {
    "failback.dev/cluster": "BrokerCluster",
    "failback.dev/nameserver": "NameServer",
}
_OWNER_BY_COMPONENT: Final[Mapping[str, str]] = {
    "chaos": "ChaosExperiment",
    "report": "ReconsumptionReport",
}
_TRUST_SECONDS: Final = 3.0
"""How long our own write is believed although the watch does not show it (deleted meanwhile)."""


class Store:
    """Reads the two indices that kopf keeps."""

    def __init__(self) -> None:
        self._children: Index = {}
        self._resources: Index = {}
        self._written: dict[tuple[str, str, str], tuple[Object, float]] = {}

    def use(self, children: Index, resources: Index) -> None:
        """Take the indices; they stay live."""
        self._children = children
        self._resources = resources

    def wrote(self, item: Object) -> None:
        """Remember what a write returned until the watch shows it: a pass reads its writes."""
        metadata = item["metadata"]
        key = (item["kind"], metadata["namespace"], metadata["name"])
        self._written[key] = (plain(item), time.monotonic())

    def _newest(self, item: Object | None, key: tuple[str, str, str]) -> Object | None:
        """Return the object as the watch or as our last write showed it, whichever is newer."""
        written = self._written.get(key)
        if written is None:
            return item
        ours, at = written
        if time.monotonic() - at > _TRUST_SECONDS or (
            item is not None and _version(item) >= _version(ours)
        ):
            del self._written[key]
            return item
        return ours

    def children(self, namespace: str, kind: str, name: str) -> list[Object]:
        """Return the objects that are labelled with a custom resource, in any order."""
        found = {
            (item["kind"], namespace, item["metadata"]["name"]): item
            for item in self._children.get((namespace, kind, name), ())
        }
        for key, (item, _) in list(self._written.items()):
            if key in found or (namespace, kind, name) in owners_of(item):
                newest = self._newest(found.get(key), key)
                if newest is not None:
                    found[key] = newest
        return list(found.values())

    def resource(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return a custom resource, or ``None``."""
        for found in self._resources.get((kind, namespace), ()):
            if found["metadata"]["name"] == name:
                return self._newest(found, (kind, namespace, name))
        return None

    def resources(self, kind: str, namespace: str) -> list[Object]:
        """Return all custom resources of a kind in a namespace, by name."""
        found = self._resources.get((kind, namespace), ())
        return sorted(found, key=lambda item: str(item["metadata"]["name"]))

    def of_cluster(self, kind: str, namespace: str, cluster: str) -> list[Object]:
        """Return the custom resources whose ``clusterRef`` names a cluster."""
        return [
            item
            for item in self.resources(kind, namespace)
            if item.get("spec", {}).get("clusterRef", {}).get("name") == cluster
        ]


def owners_of(item: Mapping[str, Any]) -> list[OwnerKey]:
    """Return the custom resources that a child is labelled with."""
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    found = [
        (metadata["namespace"], kind, labels[label])
        for label, kind in OWNER_LABELS.items()
        if label in labels
    ]
    kind_of_job = _OWNER_BY_COMPONENT.get(labels.get("app.kubernetes.io/component", ""))
    if kind_of_job is not None and "app.kubernetes.io/instance" in labels:
        found.append((metadata["namespace"], kind_of_job, labels["app.kubernetes.io/instance"]))
    return found


def _version(item: Mapping[str, Any]) -> int:
    text = str(item["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isdigit() else 0


def plain(body: Mapping[str, Any]) -> Object:
    """Return an object without what nobody reads."""
    found: Object = {key: value for key, value in body.items() if key != "managedFields"}
    found["metadata"] = {
        key: value for key, value in body["metadata"].items() if key != "managedFields"
    }
    return found
