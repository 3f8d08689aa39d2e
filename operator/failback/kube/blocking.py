"""Requests to the API server for programs without an event loop. Objects are plain JSON data.

Every call has a time limit and raises :class:`ApiError` with what the server said. Usable from
several threads.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from failback.kube.configuration import configuration_of
from failback.kube.errors import ApiError, refusal
from failback.kube.resources import RESOURCES, Object, path

REQUEST_SECONDS: Final = 10.0
_PAGE: Final = 500
_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"


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
        timeout_seconds: float = REQUEST_SECONDS,
        retries: bool = True,
    ) -> BlockingKube:
        """Return the API server of this process; see :func:`configuration_of`."""
        configuration = configuration_of(kubeconfig)
        if not retries:
            configuration.retries = False
        return cls(configuration, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return one object, or ``None`` when there is none."""
        try:
            return self._json("get", kind, path(kind, namespace, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def list_all(self, kind: str, namespace: str = "", label_selector: str = "") -> list[Object]:
        """Return all objects of a kind, read in pages of 500; no namespace = everywhere."""
        query = {"limit": str(_PAGE), "labelSelector": label_selector}
        found: list[Object] = []
        while True:
            page = self._json("list", kind, path(kind, namespace), query=query)
            found += page.get("items") or ()
            query["continue"] = page.get("metadata", {}).get("continue") or ""
            if not query["continue"]:
                return found

    def create(self, manifest: Mapping[str, Any]) -> Object:
        """Create an object; 409 when it exists."""
        kind, namespace = manifest["kind"], manifest["metadata"]["namespace"]
        return self._json("create", kind, path(kind, namespace), "POST", body=dict(manifest))

    def replace(self, manifest: Mapping[str, Any]) -> Object:
        """Replace an object at its resourceVersion; 409 when it moved on."""
        kind, metadata = manifest["kind"], manifest["metadata"]
        where = path(kind, metadata["namespace"], metadata["name"])
        return self._json("update", kind, where, "PUT", body=dict(manifest))

    def merge(self, kind: str, namespace: str, name: str, patch: Mapping[str, Any]) -> Object:
        """Merge-patch an object; a uid or resourceVersion in it is checked."""
        where = path(kind, namespace, name)
        return self._json("patch", kind, where, "PATCH", body=dict(patch), content=_MERGE)

    def delete(self, kind: str, namespace: str, name: str, uid: str, grace_seconds: int) -> None:
        """Delete exactly this object; gone already is success."""
        body = {"gracePeriodSeconds": grace_seconds, "preconditions": {"uid": uid}}
        try:
            self._json("delete", kind, path(kind, namespace, name), "DELETE", body=body)
        except ApiError as error:
            if error.code != 404:
                raise

    def text(self, kind: str, namespace: str, name: str, sub: str, query: Mapping[str, str]) -> str:
        """Return a subresource that is text, such as the log of a pod."""
        answer = self._request("get", kind, path(kind, namespace, name, sub), query=query)
        return bytes(answer.read()).decode("utf-8", "replace")

    def watch(
        self, kind: str, namespace: str, name: str, version: str, seconds: float
    ) -> Iterator[tuple[str, Object]]:
        """Yield ``(ADDED | MODIFIED | DELETED, object)`` after a resourceVersion."""
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        limit = seconds + self._timeout_seconds
        where = path(kind, namespace)
        answer = self._request("watch", kind, where, query=query, stream_seconds=limit)
        buffer = b""
        try:
            for piece in answer.response.stream(amt=None, decode_content=False):
                *lines, buffer = (buffer + piece).split(b"\n")
                for line in filter(None, lines):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        said = event["object"]
                        raise refusal(
                            "watch", RESOURCES[kind][2], int(said["code"]), json.dumps(said), {}
                        )
                    yield str(event["type"]), event["object"]
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError("watch", RESOURCES[kind][2], 0, "Unreachable", str(error)) from error
        finally:
            answer.response.close()

    # --- the one way to ask -------------------------------------------------------------------

    def _json(
        self,
        verb: str,
        kind: str,
        where: str,
        method: str = "GET",
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
    ) -> Object:
        answer = self._request(verb, kind, where, method, query=query, body=body, content=content)
        found: Object = json.loads(answer.read())
        return found

    def _request(
        self,
        verb: str,
        kind: str,
        where: str,
        method: str = "GET",
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
        stream_seconds: float | None = None,
    ) -> Any:
        """Send one request and return its answer.

        Args:
            stream_seconds: The body goes on for so long at most, and is not read here.
        """
        resource = RESOURCES[kind][2]
        headers = {"Content-Type": content, "Accept": "*/*", "User-Agent": "failback"}
        parameters = [(key, value) for key, value in (query or {}).items() if value]
        self._client.update_params_for_auth(
            headers, parameters, ["BearerToken"], where, method, body
        )
        url = self._client.configuration.host + where
        if parameters:
            url += "?" + urllib.parse.urlencode(parameters)
        try:
            answer = self._client.rest_client.request(
                method,
                url,
                headers=headers,
                body=body,
                _request_timeout=stream_seconds or self._timeout_seconds,
            )
            if answer.status >= 400:
                said = (answer.read(), answer.headers, str(answer.reason or ""))
                raise refusal(verb, resource, answer.status, *said)
            if stream_seconds is None:
                answer.read()
        except (urllib3.exceptions.HTTPError, OSError, ApiException) as error:
            raise ApiError(verb, resource, 0, "Unreachable", str(error)) from error
        return answer
