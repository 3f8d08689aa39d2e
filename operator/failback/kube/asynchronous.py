"""Requests to the API server from an event loop.

Every call has a time limit, is counted, and raises :class:`ApiError` with what the server said.
Children are applied by server-side apply; every delete, eviction and pod patch carries the uid.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypedDict

import aiohttp
import msgspec
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.exceptions import ApiException

from failback.kube.errors import ApiError, refusal
from failback.kube.resources import RESOURCES, Object, path, prefix

logger = logging.getLogger(__name__)

_PAGE: Final = 500
_CONNECTIONS: Final = 16
OPTIONAL_KINDS: Final = ("PodMonitor", "SparkApplication")
_JSON: Final = "application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_JSON_PATCH: Final = "application/json-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"


class _Name(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str


class _Listed(TypedDict):
    metadata: _Name


_Mark = TypedDict("_Mark", {"continue": str}, total=False)


class _Page(TypedDict, total=False):
    metadata: _Mark
    items: list[_Listed] | None


_METADATA_PAGE: Final = msgspec.json.Decoder(_Page)
"""Reads of a page of metadata only who it is about: most of it are managed fields."""


class RequestMeter(Protocol):
    """Who counts the requests."""

    def api_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count one request and its duration."""


class Kube:
    """The calls an operator makes. Objects are plain JSON data."""

    def __init__(
        self, client: Any, meter: RequestMeter, manager: str, *, timeout_seconds: float = 10.0
    ) -> None:
        self._client = client
        self._manager = manager
        self._meter = meter
        self._timeout_seconds = timeout_seconds

    # --- read ---------------------------------------------------------------------------------

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return one object, or ``None`` when there is none."""
        try:
            return await self._ask("get", kind, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def list_all(
        self,
        kind: str,
        namespace: str,
        label_selector: str = "",
        *,
        name: str = "",
        metadata_only: bool = False,
    ) -> list[Object]:
        """Return all objects of a kind (or those of one name), read in pages of 500.

        A continuation that expired (410) starts the list again.

        Args:
            metadata_only: Of each object only name, namespace, uid and resourceVersion.
        """
        accept = _METADATA if metadata_only else _JSON
        found: list[Object] = []
        query = {"limit": str(_PAGE), "labelSelector": label_selector}
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        while True:
            try:
                page = await self._ask("list", kind, namespace, query=query, accept=accept)
            except ApiError as error:
                if error.code != 410 or "continue" not in query:
                    raise
                found, query = [], {key: query[key] for key in query if key != "continue"}
                continue
            found += page.get("items") or ()  # an empty list of metadata is null
            mark = page.get("metadata", {}).get("continue")
            if not mark:
                return found
            query = {**query, "continue": mark}

    async def served_kinds(self) -> frozenset[str]:
        """Return the optional kinds that the API server serves."""
        found = set()
        for kind in OPTIONAL_KINDS:
            plural = RESOURCES[kind][2]
            try:
                answer = await self._request("get", kind, "GET", prefix(kind))
            except ApiError as error:
                if error.code in (403, 404):
                    continue
                raise
            if any(item["name"] == plural for item in answer.get("resources", ())):
                found.add(kind)
        return frozenset(found)

    # --- write --------------------------------------------------------------------------------

    async def apply(self, manifest: Mapping[str, Any], *, force: bool = False) -> Object:
        """Apply a whole object as this field manager."""
        metadata = manifest["metadata"]
        query = {"fieldManager": self._manager, "force": "true" if force else "false"}
        return await self._ask(
            "apply",
            manifest["kind"],
            metadata["namespace"],
            metadata["name"],
            method="PATCH",
            query=query,
            body=dict(manifest),
            content=_APPLY,
        )

    async def create(self, manifest: Mapping[str, Any]) -> Object:
        """Create an object; 409 when it exists."""
        namespace = manifest["metadata"]["namespace"]
        kind = manifest["kind"]
        return await self._ask("create", kind, namespace, method="POST", body=dict(manifest))

    async def replace(self, manifest: Mapping[str, Any]) -> Object:
        """Replace an object at its resourceVersion; 409 when it moved on."""
        metadata, kind = manifest["metadata"], manifest["kind"]
        where = (metadata["namespace"], metadata["name"])
        return await self._ask("update", kind, *where, method="PUT", body=dict(manifest))

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete exactly this object; one that is gone or another by now is success."""
        body: Object = {"propagationPolicy": propagation, "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self._ask("delete", kind, namespace, name, method="DELETE", body=body)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def evict(self, namespace: str, pod: str, uid: str) -> None:
        """Evict a pod; one that is gone or another by now is success, 429 is a refusal."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._ask(
                "create", "Pod", namespace, pod, method="POST", body=body, sub="eviction"
            )
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def merge(
        self, kind: str, namespace: str, name: str, patch: Mapping[str, Any], *, sub: str = ""
    ) -> Object:
        """Merge-patch an object or its subresource; a uid or resourceVersion in it is checked."""
        return await self._ask(
            "patch",
            kind,
            namespace,
            name,
            method="PATCH",
            body=dict(patch),
            content=_MERGE,
            sub=sub,
        )

    async def patch_status(
        self,
        kind: str,
        namespace: str,
        name: str,
        patch: Mapping[str, Any],
        *,
        resource_version: str | None = None,
        uid: str | None = None,
    ) -> Object:
        """Merge-patch the status; with a resourceVersion, 409 when the object moved on."""
        checks = {"resourceVersion": resource_version, "uid": uid}
        metadata = {key: value for key, value in checks.items() if value}
        body: Object = {"status": dict(patch)}
        if metadata:
            body["metadata"] = metadata
        return await self.merge(kind, namespace, name, body, sub="status")

    async def patch_pod_condition(
        self, namespace: str, pod: str, uid: str, condition: Mapping[str, Any]
    ) -> None:
        """Set one condition of a pod, beside those of the kubelet."""
        body = {"metadata": {"uid": uid}, "status": {"conditions": [dict(condition)]}}
        await self._ask(
            "patch",
            "Pod",
            namespace,
            pod,
            method="PATCH",
            body=body,
            content=_STRATEGIC,
            sub="status",
        )

    async def json_patch(
        self, kind: str, namespace: str, name: str, operations: list[Object]
    ) -> Object:
        """JSON-patch an object; a ``test`` that fails is a 422."""
        return await self._ask(
            "patch",
            kind,
            namespace,
            name,
            method="PATCH",
            body=operations,
            content=_JSON_PATCH,
        )

    # --- the one way to ask -------------------------------------------------------------------

    async def _ask(
        self,
        verb: str,
        kind: str,
        namespace: str,
        name: str = "",
        *,
        method: str = "GET",
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
        accept: str = _JSON,
        sub: str = "",
    ) -> Object:
        plural = RESOURCES[kind][2]
        resource = f"{plural}/{sub}" if sub else plural
        return await self._request(
            verb,
            kind,
            method,
            path(kind, namespace, name, sub),
            query=query,
            body=body,
            content=content,
            accept=accept,
            resource=resource,
        )

    async def _request(
        self,
        verb: str,
        kind: str,
        method: str,
        where: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
        accept: str = _JSON,
        resource: str = "",
    ) -> Object:
        resource = resource or RESOURCES[kind][2]
        begun, code = time.monotonic(), "0"
        try:
            answer = await self._send(method, where, query, body, content, accept)
            raw = await answer.read()
            code = str(answer.status)
            if answer.status >= 400:
                raise refusal(verb, resource, answer.status, raw, answer.headers)
            if accept == _METADATA:
                return {**_METADATA_PAGE.decode(raw)}
            found: Object = json.loads(raw) if raw else {}
            return found
        except TimeoutError:
            text = f"no answer within {self._timeout_seconds:g} s"
            raise ApiError(verb, resource, 0, "Timeout", text) from None
        except (
            aiohttp.ClientError,
            OSError,
            ApiException,
            ValueError,
            msgspec.DecodeError,
        ) as error:
            raise ApiError(verb, resource, 0, "Unreachable", str(error)) from error
        finally:
            self._meter.api_request(verb, resource, code, time.monotonic() - begun)

    async def _send(
        self,
        method: str,
        where: str,
        query: Mapping[str, str] | None,
        body: Any,
        content: str,
        accept: str,
    ) -> Any:
        headers = {"Content-Type": content, "Accept": accept}
        parameters = [(key, value) for key, value in (query or {}).items() if value]
        await self._client.update_params_for_auth(
            headers, parameters, ["BearerToken"], where, method, body
        )
        url = self._client.configuration.host + where
        if parameters:
            url += "?" + urllib.parse.urlencode(parameters)
        headers["User-Agent"] = self._manager
        async with asyncio.timeout(self._timeout_seconds):
            return await self._client.rest_client.request(
                method,
                url,
                headers=headers,
                body=body,
                _request_timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
            )


@asynccontextmanager
async def connect(
    meter: RequestMeter, manager: str, *, timeout_seconds: float
) -> AsyncIterator[Kube]:
    """Yield the API server of this process: in-cluster credentials, else the kubeconfig.

    Args:
        manager: The field manager of what is applied.
    """
    configuration = kubernetes_client.Configuration()
    try:
        kubernetes_config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration
        )
    except kubernetes_config.ConfigException:
        await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration
        )
    configuration.connection_pool_maxsize = _CONNECTIONS
    async with kubernetes_client.ApiClient(configuration) as client:
        yield Kube(client, meter, manager, timeout_seconds=timeout_seconds)
