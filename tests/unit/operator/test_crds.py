"""The CustomResourceDefinitions: committed as generated, structural, described, bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tools.field_reference import reference

from failback.cli.__main__ import main
from failback.kube.resources import RESOURCES
from failback.operator.schema.cel import rules_of
from failback.operator.schema.crds import crd_files, crd_of, schema_of
from failback.operator.schema.decoding import KINDS

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "charts/failback/crds-src"
SHORT_NAMES = {
    "NameServer": ("nameservers", "fns"),
    "BrokerCluster": ("brokerclusters", "fbc"),
    "Topic": ("topics", "fbt"),
    "SubscriptionGroup": ("subscriptiongroups", "fbg"),
    "RoleSwitch": ("roleswitches", "fbs"),
    "OffsetSnapshot": ("offsetsnapshots", "fbo"),
    "ChaosExperiment": ("chaosexperiments", "fbx"),
    "ReconsumptionReport": ("reconsumptionreports", "fbr"),
}


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every node of a schema with its path."""
    yield path, node
    for name, each in node.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


def test_the_committed_files_are_the_generated_ones() -> None:
    committed = {file.name: file.read_text() for file in COMMITTED.glob("*.yaml")}
    assert committed == crd_files(), "run: failback operator crds --out charts/failback/crds-src"


def test_a_reader_of_yaml_1_1_such_as_kubectl_reads_what_was_meant() -> None:
    reader = YAML(typ="safe", pure=True)
    for kind in KINDS:
        reader.version = "1.1"
        text = (COMMITTED / f"{RESOURCES[kind][2]}.yaml").read_text()
        assert reader.load(text) == crd_of(kind)


def test_the_committed_field_reference_is_the_generated_one() -> None:
    text = (ROOT / "docs/reference/resources.md").read_text()
    assert text == reference(), "run: python tools/reference_pages.py"


def test_the_command_writes_and_prints_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["operator", "crds", "--out", str(tmp_path / "crds")]) == 0
    written = {file.name: file.read_text() for file in (tmp_path / "crds").iterdir()}
    assert written == crd_files()
    capsys.readouterr()
    assert main(["operator", "crds"]) == 0
    printed = list(YAML(typ="safe", pure=True).load_all(capsys.readouterr().out))
    assert printed == [crd_of(kind) for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_has_names_subresources_and_columns(kind: str) -> None:
    spec = crd_of(kind)["spec"]
    names = spec["names"]
    assert (names["plural"], *names["shortNames"]) == SHORT_NAMES[kind]
    assert names["categories"] == ["failback"]
    (version,) = spec["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"]["status"] == {}
    assert [column["name"] for column in version["additionalPrinterColumns"]][-1] == "Age"


def test_pairs_and_replicas_can_be_scaled() -> None:
    paths = {
        kind: crd_of(kind)["spec"]["versions"][0]["subresources"].get("scale", {}) for kind in KINDS
    }
    assert {kind: scale["specReplicasPath"] for kind, scale in paths.items() if scale} == {
        "NameServer": ".spec.replicas",
        "BrokerCluster": ".spec.pairs",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_column_and_selectable_field_stands_in_the_schema(kind: str) -> None:
    paths = {path.replace("[]", "") for path, _ in nodes(schema_of(kind))}
    (version,) = crd_of(kind)["spec"]["versions"]
    named = (*version["additionalPrinterColumns"], *version.get("selectableFields", ()))
    for path in (each["jsonPath"] for each in named):
        plain = path.partition("[?")[0].replace("[0]", "").replace("[*]", "")
        assert plain in paths or plain.startswith(".metadata."), path


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural(kind: str) -> None:
    for path, node in nodes(schema_of(kind)):
        assert not {"$ref", "$defs", "title", "const", "oneOf", "allOf"} & set(node), path
        untyped = node.get("x-kubernetes-int-or-string") or (
            node.get("x-kubernetes-preserve-unknown-fields") and "type" not in node
        )
        assert ("type" in node) != bool(untyped), path
        assert not (node.get("properties") and node.get("additionalProperties")), path


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_says_what_it_means(kind: str) -> None:
    schema = schema_of(kind)
    silent = [
        path
        for path, node in nodes(schema)
        if not path.endswith(("[]", "{}", ".metadata")) and not node.get("description")
    ]
    assert silent == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_to_write_is_named_and_not_asked_for(kind: str) -> None:
    """Texts such as "Whose program runs." are riddles to whoever reads ``kubectl explain``."""
    spec = schema_of(kind)["properties"]["spec"]
    riddles = ("Who ", "Whose ", "What is wanted", "What is done to the cluster", "How many run")
    found = [path for path, node in nodes(spec) if node.get("description", "").startswith(riddles)]
    assert found == []


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_rule_may_walk_is_bounded(kind: str) -> None:
    unbounded = []
    for path, node in nodes(schema_of(kind)["properties"]["spec"]):
        if "x-kubernetes-preserve-unknown-fields" in node:
            continue
        bound = {"array": "maxItems", "string": "maxLength"}.get(node.get("type", ""))
        if "additionalProperties" in node:
            bound = "maxProperties"
        if bound and bound not in node and "enum" not in node and not path.endswith("{}"):
            unbounded.append(path)
    assert unbounded == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_of_an_object_holds_the_defaults_of_its_fields(kind: str) -> None:
    """The API server tries rules on defaults as they stand, so they have to be complete."""
    for path, node in nodes(schema_of(kind)):
        if not isinstance(node.get("default"), dict):
            continue
        for name, field in node.get("properties", {}).items():
            assert ("default" not in field) or name in node["default"], f"{path}.{name}"


def test_every_rule_stands_in_its_definition() -> None:
    placed = {
        (kind, entry["rule"], entry["message"])
        for kind in KINDS
        for _, node in nodes(schema_of(kind))
        for entry in node.get("x-kubernetes-validations", ())
    }
    assert placed == {(kind, rule.text, rule.message) for kind in KINDS for rule in rules_of(kind)}
