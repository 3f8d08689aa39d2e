"""PersistentVolumes for the claims of our StorageClasses: folders under the lab's own.

standard   the default class: grows when its claim does, and goes with it
fixed      never grows: the API server refuses larger claims
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any, Final

from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.node.client import MERGE, Client

logger = logging.getLogger(__name__)

PROVISIONER: Final = "lab.failback.dev/folder"
CLASSES: Final = {"standard": True, "fixed": False}
"""StorageClass → whether its volumes can grow."""
_CONFLICT, _NOT_FOUND = 409, 404


class Claims:
    """Provides for every claim, in any namespace."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder

    async def create_classes(self) -> None:
        for name, grows in CLASSES.items():
            default = {"storageclass.kubernetes.io/is-default-class": "true"}
            manifest: Object = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name, "annotations": default if name == "standard" else {}},
                "provisioner": PROVISIONER,
                "reclaimPolicy": "Delete",
                "volumeBindingMode": "Immediate",
                "allowVolumeExpansion": grows,
            }
            try:
                await self._client.request(
                    "POST", "/apis/storage.k8s.io/v1/storageclasses", manifest
                )
            except ApiError as error:
                if error.code != _CONFLICT:
                    raise

    async def run(self) -> None:
        """Follow all claims, for ever."""
        known: dict[str, Object] = {}
        async for event, found in self._client.watch("/api/v1/persistentvolumeclaims"):
            try:
                if event == "SYNC":
                    listed = {claim["metadata"]["uid"]: claim for claim in found}
                    for uid in known.keys() - listed.keys():
                        await self._remove(known[uid])
                    known = listed
                    for claim in found:
                        await self._provide(claim)
                elif event == "DELETED":
                    known.pop(found["metadata"]["uid"], None)
                    await self._remove(found)
                else:
                    known[found["metadata"]["uid"]] = found
                    await self._provide(found)
            except ApiError as error:
                logger.warning("claims: %s", error)

    async def _provide(self, claim: Object) -> None:
        if claim["spec"].get("storageClassName") not in CLASSES:
            return
        wanted = claim["spec"]["resources"]["requests"]["storage"]
        status = claim.get("status", {})
        if status.get("phase") != "Bound":
            await self._create(claim, wanted)
        elif status.get("capacity", {}).get("storage") != wanted:
            await self._grow(claim, wanted)

    async def _create(self, claim: Object, size: str) -> None:
        metadata = claim["metadata"]
        folder = self._path(claim)
        folder.mkdir(parents=True, exist_ok=True)
        manifest: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": f"pvc-{metadata['uid']}",
                "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
            },
            "spec": {
                "capacity": {"storage": size},
                "accessModes": claim["spec"]["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": claim["spec"]["storageClassName"],
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata["namespace"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
                "hostPath": {"path": str(folder)},
            },
        }
        try:
            await self._client.request("POST", "/api/v1/persistentvolumes", manifest)
        except ApiError as error:
            if error.code != _CONFLICT:  # it is there and not bound yet
                raise

    async def _grow(self, claim: Object, size: str) -> None:
        """Do what a resizer does: first the volume, then the claim's status."""
        metadata = claim["metadata"]
        volume = f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}"
        larger: Any = {"spec": {"capacity": {"storage": size}}}
        await self._client.request("PATCH", volume, larger, content_type=MERGE)
        path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims"
        status = {"status": {"capacity": {"storage": size}, "conditions": []}}
        await self._client.request(
            "PATCH", f"{path}/{metadata['name']}/status", status, content_type=MERGE
        )

    async def _remove(self, claim: Object) -> None:
        """Remove volume and data of a claim that is gone."""
        if claim["spec"].get("storageClassName") not in CLASSES:
            return
        path = f"/api/v1/persistentvolumes/pvc-{claim['metadata']['uid']}"
        try:
            await self._client.request("DELETE", path)
        except ApiError as error:
            if error.code != _NOT_FOUND:
                raise
        await asyncio.to_thread(shutil.rmtree, self._path(claim), ignore_errors=True)

    def _path(self, claim: Object) -> Path:
        metadata = claim["metadata"]
        name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid'][:8]}"
        return self._folder / name
