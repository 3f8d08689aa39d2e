"""What the watches show: custom resources and children, as the newest events had them.

Objects are kept as they came, without what no reader needs; they are never changed. An object of a
version that is held already replaces nothing, so what is derived from it stays valid.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from failback.common.numbers import whole_or_0
from failback.kube import shallow_json
from failback.kube.resources import GROUP
from failback.operator.planning.plan.memory import Shared

Object = dict[str, Any]
OwnerKey = tuple[str, str, str]
"""Namespace, kind of the custom resource and its name."""
ObjectKey = tuple[str, str, str]
"""Kind, namespace and name."""

OWNER_LABELS: Final[Mapping[str, str]] = {
    "failback.dev/cluster": "BrokerCluster",
    "failback.dev/nameserver": "NameServer",
}
_OWNER_BY_COMPONENT: Final[Mapping[str, str]] = {
    "chaos": "ChaosExperiment",
    "report": "ReconsumptionReport",
}
_OWNERS_OF_PODS: Final = ("StatefulSet", "Job")
_POD_SPEC: Final = ("nodeName",)
_CONTAINER: Final = ("name", "image", "args", "livenessProbe")
_TRUST_SECONDS: Final = 3.0
"""How long our own write is believed although the watch does not show it (deleted meanwhile)."""
_GONE_SECONDS: Final = 600.0
"""How late an event may still tell of an object that a list did not have any more."""


class Store:
    """All objects that the operator knows of, by uid, by name and by owner."""

    def __init__(self, shared: Shared | None = None) -> None:
        """Make it; ``shared`` is where equal parts of all objects are kept once."""
        self._shared = Shared() if shared is None else shared
        self._shown: defaultdict[str, dict[str, Object]] = defaultdict(dict)
        """Kind → uid → object."""
        self._named: defaultdict[ObjectKey, dict[str, Object]] = defaultdict(dict)
        self._owned: defaultdict[OwnerKey, dict[str, Object]] = defaultdict(dict)
        self._on_cluster: defaultdict[ObjectKey, dict[str, Object]] = defaultdict(dict)
        """Kind, namespace and cluster → the custom resources whose ``clusterRef`` names it."""
        self._brokers: defaultdict[str, dict[str, Object]] = defaultdict(dict)
        """Prefix of broker names → the BrokerClusters whose brokers are named so."""
        self._written: dict[ObjectKey, tuple[Object, float]] = {}
        self._written_of: defaultdict[OwnerKey, set[ObjectKey]] = defaultdict(set)
        self._gone: dict[str, float] = {}
        self._children: dict[OwnerKey, list[Object]] = {}
        """What :meth:`children` returned, until one of them changes."""

    # --- what the watches tell ----------------------------------------------------------------

    def show(self, item: Object) -> None:
        """Take in an object, unless that version or a newer one of it is known."""
        uid = item["metadata"]["uid"]
        if uid in self._gone:
            return
        have = self._shown[item["kind"]].get(uid)
        if have is not None and version_of(item) <= version_of(have):
            return
        # Whatever can fail comes before the version that is held is dropped.
        kept = self._kept(item)
        places, owners = self._places(kept), owners_of(kept)
        if have is not None:
            self._drop(have)
        for table, key in places:
            table[key][uid] = kept
        for owner in owners:
            self._children.pop(owner, None)

    def _places(self, item: Object) -> list[tuple[defaultdict[Any, dict[str, Object]], object]]:
        """Return every table that has an object, and the key that it has there."""
        found: list[tuple[defaultdict[Any, dict[str, Object]], object]] = [
            (self._shown, item["kind"]),
            (self._named, _key(item)),
            *((self._owned, owner) for owner in owners_of(item)),
        ]
        cluster = _cluster_of(item)
        if cluster is not None:
            found.append((self._on_cluster, cluster))
        if item["kind"] == "BrokerCluster":
            found.append((self._brokers, _broker_names(item)))
        return found

    def _kept(self, item: Object) -> Object:
        try:
            return self._shared.take(plain(item))  # type: ignore[no-any-return]
        except RecursionError:  # deeper than any schema of ours wants it
            text = json.dumps(plain(item)).encode()
            return self._shared.take(shallow_json.loads(shallow_json.cut(text)))  # type: ignore[no-any-return]

    def deleted(self, uid: str) -> None:
        """Forget an object whose deletion the watch showed."""
        self._gone.pop(uid, None)
        for items in self._shown.values():
            item = items.get(uid)
            if item is not None:
                self._drop(item)
                return

    def _drop(self, item: Object) -> None:
        for table, key in self._places(item):
            _discard(table, key, item["metadata"]["uid"])
        for owner in owners_of(item):
            self._children.pop(owner, None)

    def wrote(self, item: Object) -> None:
        """Remember what a write returned until the watch shows it: a pass reads its writes."""
        kept, key = self._kept(item), _key(item)
        self._written[key] = (kept, time.monotonic())
        for owner in owners_of(kept):
            self._written_of[owner].add(key)
            self._children.pop(owner, None)

    # --- what the watches missed --------------------------------------------------------------

    def versions(self, kind: str, namespace: str = "") -> dict[str, int]:
        """Return uid → resourceVersion of the objects of a kind, as passes read them.

        -1 is the version of an object that is shown, and that the answer to a pass lacks.

        Args:
            namespace: Only there; empty = everywhere.
        """
        return {
            uid: version_of(item) if self._is_read(item) else -1
            for uid, item in self._shown[kind].items()
            if namespace in ("", item["metadata"]["namespace"])
        }

    def _is_read(self, item: Object) -> bool:
        """Tell whether every table, and every kept answer, has this version or a newer one."""
        uid, key, version = item["metadata"]["uid"], _key(item), version_of(item)
        answers = (self._children.get(owner) for owner in owners_of(item))
        return all(table.get(at, {}).get(uid) is item for table, at in self._places(item)) and all(
            any(_key(each) == key and version_of(each) >= version for each in answer)
            for answer in answers
            if answer is not None
        )

    def stale(self, kind: str, namespace: str, listed: Iterable[Object]) -> list[Object]:
        """Return what is listed at a newer version than passes read, or is not read at all."""
        now = self.versions(kind, namespace)
        return [item for item in listed if version_of(item) > now.get(item["metadata"]["uid"], -1)]

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
        now = time.monotonic()
        uids = {item["metadata"]["uid"] for item in listed}
        ghosts = (known.keys() & self._shown[kind].keys()) - uids
        ghost_items = [self._shown[kind][uid] for uid in sorted(ghosts)]
        for item in ghost_items:
            self._drop(item)
        self._gone = {uid: at for uid, at in self._gone.items() if now - at < _GONE_SECONDS}
        self._gone.update(dict.fromkeys(ghosts, now))
        newer = list(missed)
        for item in newer:
            have = self._shown[kind].get(item["metadata"]["uid"])
            if have is not None and not self._is_read(have):
                self._drop(have)
            self.show(item)
        return [*newer, *ghost_items]

    # --- what there is ------------------------------------------------------------------------

    def _newest(self, item: Object | None, key: ObjectKey) -> Object | None:
        """Return the object as the watch or as our last write showed it, whichever is newer."""
        written = self._written.get(key)
        if written is None:
            return item
        ours, at = written
        if time.monotonic() - at > _TRUST_SECONDS or (
            item is not None and version_of(item) >= version_of(ours)
        ):
            del self._written[key]
            for owner in owners_of(ours):
                self._written_of[owner].discard(key)
                if not self._written_of[owner]:
                    del self._written_of[owner]
            return item
        return ours

    def children(self, namespace: str, kind: str, name: str) -> list[Object]:
        """Return the objects that are labelled with a custom resource, in any order.

        The very same list as before, as long as nothing changed: not to be changed by others.
        """
        owner = (namespace, kind, name)
        kept = self._children.get(owner)
        if kept is not None:
            return kept
        found = _by_key(self._owned.get(owner, {}).values())
        pending = self._written_of.get(owner, set()) | (found.keys() & self._written.keys())
        for key in pending:
            newest = self._newest(found.get(key) or self._one(key), key)
            if newest is None or owner not in owners_of(newest):
                found.pop(key, None)
            else:
                found[key] = newest
        children = list(found.values())
        if not any(key in self._written for key in pending):
            self._children[owner] = children
        return children

    def _one(self, key: ObjectKey) -> Object | None:
        """Return the newest object of a name that the watch shows."""
        items = self._named.get(key)
        return max(items.values(), key=version_of) if items else None

    def resource(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return a custom resource, or ``None``."""
        key = (kind, namespace, name)
        found = self._one(key)
        return None if found is None else self._newest(found, key)

    def resources(self, kind: str, namespace: str) -> list[Object]:
        """Return all custom resources of a kind in a namespace, by name."""
        items = self._shown[kind].values()
        found = _by_key(item for item in items if item["metadata"]["namespace"] == namespace)
        return [found[key] for key in sorted(found)]

    def of_cluster(self, kind: str, namespace: str, cluster: str) -> list[Object]:
        """Return the custom resources whose ``clusterRef`` names a cluster, by name."""
        found = _by_key(self._on_cluster.get((kind, namespace, cluster), {}).values())
        return [found[key] for key in sorted(found)]

    def of_broker_names(self, cluster: Object) -> list[Object]:
        """Return the other BrokerClusters, of any namespace, whose brokers have the same names."""
        same = self._brokers.get(_broker_names(cluster), {})
        return [same[uid] for uid in sorted(same) if uid != cluster["metadata"]["uid"]]


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


