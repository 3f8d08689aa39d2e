"""Rules about parts of a pod that only together make none. Both as CEL and in Python.

Kubernetes would refuse the whole StatefulSet, or its apply where a list names an entry twice, after
other objects were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from failback.operator.kinds.base import EnvironmentVariable, Named, Resource
from failback.operator.schema import rule_texts
from failback.operator.schema.key_rules import Broken, found_at

_SOURCES: Final = ("fieldRef", "resourceFieldRef", "secretKeyRef", "configMapKeyRef")
_KINDS: Final = ("NameServer", "BrokerCluster")
_Entry = Mapping[str, Any]


class _Rule(NamedTuple):
    """One rule: where it stands, as CEL, its message, and what holds of what is there."""

    id: str
    path: str
    text: str
    message: str
    holds: Callable[[Any], bool]


def _is_tolerated(entry: _Entry) -> bool:
    return not entry.get("value") or entry.get("operator") != "Exists"


def _has_a_key(entry: _Entry) -> bool:
    return bool(entry.get("key")) or entry.get("operator") == "Exists"


def _ends_by_eviction(entry: _Entry) -> bool:
    return "tolerationSeconds" not in entry or entry.get("effect") == "NoExecute"


def _has_one_value(entry: EnvironmentVariable) -> bool:
    if entry.value_from is None:
        return True
    source = entry.value_from
    given = (
        source.field_ref, source.resource_field_ref,
        source.secret_key_ref, source.config_map_key_ref,
    )  # fmt: skip
    return not entry.value and sum(each is not None for each in given) == 1


def _may_have_domains(entry: _Entry) -> bool:
    return "minDomains" not in entry or entry["whenUnsatisfiable"] == "DoNotSchedule"


def _has_labels_to_match(entry: _Entry) -> bool:
    return not entry.get("matchLabelKeys") or "labelSelector" in entry


def _names_once(entries: Sequence[Named | EnvironmentVariable]) -> bool:
    return len({each.name for each in entries}) == len(entries)


def _spreads_once(entries: Sequence[_Entry]) -> bool:
    pairs = {(each["topologyKey"], each["whenUnsatisfiable"]) for each in entries}
    return len(pairs) == len(entries)


def _once(*fields: str) -> str:
    same = " && ".join(f"y.{field} == x.{field}" for field in fields)
    return f"self.all(x, self.exists_one(y, {same}))"


_TOLERATION: Final = "spec.podTemplate.tolerations[]"
_SPREAD: Final = "spec.podTemplate.topologySpreadConstraints"
_EXISTS: Final = "(has(self.operator) && self.operator == 'Exists')"
_GIVEN: Final = ", ".join(f"has(self.valueFrom.{source})" for source in _SOURCES)
_RULES: Final = (
    _Rule(
        "PT1",
        _TOLERATION,
        f"!has(self.value) || self.value == '' || !{_EXISTS}",
        rule_texts.EXISTS_HAS_NO_VALUE,
        _is_tolerated,
    ),
    _Rule(
        "PT2",
        _TOLERATION,
        f"(has(self.key) && self.key != '') || {_EXISTS}",
        rule_texts.EVERY_KEY_EXISTS,
        _has_a_key,
    ),
    _Rule(
        "PT3",
        _TOLERATION,
        "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        rule_texts.SECONDS_OF_NO_EXECUTE,
        _ends_by_eviction,
    ),
    _Rule(
        "PT4",
        "spec.podTemplate.env[]",
        "!has(self.valueFrom) || ((!has(self.value) || self.value == '')"
        f" && [{_GIVEN}].filter(given, given).size() == 1)",
        rule_texts.ONE_VALUE,
        _has_one_value,
    ),
    _Rule("PT5", "spec.podTemplate.env", _once("name"), rule_texts.NAMED_ONCE, _names_once),
    _Rule("PT5", "spec.engine.imagePullSecrets", _once("name"), rule_texts.NAMED_ONCE, _names_once),
    _Rule(
        "PT6",
        _SPREAD,
        _once("topologyKey", "whenUnsatisfiable"),
        rule_texts.SPREAD_ONCE,
        _spreads_once,
    ),
    _Rule(
        "PT7",
        f"{_SPREAD}[]",
        "!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
        rule_texts.DOMAINS_OF_DO_NOT_SCHEDULE,
        _may_have_domains,
    ),
    _Rule(
        "PT8",
        f"{_SPREAD}[]",
        "!has(self.matchLabelKeys) || size(self.matchLabelKeys) == 0 || has(self.labelSelector)",
        rule_texts.KEYS_NEED_SELECTOR,
        _has_labels_to_match,
    ),
)


def expressions(kind: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield id, path, CEL expression and message of each rule of a kind."""
    if kind in _KINDS:
        for rule in _RULES:
            yield rule[:4]


def broken_parts(resource: Resource) -> Iterator[Broken]:
    """Yield the same rules where an object breaks them."""
    if resource.kind not in _KINDS:
        return
    for rule in _RULES:
        for at, entry in found_at(resource, rule.path):
            if not rule.holds(entry):
                yield Broken(rule.id, at, rule.message, at)
