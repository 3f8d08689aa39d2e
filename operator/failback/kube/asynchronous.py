"""Requests to the API server from an event loop.

Every call has a time limit, is counted, and raises :class:`ApiError` with what the server said.
Children are applied by server-side apply; every delete, eviction and pod patch carries the uid.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypedDict

import aiohttp
import msgspec

from failback.kube import requests, shallow_json
from failback.kube.configuration import configuration_of, tls_of
from failback.kube.errors import ApiError, refusal
from failback.kube.leases import SeenLeases
from failback.kube.requests import Request
from failback.kube.resources import RESOURCES, Object, prefix

logger = logging.getLogger(__name__)

_CONNECTIONS: Final = 16
OPTIONAL_KINDS: Final = ("PodMonitor", "SparkApplication")


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
"""Decodes only the identity in a page of metadata: most of a page are managed fields."""


def _metadata_page(raw: bytes) -> _Page:
    try:
        return _METADATA_PAGE.decode(raw)
    except RecursionError:  # the managed fields of an object are as deep as the object
        return _METADATA_PAGE.decode(shallow_json.cut(raw))


class RequestMeter(Protocol):
    """Counts the requests to the API server."""

    def api_request(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Count one request and its duration."""


class Kube:
    """The calls an operator makes. Objects are plain JSON data."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        configuration: Any,
        meter: RequestMeter,
        manager: str,
        *,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Make the API server; :func:`connect` does, for a process.

        Args:
            configuration: Of the library's client: host, proxy and account.
        """
        self._session = session
        self._configuration = configuration
        self._manager = manager
        self._meter = meter
        self._timeout_seconds = timeout_seconds
        self._leases = SeenLeases()

    # --- read ---------------------------------------------------------------------------------

    async def lease(self, namespace: str, name: str) -> Object | None:
        """Return a Lease by this machine's clock (:class:`SeenLeases`); ``None``: there is none."""
        found = await self.get("Lease", namespace, name)
        return None if found is None else self._leases.of_own_clock(found)

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return one object, or ``None`` when there is none."""
        return await self._send_unless(requests.get(kind, namespace, name), 404)

    async def list_all(
        self,
        kind: str,
        namespace: str,
        label_selector: str = "",
        *,
        name: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> list[Object]:
        """Return all objects of a kind (or those of one name), read in pages of 500.

        A continuation that expired (410) starts the list again.

        Args:
            fields: Only objects with these fields, a selector.
            metadata_only: Of each object only name, namespace, uid and resourceVersion.
        """
        accept = requests.METADATA if metadata_only else requests.JSON
        found: list[Object] = []
        mark = ""
        while True:
            chosen = {"name": name, "fields": fields, "mark": mark}
            asked = requests.page(kind, namespace, label_selector, accept=accept, **chosen)
            try:
                page = await self._send(asked)
            except ApiError as error:
                if error.code != 410 or not mark:
                    raise
                found, mark = [], ""
                continue
            found += page.get("items") or ()  # an empty list of metadata is null
            mark = page.get("metadata", {}).get("continue") or ""
            if not mark:
                return found

    async def served_kinds(self) -> frozenset[str]:
        """Return the optional kinds that the API server serves."""
        found = set()
        for kind in OPTIONAL_KINDS:
            answer = await self._send_unless(Request("get", kind, prefix(kind)), 403, 404) or {}
            if any(item["name"] == RESOURCES[kind][2] for item in answer.get("resources", ())):
                found.add(kind)
        return frozenset(found)

    # --- write --------------------------------------------------------------------------------

    async def apply(self, manifest: Mapping[str, Any], *, force: bool = False) -> Object:
        """Apply a whole object as this field manager."""
        return await self._send(requests.apply(manifest, self._manager, force=force))

    async def create(self, manifest: Mapping[str, Any]) -> Object:
        """Create an object; 409 when it exists."""
        return await self._send(requests.create(manifest))

    async def replace(self, manifest: Mapping[str, Any]) -> Object:
        """Replace an object at its resourceVersion; 409 when it moved on."""
        return await self._send(requests.replace(manifest))

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
        asked = requests.delete(
            kind, namespace, name, uid, propagation=propagation, grace_seconds=grace_seconds
        )
        await self._send_unless(asked, 404, 409)

    async def evict(self, namespace: str, pod: str, uid: str) -> None:
        """Evict a pod; one that is gone or another by now is success, 429 is a refusal."""
        await self._send_unless(requests.evict(namespace, pod, uid), 404, 409)

    async def merge(
        self, kind: str, namespace: str, name: str, patch: Mapping[str, Any], *, sub: str = ""
    ) -> Object:
        """Merge-patch an object or its subresource; a uid or resourceVersion in it is checked."""
        return await self._send(requests.merge(kind, namespace, name, patch, sub))

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

    async def json_patch(
        self, kind: str, namespace: str, name: str, operations: list[Object]
    ) -> Object:
        """JSON-patch an object; a ``test`` that fails is a 422."""
        return await self._send(requests.json_patch(kind, namespace, name, operations))

    # --- the one way to ask -------------------------------------------------------------------

    async def _send_unless(self, request: Request, *codes: int) -> Object | None:
        """Return what the server answered; ``None`` where it refused with one of the codes."""
        try:
            return await self._send(request)
        except ApiError as error:
            if error.code not in codes:
                raise
            return None

    async def _send(self, request: Request) -> Object:
        """Send a request, count it, and return what the server answered."""
        verb, resource = request.verb, request.resource
        begun, code = time.monotonic(), "0"
        try:
            answer = await self._answer(request)
            raw = await answer.read()
            code = str(answer.status)
            if answer.status >= 400:
                raise refusal(verb, resource, answer.status, raw, answer.headers)
            if request.accept == requests.METADATA:
                return {**_metadata_page(raw)}
            found: Object = shallow_json.loads(raw) if raw else {}
            return found
        except TimeoutError:
            text = f"no answer within {self._timeout_seconds:g} s"
            raise ApiError(verb, resource, 0, "Timeout", text) from None
        except (aiohttp.ClientError, OSError, ValueError, msgspec.DecodeError) as error:
            raise ApiError(verb, resource, 0, "Unreachable", str(error)) from error
        finally:
            self._meter.api_request(verb, resource, code, time.monotonic() - begun)

    async def _answer(self, request: Request) -> aiohttp.ClientResponse:
        configuration, headers = self._configuration, request.headers(self._manager)
        async with asyncio.timeout(self._timeout_seconds):
            # In a thread: a token is read from a file, or is what a program of the user's prints.
            token = await asyncio.to_thread(
                configuration.get_api_key_with_prefix, "BearerToken", alias="authorization"
            )
            if token:
                headers["Authorization"] = token
            return await self._session.request(
                request.method,
                request.url(configuration.host),
                headers=headers,
                data=None if request.body is None else json.dumps(request.body),
                proxy=configuration.proxy,
                proxy_headers=configuration.proxy_headers,
                server_hostname=configuration.tls_server_name,
            )


@asynccontextmanager
async def connect(
    meter: RequestMeter, manager: str, *, timeout_seconds: float
) -> AsyncIterator[Kube]:
    """Yield the API server of this process: in-cluster credentials, else the kubeconfig.

    Args:
        manager: The field manager of what is applied.
    """
    configuration = configuration_of()
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=tls_of(configuration)),
        timeout=aiohttp.ClientTimeout(total=timeout_seconds),
    )
    async with session:
        yield Kube(session, configuration, meter, manager, timeout_seconds=timeout_seconds)
