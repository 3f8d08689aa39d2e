"""The folders behind a pod's volumes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.node.client import Client
from tests.support.kube_lab.node.plan import field_value

_TOKEN_SECONDS = 3600


class NotYet(Exception):
    """A volume can't be set up now; the pod waits and tries again."""


class Place(Protocol):
    """What a volume may need to know about its pod."""

    pod: Object
    address: str
    node_address: str


class Volumes:
    """Makes the folders of one pod's volumes; ConfigMaps are read again when asked to."""

    def __init__(self, client: Client, folder: Path, place: Place) -> None:
        self._client = client
        self._folder = folder
        self._place = place
        self._paths: dict[str, Path] = {}

    async def set_up(self) -> None:
        """Make all of them.

        Raises:
            NotYet: A claim is not bound, or a ConfigMap is not there.
        """
        for volume in self._place.pod["spec"].get("volumes", ()):
            self._paths[volume["name"]] = await self._make(volume)

    async def refresh(self) -> None:
        """Write ConfigMaps and Secrets again, as a kubelet does from time to time."""
        for volume in self._place.pod["spec"].get("volumes", ()):
            if not {"configMap", "secret", "projected"}.isdisjoint(volume):
                await self._make(volume)

    def mounts(self, container: Object) -> list[dict[str, Any]]:
        """Return what the launcher binds for a container, outer paths first."""
        found = []
        for mount in container.get("volumeMounts", ()):
            source = self._paths[mount["name"]]
            if mount.get("subPath"):
                source = source / str(mount["subPath"])
                if not source.exists():
                    source.mkdir(parents=True)
            found.append(
                {
                    "source": str(source),
                    "target": mount["mountPath"],
                    "read_only": bool(mount.get("readOnly", False)),
                }
            )
        return sorted(found, key=lambda item: (item["target"].count("/"), item["target"]))

    # --- kinds of volumes ------------------------------------------------------------------------

    async def _make(self, volume: Object) -> Path:
        path = self._folder / str(volume["name"])
        if "persistentVolumeClaim" in volume:
            return await self._claim(volume["persistentVolumeClaim"]["claimName"])
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        path.mkdir(parents=True, exist_ok=True)
        if "projected" in volume:
            for source in volume["projected"]["sources"]:
                _write(path, await self._projection(source))
        elif not {"configMap", "secret", "downwardAPI"}.isdisjoint(volume):
            _write(path, await self._projection(volume))
        elif "emptyDir" not in volume:
            kinds = sorted(set(volume) - {"name"})
            raise NotYet(f"volume {volume['name']}: {', '.join(kinds)} is not supported here")
        return path

    async def _claim(self, name: str) -> Path:
        claim = await self._get(f"persistentvolumeclaims/{name}")
        if claim.get("status", {}).get("phase") != "Bound":
            raise NotYet(f'unbound immediate PersistentVolumeClaim "{name}"')
        volume = claim["spec"]["volumeName"]
        found = await self._client.request("GET", f"/api/v1/persistentvolumes/{volume}")
        return Path(found["spec"]["hostPath"]["path"])

    async def _projection(self, source: Object) -> dict[str, bytes]:
        """Return the files of one source by their relative paths."""
        if "configMap" in source:
            reference = source["configMap"]
            content = await self._get_optional(f"configmaps/{reference['name']}", reference)
            data = {key: text.encode() for key, text in content.get("data", {}).items()}
            data |= _decoded(content.get("binaryData", {}))
            return _chosen(data, reference)
        if "secret" in source:
            reference = source["secret"]
            name = reference.get("secretName") or reference["name"]
            content = await self._get_optional(f"secrets/{name}", reference)
            return _chosen(_decoded(content.get("data", {})), reference)
        if "downwardAPI" in source:
            return {
                item["path"]: self._field(item["fieldRef"]["fieldPath"]).encode()
                for item in source["downwardAPI"]["items"]
            }
        return await self._token(source["serviceAccountToken"])

    async def _token(self, wanted: Object) -> dict[str, bytes]:
        """Ask for a token that is bound to the pod, as a kubelet does."""
        pod = self._place.pod
        account = pod["spec"].get("serviceAccountName", "default")
        body: Object = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "expirationSeconds": wanted.get("expirationSeconds", _TOKEN_SECONDS),
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod["metadata"]["name"],
                    "uid": pod["metadata"]["uid"],
                },
            },
        }
        if wanted.get("audience"):
            body["spec"]["audiences"] = [wanted["audience"]]
        path = f"{self._namespaced}/serviceaccounts/{account}/token"
        answer = await self._client.request("POST", path, body)
        return {wanted["path"]: answer["status"]["token"].encode()}

    def _field(self, path: str) -> str:
        place = self._place
        return field_value(place.pod, path, place.address, place.node_address)

    @property
    def _namespaced(self) -> str:
        return f"/api/v1/namespaces/{self._place.pod['metadata']['namespace']}"

    async def _get(self, what: str) -> Object:
        return dict(await self._client.request("GET", f"{self._namespaced}/{what}"))

    async def _get_optional(self, what: str, reference: Object) -> Object:
        try:
            return await self._get(what)
        except ApiError as error:
            if reference.get("optional") and error.code == HTTPStatus.NOT_FOUND:
                return {}
            raise


def _decoded(data: Mapping[str, str]) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in data.items()}


def _chosen(data: dict[str, bytes], reference: Object) -> dict[str, bytes]:
    """Return the keys that a reference asks for, under the paths it wants them at."""
    if "items" not in reference:
        return data
    return {item["path"]: data[item["key"]] for item in reference["items"]}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        target = folder / name
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.new")
        temporary.write_bytes(content)
        temporary.replace(target)
