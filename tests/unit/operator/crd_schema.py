"""What an API server would say about a value, by the structural schema alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, Any] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def problems(schema: dict[str, Any], value: Any, path: str = "status") -> list[str]:
    """Return what would be refused, and what would be pruned, with its path."""
    return list(_problems(schema, value, path))


def _problems(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if value is None:
        if not schema.get("nullable"):
            yield f"{path}: null"
        return
    if "type" not in schema:
        return
    wrong_bool = isinstance(value, bool) and schema["type"] != "boolean"
    if wrong_bool or not isinstance(value, _TYPES[schema["type"]]):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    yield from _limits(schema, value, path)
    if schema["type"] == "array":
        for index, each in enumerate(value):
            yield from _problems(schema["items"], each, f"{path}[{index}]")
        yield from _same_keys(schema, value, path)
    elif schema["type"] == "object":
        yield from _fields(schema, value, path)


def _limits(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    longest = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
    limit = schema.get(longest.get(schema["type"], ""))
    if limit is not None and len(value) > limit:
        yield f"{path}: longer than {limit}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value} is below {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{path}: {value} is above {schema['maximum']}"


def _same_keys(schema: dict[str, Any], value: list[Any], path: str) -> Iterator[str]:
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        found = [tuple(each.get(key) for key in keys) for each in value]
        if len(set(found)) != len(found):
            yield f"{path}: twice the same {keys}"


def _fields(schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: is required"
    for name, each in value.items():
        if name in schema.get("properties", {}):
            yield from _problems(schema["properties"][name], each, f"{path}.{name}")
        elif "additionalProperties" in schema:
            yield from _problems(schema["additionalProperties"], each, f"{path}.{name}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}: unknown"
