"""A small blocking client of the API server, for what tests look at and set up."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.support.common.polling import SCALE
from tests.support.kube_lab.kubeconfig import read_kubeconfig

Object = dict[str, Any]
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
_POLL_SECONDS = 0.15
_kept: list[http.client.HTTPSConnection] = []
"""Connections that are kept for further requests, of all clients and threads."""


def close_connections() -> None:
    """Close what clients keep open: tests need not, the control plane does it at its end."""
    while _kept:
        _kept.pop().close()


class ApiError(Exception):
    """The API server refused: its ``Status`` object, taken apart."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        self.code = code
        self.reason = str(status.get("reason", ""))
        self.message = str(status.get("message", ""))
        self.status = dict(status)
        super().__init__(f"{code} {self.reason}: {self.message}")


class Api:
    """Requests as one identity. Threads may share it: each has a connection of its own."""

    def __init__(
        self, kubeconfig: Path, namespace: str = "default", user_agent: str = "kube-lab"
    ) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.user_agent = user_agent
        access = read_kubeconfig(kubeconfig)
        self._host = urlsplit(access.server)
        self.headers = {"Authorization": f"Bearer {access.token}", "User-Agent": user_agent}
        self._tls = ssl.create_default_context(cafile=str(access.ca_file))
        self._local = threading.local()
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    def scoped(self, namespace: str) -> Api:
        """Return the same identity with another default namespace."""
        return Api(self.kubeconfig, namespace, self.user_agent)

    # --- requests --------------------------------------------------------------------------------

    def raw(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        """Send one request; return the answer's code and body, whatever they are.

        What met a connection that the server closed while it was idle is repeated once: a read
        always, a write only when it could not even be sent.
        """
        merged = {**self.headers, **headers}
        fresh = getattr(self._local, "connection", None) is None
        connection, sent = self._connection(), False
        try:
            connection.request(method, path, body, merged)
            sent = True
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            if (method == "GET" or not sent) and not fresh:
                return self.raw(method, path, body, headers)
            raise

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        query: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send JSON, return JSON. Raises :class:`ApiError` on 400 and above."""
        if query:
            path = f"{path}?{urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        code, answer = self.raw(method, path, data, {"Content-Type": content_type})
        decoded = _decode(answer)
        if code >= http.client.BAD_REQUEST:
            raise ApiError(code, decoded if isinstance(decoded, dict) else {"message": decoded})
        return decoded

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            with suppress(ValueError):
                _kept.remove(connection)
            self._local.connection = None

    def _connection(self) -> http.client.HTTPSConnection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self.fresh_connection()
            _kept.append(connection)
        return connection

    def fresh_connection(self) -> http.client.HTTPSConnection:
        """Return a connection for the caller alone, who sends :attr:`headers` and closes it."""
        return http.client.HTTPSConnection(
            str(self._host.hostname), self._host.port, timeout=60 * SCALE, context=self._tls
        )

    # --- objects ---------------------------------------------------------------------------------

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        return dict(self.request("GET", self.path(kind, name, namespace)))

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Object | None:
        """Return the object, or ``None`` when there is none."""
        try:
            return self.get(kind, name, namespace=namespace)
        except ApiError as error:
            if error.code == http.client.NOT_FOUND:
                return None
            raise

    def list(
        self, kind: str, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]:
        """Return the objects of a kind in a namespace; ``namespace="*"`` means all of them."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        wanted = {key: value for key, value in query.items() if value}
        return list(self.request("GET", self.path(kind, None, namespace), query=wanted)["items"])

    def create(self, manifest: Object, *, namespace: str | None = None) -> Object:
        path = self._path_of(manifest, namespace, named=False)
        return dict(self.request("POST", path, manifest))

    def replace(self, manifest: Object, *, namespace: str | None = None) -> Object:
        path = self._path_of(manifest, namespace, named=True)
        return dict(self.request("PUT", path, manifest))

    def apply(
        self,
        manifest: Object,
        *,
        manager: str = "kube-lab",
        force: bool = True,
        namespace: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply."""
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        if dry_run:
            query["dryRun"] = "All"
        return dict(
            self.request(
                "PATCH",
                self._path_of(manifest, namespace, named=True),
                manifest,
                content_type="application/apply-patch+yaml",
                query=query,
            )
        )

    def patch(
        self,
        kind: str,
        name: str,
        body: Any,
        *,
        type: str = "merge",
        namespace: str | None = None,
        subresource: str = "",
    ) -> Object:
        """Patch an object; ``type`` is merge, strategic or json."""
        path = self.path(kind, name, namespace, subresource)
        return dict(self.request("PATCH", path, body, content_type=_PATCH_TYPES[type]))

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = None,
        grace: int | None = None,
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> None:
        """Ask for a deletion; an object that is gone already is no error."""
        options: Object = {"propagationPolicy": propagation}
        if dry_run:
            options["dryRun"] = ["All"]
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.request("DELETE", self.path(kind, name, namespace), options)
        except ApiError as error:
            if error.code != http.client.NOT_FOUND:
                raise

    def wait(
        self,
        kind: str,
        name: str,
        condition: Callable[[Object], object] = bool,
        *,
        seconds: float = 60,
        namespace: str | None = None,
        what: str = "",
    ) -> Object:
        """Return the object once it is there and ``condition`` holds for it.

        A condition that misses a field (``KeyError``, ``IndexError``) does not hold yet.
        """
        deadline = time.monotonic() + seconds * SCALE
        while True:
            found = self.find(kind, name, namespace=namespace)
            if found is not None and _holds(condition, found):
                return found
            if time.monotonic() > deadline:
                shown = json.dumps((found or {}).get("status"), indent=1)
                wanted = what or "the condition"
                raise AssertionError(f"{kind}/{name}: not within {seconds:g} s: {wanted}\n{shown}")
            time.sleep(_POLL_SECONDS)

    def wait_gone(
        self, kind: str, name: str, *, seconds: float = 60, namespace: str | None = None
    ) -> None:
        deadline = time.monotonic() + seconds * SCALE
        while (found := self.find(kind, name, namespace=namespace)) is not None:
            if time.monotonic() > deadline:
                shown = json.dumps(found["metadata"], indent=1)
                raise AssertionError(f"{kind}/{name}: still there after {seconds:g} s\n{shown}")
            time.sleep(_POLL_SECONDS)

    # --- paths -----------------------------------------------------------------------------------

    def path(
        self,
        kind: str,
        name: str | None = None,
        namespace: str | None = None,
        subresource: str = "",
        *,
        group_version: str = "",
    ) -> str:
        """Return the URL path of an object or, without a name, of its collection."""
        prefix, plural, namespaced = self._resource(kind, group_version)
        parts = [prefix]
        wanted = namespace or self.namespace
        if namespaced and wanted != "*":
            parts += ["namespaces", wanted]
        parts += [part for part in (plural, name, subresource) if part]
        return "/".join(parts)

    def _path_of(self, manifest: Object, namespace: str | None, *, named: bool) -> str:
        metadata = manifest["metadata"]
        return self.path(
            manifest["kind"],
            metadata["name"] if named else None,
            namespace or metadata.get("namespace"),
            group_version=manifest["apiVersion"],
        )

    def _resource(self, kind: str, group_version: str) -> tuple[str, str, bool]:
        """Return URL prefix, plural and whether it is namespaced, asked once per kind."""
        wanted = (kind, group_version)
        if wanted not in self._kinds:
            versions = [group_version] if group_version else self._served()
            for version in versions:
                prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
                for resource in self._resources(prefix):
                    if resource["kind"] == kind and "/" not in resource["name"]:
                        path = f"{prefix} {resource['name']}"
                        self._kinds.setdefault(wanted, (path, bool(resource["namespaced"])))
                if wanted in self._kinds:
                    break
            else:
                raise LookupError(f"the API server does not serve kind {kind} {group_version}")
        path, namespaced = self._kinds[wanted]
        prefix, plural = path.split()
        return prefix, plural, namespaced

    def _resources(self, prefix: str) -> Sequence[Object]:
        """Return what a version has; nothing where its last definition was just deleted."""
        try:
            found: Sequence[Object] = self.request("GET", prefix)["resources"]
        except ApiError as error:
            if error.code == http.client.NOT_FOUND:
                return []
            raise
        return found

    def _served(self) -> Sequence[str]:
        groups = self.request("GET", "/apis")["groups"]
        return ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]


def _holds(condition: Callable[[Object], object], found: Object) -> bool:
    try:
        return bool(condition(found))
    except (KeyError, IndexError):
        return False


def _decode(answer: bytes) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        return answer.decode(errors="replace")
