"""Rules about the keys of maps: names of labels and resources. Both as CEL and in Python.

A schema bounds the values of a map and not its keys. What Kubernetes refuses in a pod would hold up
the whole StatefulSet, after other objects were made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pydantic.alias_generators import to_snake

from failback.operator.kinds.base import KEY_NAME, RESOURCE_NAME, Resource, parse_quantity
from failback.operator.schema import rule_texts

_OF_PODS: Final = (
    "spec.podTemplate.labels",
    "spec.podTemplate.annotations",
    "spec.podTemplate.nodeSelector",
    "spec.metrics.podMonitor.labels",
    "spec.external.annotations",
)
_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "NameServer": _OF_PODS,
    "BrokerCluster": (*_OF_PODS, "spec.pairOverrides[].nodeSelector"),
}
_RESOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "NameServer": ("spec.resources",),
    "BrokerCluster": ("spec.resources", "spec.pairOverrides[].resources"),
    "ChaosExperiment": ("spec.job.resources",),
    "ReconsumptionReport": (
        "spec.spark.driver",
        "spec.spark.executor.resources",
        "spec.job.resources",
    ),
}
_KEY: Final = re.compile(KEY_NAME)
_RESOURCE: Final = re.compile(RESOURCE_NAME)
_LONGEST_KEY: Final = 317
_LIMITED: Final = ("cpu", "memory")
"""Compared with their limits. All of a map would cost the API server more than it allows."""


class Broken(NamedTuple):
    """A rule's id, the path where it stands, its message, and the field to edit."""

    rule: str
    path: str
    message: str
    field: str


def expressions(kind: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield id, path, CEL expression and message of each rule of a kind."""
    for path in _LABELS.get(kind, ()):
        text = f"self.all(k, k.size() <= {_LONGEST_KEY} && k.matches({_literal(KEY_NAME)}))"
        yield "KN1", path, text, rule_texts.NO_KEY_NAME
    for path in _RESOURCES.get(kind, ()):
        for field in ("requests", "limits"):
            text = f"self.all(k, k.size() <= 253 && k.matches({_literal(RESOURCE_NAME)}))"
            yield "KN2", f"{path}.{field}", text, rule_texts.NO_RESOURCE_NAME
        text = " && ".join(_within_limit(name) for name in _LIMITED)
        yield "KN3", path, text, rule_texts.MORE_THAN_LIMIT


def broken_keys(resource: Resource) -> Iterator[Broken]:
    """Yield the same rules where an object breaks them."""
    for path in _LABELS.get(resource.kind, ()):
        for at, table in found_at(resource, path):
            for key in table:
                if len(key) > _LONGEST_KEY or not _KEY.fullmatch(key):
                    yield Broken("KN1", at, rule_texts.NO_KEY_NAME, f"{at}.{key}")
    for path in _RESOURCES.get(resource.kind, ()):
        for at, found in found_at(resource, path):
            yield from _resources(at, found.requests, found.limits)


def _resources(at: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> Iterator[Broken]:
    for field, table in (("requests", requests), ("limits", limits)):
        for key in table:
            if len(key) > 253 or not _RESOURCE.fullmatch(key):
                where = f"{at}.{field}"
                yield Broken("KN2", where, rule_texts.NO_RESOURCE_NAME, f"{where}.{key}")
    for key in _LIMITED:
        most = limits.get(key)
        wanted = requests.get(key)
        if most and wanted and parse_quantity(wanted) > parse_quantity(most):
            yield Broken("KN3", at, rule_texts.MORE_THAN_LIMIT, f"{at}.requests.{key}")


def found_at(node: Any, path: str, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of what stands at a path, once for each entry of a list."""
    if node is None:
        return
    if not path:
        yield at, node
        return
    first, _, rest = path.partition(".")
    name = first.removesuffix("[]")
    below = getattr(node, to_snake(name))
    where = f"{at}.{name}" if at else name
    if first.endswith("[]"):
        for number, entry in enumerate(below):
            yield from found_at(entry, rest, f"{where}[{number}]")
    else:
        yield from found_at(below, rest, where)


def _within_limit(name: str) -> str:
    asked, most = (f"self.{field}['{name}']" for field in ("requests", "limits"))
    both = f"has(self.requests) && '{name}' in self.requests"
    both += f" && has(self.limits) && '{name}' in self.limits"
    compared = f"quantity(string({asked})).compareTo(quantity(string({most}))) <= 0"
    return f"(!({both}) || {compared})"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\") + "'"
