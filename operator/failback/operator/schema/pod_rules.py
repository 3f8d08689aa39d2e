"""CEL rules about what Kubernetes would refuse in a pod, as data.

Some parts of a pod are only wrong together, and a schema bounds the values of a map but not its
keys. Without these rules Kubernetes would refuse the whole StatefulSet after other objects were
made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from failback.operator.kinds.base import KEY_NAME, RESOURCE_NAME
from failback.operator.schema.rule_texts import Rule, literal

_LABELS_OF_PODS: Final = (
    "spec.podTemplate.labels",
    "spec.podTemplate.annotations",
    "spec.podTemplate.nodeSelector",
    "spec.metrics.podMonitor.labels",
    "spec.external.annotations",
)
_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "NameServer": _LABELS_OF_PODS,
    "BrokerCluster": (*_LABELS_OF_PODS, "spec.pairOverrides[].nodeSelector"),
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
_WITH_PODS: Final = ("NameServer", "BrokerCluster")
_LONGEST_KEY: Final = 317
_LIMITED: Final = ("cpu", "memory")
"""Compared with their limits. All of a map would cost the API server more than it allows."""


def _within_limit(name: str) -> str:
    asked, most = (f"self.{field}['{name}']" for field in ("requests", "limits"))
    both = f"has(self.requests) && '{name}' in self.requests"
    both += f" && has(self.limits) && '{name}' in self.limits"
    compared = f"quantity(string({asked})).compareTo(quantity(string({most}))) <= 0"
    return f"(!({both}) || {compared})"


def _once(*fields: str) -> str:
    same = " && ".join(f"y.{field} == x.{field}" for field in fields)
    return f"self.all(x, self.exists_one(y, {same}))"


_KEY: Final = f"self.all(k, k.size() <= {_LONGEST_KEY} && k.matches({literal(KEY_NAME)}))"
_RESOURCE: Final = f"self.all(k, k.size() <= 253 && k.matches({literal(RESOURCE_NAME)}))"
_LEAST: Final = {
    "requests": {"memory": "1Mi", "ephemeral-storage": "1Mi"},
    "limits": {"memory": "32Mi", "ephemeral-storage": "1Mi"},
}
"""Less is a slip of the unit (``512m`` are 0.512 bytes): no process of ours starts in 32 MiB."""
_MOST_CPUS: Final = "2048"
"""More cores has no node: ``500Mi`` and ``5000`` are slips of the unit too."""


def _sane(field: str) -> Iterator[Rule]:
    for name, least in _LEAST[field].items():
        value = f"self['{name}']"
        text = f"!('{name}' in self) || quantity(string({value})).compareTo(quantity('0')) == 0"
        text += f" || quantity(string({value})).compareTo(quantity('{least}')) >= 0"
        yield Rule(
            "KN4", field, text, f"{name} must be at least {least} (512Mi; m is a thousandth)"
        )
    compared = f"quantity(string(self['cpu'])).compareTo(quantity('{_MOST_CPUS}')) <= 0"
    message = f"cpu must be at most {_MOST_CPUS} cores (500m is half a core)"
    yield Rule("KN4", field, f"!('cpu' in self) || {compared}", message)


_REQUESTS: Final = " && ".join(_within_limit(name) for name in _LIMITED)
_TOLERATION: Final = "spec.podTemplate.tolerations[]"
_SPREAD: Final = "spec.podTemplate.topologySpreadConstraints"
_EXISTS: Final = "(has(self.operator) && self.operator == 'Exists')"
_SOURCES: Final = ("fieldRef", "resourceFieldRef", "secretKeyRef", "configMapKeyRef")
_GIVEN: Final = ", ".join(f"has(self.valueFrom.{source})" for source in _SOURCES)
_PARTS: Final = (
    Rule(
        "PT1",
        _TOLERATION,
        f"!has(self.value) || self.value == '' || !{_EXISTS}",
        "with operator Exists there is no value",
    ),
    Rule(
        "PT2",
        _TOLERATION,
        f"(has(self.key) && self.key != '') || {_EXISTS}",
        "without a key the operator must be Exists",
    ),
    Rule(
        "PT3",
        _TOLERATION,
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "tolerationSeconds belongs to effect NoExecute",
    ),
    Rule(
        "PT4",
        "spec.podTemplate.env[]",
        "!has(self.valueFrom) || ((!has(self.value) || self.value == '')"
        f" && [{_GIVEN}].filter(given, given).size() == 1)",
        "either a value, or valueFrom with exactly one source",
    ),
    Rule("PT5", "spec.podTemplate.env", _once("name"), "each name once"),
    Rule("PT5", "spec.engine.imagePullSecrets", _once("name"), "each name once"),
    Rule(
        "PT6",
        _SPREAD,
        _once("topologyKey", "whenUnsatisfiable"),
        "each topologyKey once with the same whenUnsatisfiable",
    ),
    Rule(
        "PT7",
        f"{_SPREAD}[]",
        "!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
        "minDomains belongs to whenUnsatisfiable DoNotSchedule",
    ),
    Rule(
        "PT8",
        f"{_SPREAD}[]",
        "!has(self.matchLabelKeys) || size(self.matchLabelKeys) == 0 || has(self.labelSelector)",
        "matchLabelKeys needs a labelSelector",
    ),
)


def pod_rules(kind: str) -> Iterator[Rule]:
    """Yield the rules of a kind."""
    for path in _LABELS.get(kind, ()):
        yield Rule("KN1", path, _KEY, "a key must be a name such as team or example.com/team")
    for path in _RESOURCES.get(kind, ()):
        for field in ("requests", "limits"):
            message = "a resource is cpu, memory, ephemeral-storage or such as example.com/gpu"
            yield Rule("KN2", f"{path}.{field}", _RESOURCE, message)
            yield from (replace(rule, path=f"{path}.{field}") for rule in _sane(field))
        yield Rule("KN3", path, _REQUESTS, "requests must not be more than limits")
    if kind in _WITH_PODS:
        yield from _PARTS
