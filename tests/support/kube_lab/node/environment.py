"""The variables of a container: the machine's few, its image's, and those of its manifest."""

from __future__ import annotations

import base64
from http import HTTPStatus

from tests.support.kube_lab.api import ApiError, Object
from tests.support.kube_lab.node import plan
from tests.support.kube_lab.node.client import Client
from tests.support.kube_lab.node.images import Start
from tests.support.kube_lab.node.volumes import Place

_KEY_KINDS = {"configMapKeyRef": "configmaps", "secretKeyRef": "secrets"}
_FROM_KINDS = {"configMapRef": "configmaps", "secretRef": "secrets"}
_Reference = tuple[str, str]
"""Plural of the kind, and name."""


class Environment:
    """Looks references up when a container starts, and remembers them for its probes and execs."""

    def __init__(self, client: Client, place: Place) -> None:
        self._client = client
        self._place = place
        self._known: dict[_Reference, dict[str, str] | None] = {}

    async def refresh(self, container: Object) -> None:
        """Read what the container's variables refer to; what is not there is remembered so."""
        for reference in _references(container):
            self._known[reference] = await self._read(*reference)

    def of(self, container: Object, image: Start) -> dict[str, str]:
        """Return the variables.

        Raises:
            LookupError: A variable refers to something that is not there, or not known here.
        """
        pod = self._place.pod
        found = {**plan.base_environment(self._client.server), **image.environment}
        found["HOSTNAME"] = pod["spec"].get("hostname", pod["metadata"]["name"])
        for source in container.get("envFrom", ()):
            kind = next(iter(set(source) & set(_FROM_KINDS)))
            content = self._content((_FROM_KINDS[kind], source[kind]["name"]), source[kind])
            prefix = source.get("prefix", "")
            found |= {f"{prefix}{name}": value for name, value in content.items()}
        for variable in container.get("env", ()):
            value = self._value(variable, found)
            if value is not None:
                found[variable["name"]] = value
        return found

    def _value(self, variable: Object, known: dict[str, str]) -> str | None:
        source = variable.get("valueFrom")
        if source is None:
            return plan.expand(variable.get("value", ""), known)
        place = self._place
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            return plan.field_value(place.pod, path, place.address, place.node_address)
        for kind, plural in _KEY_KINDS.items():
            if kind in source:
                reference = source[kind]
                content = self._content((plural, reference["name"]), reference)
                if reference["key"] not in content and not reference.get("optional"):
                    raise LookupError(f"{plural}/{reference['name']} has no {reference['key']}")
                return content.get(reference["key"])
        raise LookupError(f"valueFrom of {variable['name']} is not supported here")

    def _content(self, wanted: _Reference, reference: Object) -> dict[str, str]:
        found = self._known.get(wanted)
        if found is None and not reference.get("optional"):
            raise LookupError(f"{wanted[0]}/{wanted[1]} is not there")
        return found or {}

    async def _read(self, plural: str, name: str) -> dict[str, str] | None:
        namespace = self._place.pod["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/{plural}/{name}"
        try:
            data = (await self._client.request("GET", path)).get("data") or {}
        except ApiError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise
        if plural == "secrets":
            return {key: base64.b64decode(value).decode() for key, value in data.items()}
        return dict(data)


def _references(container: Object) -> set[_Reference]:
    found = set()
    for variable in container.get("env", ()):
        for kind, plural in _KEY_KINDS.items():
            if kind in variable.get("valueFrom", {}):
                found.add((plural, variable["valueFrom"][kind]["name"]))
    for source in container.get("envFrom", ()):
        for kind, plural in _FROM_KINDS.items():
            if kind in source:
                found.add((plural, source[kind]["name"]))
    return found
