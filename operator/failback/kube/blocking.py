"""Requests to the API server for programs without an event loop. Objects are plain JSON data.

Every call has a time limit and raises :class:`ApiError` with what the server said. Usable from
several threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from failback.kube import requests
from failback.kube.configuration import configuration_of
from failback.kube.errors import ApiError, refusal
from failback.kube.requests import Request
from failback.kube.resources import Object, path, prefix

REQUEST_SECONDS: Final = 10.0


class BlockingKube:
    """The API server, as one account sees it."""

    def __init__(self, configuration: Any, *, timeout_seconds: float = REQUEST_SECONDS) -> None:
        self.configuration = configuration
        self._client: Any = client.ApiClient(configuration)
        self._timeout_seconds = timeout_seconds

    @classmethod
    def connect(
        cls,
        kubeconfig: str | None = None,
        *,
        context: str | None = None,
        timeout_seconds: float = REQUEST_SECONDS,
        retries: bool = True,
    ) -> BlockingKube:
        """Return the API server of this process; see :func:`configuration_of`."""
        configuration = configuration_of(kubeconfig, context)
        if not retries:
            configuration.retries = False
        return cls(configuration, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return one object, or ``None`` when there is none."""
        return self._json_if_there(requests.get(kind, namespace, name))

    def serves(self, kind: str) -> bool:
        """Whether the server has the API group of a kind."""
        return self._json_if_there(Request("get", kind, prefix(kind))) is not None

    def list_all(self, kind: str, namespace: str = "", label_selector: str = "") -> list[Object]:
        """Return all objects of a kind, read in pages of 500; no namespace = everywhere."""
        found: list[Object] = []
        mark = ""
        while True:
            page = self._json(requests.page(kind, namespace, label_selector, mark=mark))
            found += page.get("items") or ()
            mark = page.get("metadata", {}).get("continue") or ""
            if not mark:
                return found

    def create(self, manifest: Mapping[str, Any]) -> Object:
        """Create an object; 409 when it exists."""
        return self._json(requests.create(manifest))

    def replace(self, manifest: Mapping[str, Any]) -> Object:
        """Replace an object at its resourceVersion; 409 when it moved on."""
        return self._json(requests.replace(manifest))

    def merge(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Merge-patch an object; a uid or resourceVersion in it is checked."""
        return self._json(requests.merge(kind, namespace, name, patch))

    def delete(self, kind: str, namespace: str, name: str, uid: str, grace_seconds: int) -> None:
        """Delete exactly this object; gone already is success."""
        asked = requests.delete(kind, namespace, name, uid, grace_seconds=grace_seconds)
        self._json_if_there(asked)

    def text(self, kind: str, namespace: str, name: str, sub: str, query: Mapping[str, str]) -> str:
        """Return a subresource that is text, such as the log of a pod."""
        where = path(kind, namespace, name, sub)
        answer = self._send(Request("get", kind, where, query=query, accept="*/*", sub=sub))
        return bytes(answer.read()).decode("utf-8", "replace")

    # --- the one way to ask -------------------------------------------------------------------

    def _json(self, request: Request) -> Object:
        found: Object = json.loads(self._send(request).read())
        return found

    def _json_if_there(self, request: Request) -> Object | None:
        try:
            return self._json(request)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _send(self, request: Request) -> Any:
        """Send a request and return its answer, which has been read."""
        headers = request.headers("failback")
        method, body = request.method, request.body
        self._client.update_params_for_auth(
            headers, [], ["BearerToken"], request.path, method, body
        )
        try:
            answer = self._client.rest_client.request(
                method,
                request.url(self._client.configuration.host),
                headers=headers,
                body=body,
                _request_timeout=self._timeout_seconds,
            )
            if answer.status >= 400:
                said = (answer.read(), answer.headers, str(answer.reason or ""))
                raise refusal(request.verb, request.resource, answer.status, *said)
            answer.read()
        except (urllib3.exceptions.HTTPError, OSError, ApiException) as error:
            words = str(error.reason if isinstance(error, ApiException) else error)
            words = words.replace("\n", ": ")
            raise ApiError(request.verb, request.resource, 0, "Unreachable", words) from error
        return answer
