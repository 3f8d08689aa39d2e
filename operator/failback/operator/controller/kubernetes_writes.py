"""The actions of a plan that the API server carries out: objects, pods, claims, leases."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from failback.kube import leases
from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.controller.outcome import ManifestTooLarge, NameTaken, Outcome
from failback.operator.kubernetes.conflicts import Conflicts
from failback.operator.kubernetes.store import Store, where_of
from failback.operator.metrics import Metrics
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.plan.encoding import names, operation_on
from failback.operator.planning.plan.types import (
    Action,
    Apply,
    Delete,
    DeletePod,
    Event,
    Evict,
    LabelPod,
    MarkClaim,
    PatchMetadata,
    ReleaseLease,
    ResizeClaim,
    SaveSnapshot,
    TakeLease,
)
from failback.operator.planning.state.decode import is_owned

EVICTION_RETRY_SECONDS: Final = 5.0
MAX_MANIFEST_BYTES: Final = 1 << 20
"""What etcd takes at most is 1.5 MiB, with what the API server adds."""


class KubernetesWrites:
    """Writes to the API server; what it answers goes into the store."""

    def __init__(self, kube: Kube, store: Store, conflicts: Conflicts, metrics: Metrics) -> None:
        self._kube = kube
        self._store = store
        self._conflicts = conflicts
        self._metrics = metrics

    async def carry_out(
        self, resource: Object, action: Action, known: Mapping[Key, Object], outcome: Outcome
    ) -> None:
        """Carry out one action of ``resource``.

        Args:
            known: Children that were observed: others are looked for before they are made.

        Raises:
            TypeError: It is none of the API server's.
        """
        namespace = resource["metadata"]["namespace"]
        match action:
            case Apply():
                await self._apply(resource, action.manifest, known, outcome)
            case Delete():
                kind, name = action.key
                await self._kube.delete(
                    kind, namespace, name, uid=action.uid, propagation=action.propagation
                )
            case Evict():
                await self._evict(resource, action, outcome)
            case DeletePod():
                await self._kube.delete(
                    "Pod",
                    namespace,
                    action.pod,
                    uid=action.uid,
                    grace_seconds=action.grace_seconds,
                )
                self._count_restart(resource, action.pod, "Deleted")
            case LabelPod():
                body = {"metadata": {"uid": action.uid, "labels": dict(action.labels)}}
                await self._patch_pod(namespace, action.pod, body)
            case ResizeClaim():
                body = {
                    "metadata": {"uid": action.uid},
                    "spec": {"resources": {"requests": {"storage": action.size}}},
                }
                await self._kube.merge("PersistentVolumeClaim", namespace, action.claim, body)
            case MarkClaim():
                await self._mark_claim(namespace, action)
            case PatchMetadata():
                marks = dict.fromkeys(action.remove_annotations)
                body = {"metadata": {"annotations": marks}}
                name = resource["metadata"]["name"]
                await self._kube.merge(resource["kind"], namespace, name, body)
            case SaveSnapshot():
                await self._save_snapshot(resource, action)
            case TakeLease():
                await self._take_lease(resource, action)
            case ReleaseLease():
                await self._release_lease(namespace, action)
            case _:
                raise TypeError(f"no such action: {action!r}")

    # --- objects ------------------------------------------------------------------------------

    async def _apply(
        self, resource: Object, manifest: Object, known: Mapping[Key, Object], outcome: Outcome
    ) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        namespace = resource["metadata"]["namespace"]
        size = len(json.dumps(manifest, separators=(",", ":"), ensure_ascii=False).encode())
        if size > MAX_MANIFEST_BYTES:
            raise ManifestTooLarge((kind, name), size, MAX_MANIFEST_BYTES)
        if (kind, name) not in known and manifest["metadata"].get("ownerReferences"):
            have = await self._kube.get(kind, namespace, name)
            if have is not None and not is_owned(have, resource["metadata"]["uid"]):
                raise NameTaken((kind, name))
        try:
            done = await self._kube.apply(manifest)
        except ApiError as error:
            if not error.is_field_conflict:
                raise
            verdict = self._conflicts.judge(kind, namespace, name, error)
            self._metrics.field_conflict(verdict.manager)
            if verdict.tell:
                text = f"{verdict.manager} set {names(verdict.fields)} of {kind}/{name}"
                outcome.events.append(Event("FieldManagerConflict", text, warning=True))
            if verdict.wait:
                outcome.look_again_after = verdict.wait
                return
            done = await self._kube.apply(manifest, force=True)
        self._store.wrote({"kind": kind, **done})

    async def _evict(self, resource: Object, action: Evict, outcome: Outcome) -> None:
        try:
            await self._kube.evict(resource["metadata"]["namespace"], action.pod, action.uid)
        except ApiError as error:
            if error.code == 429:
                outcome.blocked_by = ("PDBAllows",)
                outcome.retry_after = EVICTION_RETRY_SECONDS
            raise
        self._count_restart(resource, action.pod, "Evicted")

    def _count_restart(self, resource: Object, pod: str, reason: str) -> None:
        operation = operation_on(resource.get("status", {}), pod) or {}
        self._metrics.pod_restart(*where_of(resource), str(operation.get("type") or reason))

    async def _patch_pod(self, namespace: str, pod: str, body: Object) -> None:
        try:
            self._store.wrote(await self._kube.merge("Pod", namespace, pod, body))
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or another pod of that name
                raise

    async def _mark_claim(self, namespace: str, action: MarkClaim) -> None:
        body = {
            "metadata": {
                "uid": action.uid,
                "labels": dict(action.labels),
                "annotations": dict(action.annotations),
            }
        }
        kind = "PersistentVolumeClaim"
        done = await self._kube.merge(kind, namespace, action.claim, body)
        self._store.wrote({**done, "kind": kind})

    async def _save_snapshot(self, resource: Object, action: SaveSnapshot) -> None:
        made = snapshot.manifest(action, *where_of(resource))
        self._store.wrote(await self._kube.apply(made, force=True))

    # --- leases -------------------------------------------------------------------------------

    async def _take_lease(self, resource: Object, action: TakeLease) -> None:
        namespace = resource["metadata"]["namespace"]
        have = await self._kube.lease(namespace, action.name)
        spec = leases.held_by(action.holder, action.seconds)
        if have is None:
            await self._kube.create(_lease(resource, action.name, spec))
            return
        old, holder = have.get("spec", {}), leases.holder_of(have)
        if holder and holder != action.holder and not leases.has_run_out(old, time.time()):
            raise ApiError("update", "leases", 409, "LeaseHeld", f"{action.name}: {holder}")
        await self._kube.replace({**have, "kind": "Lease", "spec": {**old, **spec}})

    async def _release_lease(self, namespace: str, action: ReleaseLease) -> None:
        have = await self._kube.get("Lease", namespace, action.name)
        if have is None or leases.holder_of(have) != action.holder:
            return
        await self._kube.delete("Lease", namespace, action.name, uid=have["metadata"]["uid"])


def _lease(resource: Object, name: str, spec: Mapping[str, Any]) -> Object:
    metadata = resource["metadata"]
    cluster = resource.get("spec", {}).get("clusterRef", {}).get("name") or metadata["name"]
    return leases.lease(
        name,
        metadata["namespace"],
        spec,
        labels={
            "app.kubernetes.io/name": "failback",
            "app.kubernetes.io/managed-by": "failback-operator",
            "failback.dev/cluster": cluster,
        },
        ownerReferences=[
            {
                "apiVersion": resource["apiVersion"],
                "kind": resource["kind"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            }
        ],
    )