def version_of(item: Mapping[str, Any]) -> int:
    """Return the resourceVersion of an object; 0 when it has none."""
    return whole_or_0(str(item["metadata"].get("resourceVersion", "0")))


def plain(body: Mapping[str, Any]) -> Object:
    """Return an object without what no reader needs: managed fields, most of a pod's spec."""
    found: Object = dict(body)
    found["metadata"] = {
        key: value for key, value in body["metadata"].items() if key != "managedFields"
    }
    if _is_of_another_owner(found):
        return {key: found[key] for key in ("apiVersion", "kind", "metadata") if key in found}
    if found["kind"] == "Pod" and "spec" in found:
        found["spec"] = _read_of_pod(found["spec"])
    return found


def _is_of_another_owner(item: Mapping[str, Any]) -> bool:
    """Tell whether an object only bears our labels: then no pass reads what it holds."""
    owners = item["metadata"].get("ownerReferences") or ()
    if item["kind"] == "ConfigMap":
        return not any(str(each.get("apiVersion", "")).startswith(f"{GROUP}/") for each in owners)
    controllers = [each.get("kind") for each in owners if each.get("controller")]
    return item["kind"] == "Pod" and any(kind not in _OWNERS_OF_PODS for kind in controllers)


def _read_of_pod(spec: Mapping[str, Any]) -> Object:
    found = {key: spec[key] for key in _POD_SPEC if key in spec}
    found["containers"] = [
        {key: container[key] for key in _CONTAINER if key in container}
        for container in spec.get("containers") or ()
    ]
    return found


def _cluster_of(item: Mapping[str, Any]) -> ObjectKey | None:
    spec = item.get("spec")
    reference = spec.get("clusterRef") if isinstance(spec, Mapping) else None
    if not isinstance(reference, Mapping) or not reference.get("name"):
        return None
    return item["kind"], item["metadata"]["namespace"], reference["name"]


def _broker_names(cluster: Mapping[str, Any]) -> str:
    prefix = (cluster.get("spec") or {}).get("brokerNamePrefix")
    return str(prefix or cluster["metadata"]["name"])


def _by_key(items: Iterable[Object]) -> dict[ObjectKey, Object]:
    """Return objects by key; of several of one name the newest."""
    found: dict[ObjectKey, Object] = {}
    for item in items:
        key = _key(item)
        if key not in found or version_of(found[key]) < version_of(item):
            found[key] = item
    return found


def _key(item: Mapping[str, Any]) -> ObjectKey:
    return item["kind"], *where_of(item)


def where_of(item: Mapping[str, Any]) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _discard(table: dict[Any, dict[str, Object]], key: object, uid: str) -> None:
    items = table.get(key, {})
    items.pop(uid, None)
    if not items:
        table.pop(key, None)
