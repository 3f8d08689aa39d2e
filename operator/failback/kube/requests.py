"""Requests to the API server as values: what is asked, not how it is sent. Pure."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from failback.kube.resources import RESOURCES, Object, path

PAGE: Final = 500
JSON: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_JSON_PATCH: Final = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Request:
    """One request."""

    verb: str
    """The verb that a rule has to allow."""
    kind: str
    path: str
    method: str = "GET"
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content: str = JSON
    accept: str = JSON
    sub: str = ""
    """The subresource, if one."""

    @property
    def resource(self) -> str:
        """The resource that a rule has to name."""
        plural = RESOURCES[self.kind][2]
        return f"{plural}/{self.sub}" if self.sub else plural

    def url(self, host: str) -> str:
        """Return the address; empty values of the query are left out."""
        query = urllib.parse.urlencode([(key, value) for key, value in self.query.items() if value])
        return f"{host}{self.path}?{query}" if query else f"{host}{self.path}"

    def headers(self, agent: str) -> dict[str, str]:
        """Return the headers but those of the account."""
        return {"Content-Type": self.content, "Accept": self.accept, "User-Agent": agent}


def get(kind: str, namespace: str, name: str) -> Request:
    """Return the request for one object."""
    return Request("get", kind, path(kind, namespace, name))


def page(
    kind: str,
    namespace: str,
    label_selector: str = "",
    *,
    name: str = "",
    fields: str = "",
    mark: str = "",
    accept: str = JSON,
) -> Request:
    """Return the request for one page of a list.

    Args:
        name: Only objects of this name.
        fields: Only objects with these fields, a selector.
        mark: ``continue`` of the page before.
    """
    field_selector = f"metadata.name={name}" if name else fields
    query = {
        "limit": str(PAGE),
        "labelSelector": label_selector,
        "fieldSelector": field_selector,
        "continue": mark,
    }
    return Request("list", kind, path(kind, namespace), query=query, accept=accept)


def create(manifest: Mapping[str, Any]) -> Request:
    """Return the request that creates an object: 409 when it exists."""
    kind, namespace = manifest["kind"], manifest["metadata"]["namespace"]
    return Request("create", kind, path(kind, namespace), "POST", body=dict(manifest))


def replace(manifest: Mapping[str, Any]) -> Request:
    """Return the request that replaces an object at its resourceVersion: 409 when it moved on."""
    kind, metadata = manifest["kind"], manifest["metadata"]
    where = path(kind, metadata["namespace"], metadata["name"])
    return Request("update", kind, where, "PUT", body=dict(manifest))


def apply(manifest: Mapping[str, Any], manager: str, *, force: bool) -> Request:
    """Return the server-side apply of a whole object as a field manager."""
    kind, metadata = manifest["kind"], manifest["metadata"]
    where = path(kind, metadata["namespace"], metadata["name"])
    query = {"fieldManager": manager, "force": "true" if force else "false"}
    body = dict(manifest)
    return Request("apply", kind, where, "PATCH", query=query, body=body, content=_APPLY)


def merge(kind: str, namespace: str, name: str, patch: Mapping[str, Any], sub: str = "") -> Request:
    """Return a merge patch; a uid or resourceVersion in it is checked."""
    where, body = path(kind, namespace, name, sub), dict(patch)
    return Request("patch", kind, where, "PATCH", body=body, content=_MERGE, sub=sub)


def json_patch(kind: str, namespace: str, name: str, operations: list[Object]) -> Request:
    """Return a JSON patch: a ``test`` that fails is a 422."""
    where = path(kind, namespace, name)
    return Request("patch", kind, where, "PATCH", body=operations, content=_JSON_PATCH)


def delete(
    kind: str,
    namespace: str,
    name: str,
    uid: str,
    *,
    propagation: str = "Background",
    grace_seconds: int | None = None,
) -> Request:
    """Return the deletion of exactly this object: 409 when another one has its name."""
    body: Object = {"propagationPolicy": propagation, "preconditions": {"uid": uid}}
    if grace_seconds is not None:
        body["gracePeriodSeconds"] = grace_seconds
    return Request("delete", kind, path(kind, namespace, name), "DELETE", body=body)


def evict(namespace: str, pod: str, uid: str) -> Request:
    """Return the eviction of a pod: 429 is a refusal of its budget."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    where = path("Pod", namespace, pod, "eviction")
    return Request("create", "Pod", where, "POST", body=body, sub="eviction")
