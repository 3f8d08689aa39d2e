"""Evaluates the CRDs' CEL rules on objects in this process.

The API server evaluates the same texts (:mod:`failback.operator.schema.cel`), so it and the local
runtime refuse the same objects in the same words. Planning asks too, for objects that were stored
before a rule existed. Two checks are here alone: the values of broker.conf keys, which the schema
does not know, and entries that a list has twice, which the API server refuses by the list's type.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any, Final

from failback.operator.engines.catalogue import config_keys
from failback.operator.kinds.base import Resource, parse_quantity
from failback.operator.schema.cel import rules_of
from failback.operator.schema.rule_texts import Rule

if TYPE_CHECKING:
    import cel

_CONFIG: Final = {
    "BrokerCluster": ("spec.config", "spec.pairOverrides[].config"),
    "ChaosExperiment": ("spec.arms[].brokerConfig",),
}
_KEYS_OF_LISTS: Final = {
    "BrokerCluster": (("spec.pairOverrides", "index"),),
    "ChaosExperiment": (
        ("spec.arms", "name"),
        ("spec.workload.topics", "name"),
        ("spec.workload.groups", "name"),
    ),
}
_FUNCTIONS: Final = {
    "compareTo": lambda one, other: (one > other) - (one < other),
    "length": len,
    "lowerAscii": str.lower,
    "quantity": lambda text: float(parse_quantity(text)),
    "replace": lambda text, old, new: text.replace(old, new),
    "sum": sum,
}
"""What Kubernetes adds to CEL, as far as the rules call it."""
_FIELD: Final = re.compile(r"\bself(?:((?:\.\w+\b(?!\())+)|\['([\w-]+)'\])")


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, as the API server tells it: rule id, path of the rule, message.

    ``field`` and ``detail`` are finer: the field to edit and what is wrong with its value, for
    messages that name a line of a file.
    """

    rule: str
    path: str
    message: str
    field: str = ""
    detail: str = ""

    def __str__(self) -> str:
        """Return it as conditions show it: ``BC6 spec: SYNC_MASTER needs a slave``."""
        return f"{self.rule} {self.path or self.field}: {self.message}"


def violations(new: Resource, old: Resource | None = None) -> list[Violation]:
    """Return every rule that ``new`` breaks, as a change of ``old`` if given."""
    return list(_violations(new.kind, _as_json(new), None if old is None else _as_json(old)))


def _as_json(resource: Resource) -> str:
    return resource.model_dump_json(by_alias=True, exclude_none=True)


@functools.lru_cache(maxsize=1024)
def _violations(kind: str, new: str, old: str | None) -> tuple[Violation, ...]:
    """Return what an object breaks; the answer is kept, as objects at rest are asked about often.

    Args:
        new: The object as JSON, defaults included.
        old: The stored object, likewise.
    """
    resource = json.loads(new)
    stored = None if old is None else json.loads(old)
    found = [each for rule in rules_of(kind) for each in _broken(rule, resource, stored)]
    refused = {each.field for each in found}
    found += (each for each in _config_values(kind, resource) if each.field not in refused)
    found += _listed_twice(kind, resource)
    return tuple(found)


def _broken(rule: Rule, resource: Any, stored: Any) -> Iterator[Violation]:
    before = dict(_found_at(stored, rule.path)) if rule.on_change else {}
    for at, node in _found_at(resource, rule.path):
        # Rules on a change don't run where there was nothing before.
        if (rule.on_change and at not in before) or _holds(rule.text, node, before.get(at)):
            continue
        if isinstance(node, dict) and rule.text.startswith("self.all(k, "):
            for key, value in node.items():
                if not _holds(rule.text, {key: value}):
                    yield Violation(rule.id, at, rule.message, f"{at}.{key}")
        else:
            field = _field_to_edit(rule.text, node, before.get(at))
            yield Violation(rule.id, at, rule.message, f"{at}.{field}".strip("."))


def _holds(text: str, node: Any, before: Any = None) -> bool:
    variables = {"self": node} if before is None else {"self": node, "oldSelf": before}
    context = _library().Context(variables, _FUNCTIONS)
    return _program(text).execute(context) is True


@functools.cache
def _program(text: str) -> cel.Program:
    # The library's own size() of a text counts bytes, CEL's counts characters.
    program: cel.Program = _library().compile(text.replace(".size()", ".length()"))
    return program


@functools.cache
def _library() -> Any:
    """Return the library's compiled module.

    An ordinary ``import cel`` also imports its command line, which costs 15 MB and 0.2 s.
    """
    package = importlib.util.find_spec("cel")
    folders = package.submodule_search_locations if package else []
    found = PathFinder.find_spec("cel", folders)
    if found is None or found.loader is None:
        raise ModuleNotFoundError("No module named 'cel'", name="cel")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _field_to_edit(text: str, node: Any, before: Any) -> str:
    """Return the field below a node that makes its rule fail, or an empty text.

    It is the first field (or entry of a list) in the rule's text without which the rule holds.
    Where there is none, it is the first field in the text that the node has.
    """
    given: dict[str, Any] = {}
    for match in _FIELD.finditer(text):
        path = match[2] or match[1].removeprefix(".")
        given.update((path, value) for _, value in _found_at(node, path))
    for path, value in given.items():
        if isinstance(value, list):
            for number in reversed(range(len(value))):
                if _holds_with(text, node, before, path, value[:number] + value[number + 1 :]):
                    return f"{path}[{number}]"
        elif _holds_with(text, node, before, path, None):
            return path
    return next(iter(given), "")


def _holds_with(text: str, node: Any, before: Any, path: str, value: Any) -> bool:
    """Whether a rule holds of a node with another value at a path; ``None`` = without the field."""
    changed = json.loads(json.dumps(node))
    *parents, last = path.split(".")
    place = functools.reduce(lambda each, name: each[name], parents, changed)
    place[last] = value
    if value is None:
        del place[last]
    try:
        return _holds(text, changed, before)
    except KeyError:  # the rule needs the field
        return False


def _config_values(kind: str, resource: Any) -> Iterator[Violation]:
    for path in _CONFIG.get(kind, ()):
        for at, config in _found_at(resource, path):
            for name, value in config.items():
                key = config_keys().get(name)
                if key is not None and (problem := key.problem(value)):
                    where = f"{at}.{name}"
                    yield Violation("config_keys", at, f"{name}: {problem}", where, problem)


def _listed_twice(kind: str, resource: Any) -> Iterator[Violation]:
    for path, key in _KEYS_OF_LISTS.get(kind, ()):
        for at, entries in _found_at(resource, path):
            seen = []
            for position, entry in enumerate(entries):
                if entry[key] in seen:
                    problem = f"{json.dumps(entry[key])} is used twice"
                    yield Violation("schema", f"{at}[{position}].{key}", problem)
                seen.append(entry[key])


def _found_at(node: Any, path: str, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of each node at a path; ``[]`` means each entry of a list."""
    if not path:
        yield at, node
        return
    first, _, rest = path.partition(".")
    name = first.removesuffix("[]")
    if not isinstance(node, Mapping) or name not in node:
        return
    where = f"{at}.{name}" if at else name
    if first.endswith("[]"):
        for number, entry in enumerate(node[name]):
            yield from _found_at(entry, rest, f"{where}[{number}]")
    else:
        yield from _found_at(node[name], rest, where)
