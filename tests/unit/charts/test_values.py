"""The chart's values, their schema and the dashboards, as files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from tests.support.processes.child_process import ROOT

CHART = ROOT / "charts" / "failback"
VALUES: dict[str, Any] = YAML(typ="safe").load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def closed_objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return every object of the schema that lists its properties, with its path."""
    if "properties" in schema:
        yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from closed_objects(inner, f"{path}.{name}" if path else name)


def value_at(path: str) -> Any:
    found: Any = VALUES
    for name in filter(None, path.split(".")):
        found = found[name]
    return found


def test_the_defaults_follow_the_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)


def test_schema_and_values_know_the_same_names() -> None:
    for path, schema in closed_objects(SCHEMA):
        assert schema["additionalProperties"] is False, path
        if path != "image.pullSecrets":
            extra = {"": {"global"}, "resources": {"claims"}, "dashboard": {"collector"}}
            assert set(schema["properties"]) - extra.get(path, set()) == set(value_at(path)), path


def test_a_name_that_is_unknown_is_refused() -> None:
    """At the top; elsewhere the schema is closed by the test above."""
    with pytest.raises(jsonschema.ValidationError, match="'nosuch' was unexpected"):
        jsonschema.validate({**VALUES, "nosuch": 1}, SCHEMA)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replicas", 6),
        ("replicas", -1),
        ("logFormat", "xml"),
        ("resyncSeconds", 0),
        ("watchNamespaces", ["a", "a"]),
        ("watchNamespaces", ["Shop"]),
        ("rbac", {"scope": "everything"}),
        ("runs", {"size": "ten"}),
        ("runs", {"size": "500m"}),
        ("collector", {"storage": {"size": "20"}}),
        ("podMonitors", {"interval": "often"}),
        ("nodeSelector", {"disk": 1}),
        ("fullnameOverride", "Failback"),
        ("nameOverride", "a" * 31),
        ("commonLabels", {"app.kubernetes.io/name": "mine"}),
        ("commonLabels", {"team": "a b"}),
        ("extraEnv", [{"value": "1"}]),
        ("topologySpreadConstraints", [{"maxSkew": 1}]),
        ("collector", {"tokensSecret": ""}),
        ("resources", {"limits": {"memory": "512m"}}),
        ("resources", {"requests": {"cpu": "512Mi"}}),
        ("collector", {"resources": {"limits": {"memory": 512}}}),
        ("dashboard", {"resources": {"requests": {"ephemeral-storage": "500m"}}}),
        (
            "exporters",
            [{"name": "a", "nameServers": ["a:1"], "resources": {"limits": {"memory": "1"}}}],
        ),
    ],
)
def test_a_value_that_means_nothing_is_refused(name: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**VALUES, name: value}, SCHEMA)


@pytest.mark.parametrize("memory", ["512Mi", "0.5Gi", "300M", 536870912, "524288Ki"])
def test_amounts_of_a_pod_are_taken(memory: str | int) -> None:
    amounts = {"cpu": "500m", "memory": memory, "example.com/gpu": 1}
    jsonschema.validate({**VALUES, "resources": {"requests": amounts}}, SCHEMA)


def test_every_value_is_used_by_a_template() -> None:
    templates = "".join(path.read_text() for path in sorted((CHART / "templates").rglob("*.*")))
    top = set(re.findall(r"\.Values\.(\w+)", templates))
    assert top == set(VALUES)
