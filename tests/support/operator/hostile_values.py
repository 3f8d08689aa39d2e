"""Objects with one field set to what nobody should write, for every field of every kind."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from failback.operator.schema.crds import schema_of
from failback.operator.schema.decoding import KINDS
from tests.support.operator.enumerations import BESIDE, LEAST
from tests.support.operator.resources import resource

TEXTS: Final = (
    "",
    " ",
    "-",
    "--",
    "--out=/runs/x",
    "-Dx=y",
    "a b",
    "a\nb",
    "a\rb",
    "a\tb",
    "a\x00b",
    "a\x1b[31mb",
    "a\\",
    "'",
    '"',
    "a=b",
    "a:b",
    "#a",
    "$(touch x)",
    "`x`",
    "; rm -rf /",
    "${HOME}",
    "$(POD_IP)",
    "{x}",
    "{0:>100000000}",
    "%s%n",
    "%(x)s",
    "../../etc",
    "/",
    "ä",
    "日本",
    "\u202ea",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "A" * 64,
    "a" * 254,
    "a" * 2000,
    "null",
    "true",
    "1e999",
    "9" * 40,
    "a\n",
    "1\n",
)
NUMBERS: Final = (-1, 0, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, -0.5, True, "1", None)
KEYS: Final = (
    "",
    " ",
    "a b",
    "a=b",
    "-x",
    "a\nb",
    "ä",
    "a/b/c",
    "A" * 300,
    "failback.dev/x",
    "a:b",
)
OTHERS: Final[tuple[Any, ...]] = (None, "x", 1, True, [], {}, [1], {"a": 1})


def leaves(kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield path and schema of every field of a spec; ``[]`` = the entries of a list."""
    yield from _below(schema_of(kind)["properties"]["spec"], "spec")


def _below(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in node.get("properties", {}).items():
        at = f"{path}.{name}"
        yield at, field
        yield from _below(field, at)
        if "items" in field:
            yield f"{at}[]", field["items"]
            yield from _below(field["items"], f"{at}[]")


def values_of(field: dict[str, Any]) -> Iterator[Any]:
    """Yield values of a field, and some of other types."""
    kind = field.get("type")
    if kind == "string" or "x-kubernetes-int-or-string" in field:
        yield from TEXTS
    if kind in ("integer", "number") or "x-kubernetes-int-or-string" in field:
        yield from NUMBERS
    if kind == "boolean":
        yield from (None, "true", 1, 0)
    if kind == "object":
        if "properties" not in field:
            yield from ({key: "x"} for key in KEYS)
            yield from ({"a": text} for text in TEXTS)
        yield from (None, "x", 1, [])
    if kind == "array":
        yield from (None, "x", 1, {}, [None])
    if kind is None and "x-kubernetes-int-or-string" not in field:
        yield from OTHERS


def documents(kind: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield path, value and object."""
    for path, field in leaves(kind):
        for value in values_of(field):
            yield path, value, with_value(kind, path, value)


def with_value(kind: str, path: str, value: Any) -> dict[str, Any]:
    """Return an object of a kind with one value set; parents are made as they are needed."""
    made = resource(kind, "orders", **copy.deepcopy(LEAST[kind]))
    node: Any = made["spec"]
    *parents, last = path.removeprefix("spec.").split(".")
    for part in parents:
        name = part.removesuffix("[]")
        if part.endswith("[]"):
            entries = node.setdefault(name, [])
            if not entries:
                entries.append(copy.deepcopy(BESIDE.get(part, {})))
            node = entries[0]
        else:
            node = node.setdefault(name, {})
    if last.endswith("[]"):
        node[last.removesuffix("[]")] = [value]
    else:
        node[last] = value
    return made


def count() -> int:
    """Return how many objects there are."""
    return sum(1 for kind in KINDS for _ in documents(kind))
