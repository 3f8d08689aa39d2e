"""Warnings of the API server about words in an earlier spelling, as CEL expressions. Pure.

They become ``files/former-spellings.json`` of the chart, which makes a policy of them that warns
and refuses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from failback.operator.schema.crds import schema_of
from failback.operator.schema.decoding import KINDS
from failback.protocol.words.formerly import GONE_IN, former_of

_DRAIN = ("BrokerCluster", "spec.updateStrategy.drainMaster", ["Auto", "auto"])
"""A union: its schema says nothing of words."""

_OF_KUBERNETES = ("tolerations", "topologySpreadConstraints", "securityContext", "affinity")
"""Parts of a pod, whose words are not ours."""


def enumerations() -> Iterator[tuple[str, str, list[Any]]]:
    """Yield kind, path and words of every enumeration of a spec; ``[]`` = each entry of a list."""
    for kind in KINDS:
        yield from _below(kind, schema_of(kind)["properties"]["spec"], "spec")
    yield _DRAIN


def former_rules() -> list[dict[str, str]]:
    """Return expression and message of every warning."""
    found = []
    for kind, path, words in enumerations():
        renamed = former_of(words)
        if renamed:
            old = "[" + ",".join(f"'{word}'" for word in renamed) + "]"
            test = _each("object", path.split("."), f"!(%s.orValue('') in {old})", 0)
            says = ", ".join(f"{new} (was {word})" for word, new in renamed.items())
            found.append(_rule(kind, test, f"{path}: write {says}; not read from {GONE_IN} on"))
    by_number = "spec.pair: write the broker name of the pair, such as orders-1; a number is"
    test = "type(object.spec.pair) != int"
    found.append(_rule("RoleSwitch", test, f"{by_number} not read from {GONE_IN} on"))
    for path in ("spec.faults[].target.pair", "spec.faults[].target.pairSelector"):
        test = _each("object", path.split("."), "!%s.orValue('').matches('^pair-')", 0)
        says = "write the broker name, such as demo-0; pair-0 is not read"
        found.append(_rule("ChaosExperiment", test, f"{path}: {says} from {GONE_IN} on"))
    return found


def _rule(kind: str, test: str, message: str) -> dict[str, str]:
    return {"expression": f"object.kind != '{kind}' || {test}", "message": message}


def _each(node: str, parts: list[str], test: str, depth: int) -> str:
    """Return the test of every value at a path below a node."""
    first, *rest = parts
    at = f"{node}.?{first.removesuffix('[]')}"
    if not first.endswith("[]"):
        return _each(at, rest, test, depth) if rest else test % at
    entry = f"e{depth}"
    return f"{at}.orValue([]).all({entry}, {_each(entry, rest, test, depth + 1)})"


def _below(kind: str, node: dict[str, Any], path: str) -> Iterator[tuple[str, str, list[Any]]]:
    if "enum" in node and node.get("type") == "string":
        yield kind, path, node["enum"]
    for name, field in node.get("properties", {}).items():
        if name not in _OF_KUBERNETES:
            yield from _below(kind, field, f"{path}.{name}")
    if "items" in node:
        yield from _below(kind, node["items"], f"{path}[]")
