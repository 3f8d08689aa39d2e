"""What the watches hold: custom resources and children, as the newest events showed them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

Object = dict[str, Any]
OwnerKey = tuple[str, str, str]
"""Namespace, label (``failback.dev/cluster`` ...) and its value."""
ObjectKey = tuple[str, str, str]
"""Kind, namespace and name."""
Index = Mapping[Any, Iterable[Any]]

OWNER_LABELS: Final[Mapping[str, str]] = {
    "failback.dev/cluster": "BrokerCluster",
    "failback.dev/nameserver": "NameServer",
}
_OWNER_BY_COMPONENT: Final[Mapping[str, str]] = {
    "chaos": "ChaosExperiment",
    "report": "ReconsumptionReport",
}
_NOTHING: Final[Object] = {"metadata": {}}
_TRUST_SECONDS: Final = 3.0
"""How long our own write is believed although the watch does not show it (deleted meanwhile)."""


class Store:
    """Reads the two indices that kopf keeps."""

    def __init__(self) -> None:
        self._children: Index = {}
        self._resources: Index = {}
        self._written: dict[ObjectKey, tuple[Object, float]] = {}
        self._gone: set[str] = set()
        self._missed: dict[ObjectKey, Object] = {}

    def use(self, children: Index, resources: Index) -> None:
        """Take the indices; they stay live."""
        self._children = children
        self._resources = resources

    def wrote(self, item: Object) -> None:
        """Remember what a write returned until the watch shows it: a pass reads its writes."""
        self._written[_key(item)] = (plain(item), time.monotonic())

    # --- what the watches missed --------------------------------------------------------------

    def versions(self, kind: str, namespace: str = "") -> dict[str, int]:
        """Return uid → resourceVersion of what the watch shows of a kind.

        Args:
            namespace: Only there; empty = everywhere.
        """
        return {
            item["metadata"]["uid"]: _version(item)
            for index in (self._children, self._resources)
            for items in index.values()
            for item in items
            if item["kind"] == kind and namespace in ("", item["metadata"]["namespace"])
        }

    def stale(self, kind: str, namespace: str, listed: Iterable[Object]) -> list[Object]:
        """Return what is listed at a newer version than the watch shows, or not shown at all."""
        now = self.versions(kind, namespace)
        return [item for item in listed if _version(item) > now.get(item["metadata"]["uid"], -1)]

    def correct(
        self,
        kind: str,
        namespace: str,
        known: Mapping[str, int],
        listed: Iterable[Object],
        missed: Iterable[Object],
    ) -> list[Object]:
        """Take in what the watch has wrong about a kind; return it.

        Args:
            known: :meth:`versions` from before the list was asked for: what of it is not listed
                was deleted.
            listed: All objects, their metadata at least.
            missed: Whole objects that are newer than the watch shows them.
        """
        now = self.versions(kind, namespace)
        uids = {item["metadata"]["uid"] for item in listed}
        ghosts = (known.keys() & now.keys()) - uids
        told = self._shown(ghosts - self._gone)
        newer = [plain(item) for item in missed]
        self._missed = {
            key: item
            for key, item in self._missed.items()
            if key[0] != kind or namespace not in ("", key[1])
        }
        self._missed.update((_key(item), item) for item in newer)
        self._gone = (self._gone & self._shown_uids()) | ghosts
        return [*newer, *told]

    def deleted(self, uid: str) -> None:
        """Forget an object whose deletion the watch showed."""
        self._gone.discard(uid)
        for key, item in list(self._missed.items()):
            if item["metadata"]["uid"] == uid:
                del self._missed[key]

    def _shown(self, uids: Collection[str]) -> list[Object]:
        found = {
            item["metadata"]["uid"]: item
            for index in (self._children, self._resources)
            for items in index.values()
            for item in items
            if item["metadata"]["uid"] in uids
        }
        return list(found.values())

    def _shown_uids(self) -> set[str]:
        return {
            item["metadata"]["uid"]
            for index in (self._children, self._resources)
            for items in index.values()
            for item in items
        }

    def _corrected(self, items: Iterable[Object], kind: str, namespace: str) -> dict[Any, Object]:
        """Return objects by key: without those that are gone, at the newest version known.

        Args:
            kind: Of the missed objects to add; empty = those that ``items`` have an older one of.
        """
        found = {_key(item): item for item in items if item["metadata"]["uid"] not in self._gone}
        for key, item in self._missed.items():
            wanted = key in found or key[:2] == (kind, namespace)
            if wanted and _version(item) > _version(found.get(key, _NOTHING)):
                found[key] = item
        return found

    # --- what there is ------------------------------------------------------------------------

    def _newest(self, item: Object | None, key: ObjectKey) -> Object | None:
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
        owner = (namespace, kind, name)
        found = self._corrected(self._children.get(owner, ()), "", "")
        for key, item in self._missed.items():
            if owner in owners_of(item):
                found.setdefault(key, item)
        for key, (item, _) in list(self._written.items()):
            if key in found or owner in owners_of(item):
                newest = self._newest(found.get(key), key)
                if newest is not None:
                    found[key] = newest
        return list(found.values())

    def resource(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return a custom resource, or ``None``."""
        key = (kind, namespace, name)
        shown = [
            item
            for item in self._resources.get((kind, namespace), ())
            if item["metadata"]["name"] == name
        ]
        found = self._corrected(shown, "", "").get(key) or self._missed.get(key)
        return None if found is None else self._newest(found, key)

    def resources(self, kind: str, namespace: str) -> list[Object]:
        """Return all custom resources of a kind in a namespace, by name."""
        found = self._corrected(self._resources.get((kind, namespace), ()), kind, namespace)
        return sorted(found.values(), key=lambda item: str(item["metadata"]["name"]))

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


def _key(item: Mapping[str, Any]) -> ObjectKey:
    return item["kind"], item["metadata"]["namespace"], item["metadata"]["name"]


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
