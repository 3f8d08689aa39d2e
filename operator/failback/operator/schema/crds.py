"""CustomResourceDefinitions from the models: structural schemas, columns, CEL rules. Pure.

Called by ``failback operator crds``, which writes the files of ``charts/failback/crds-src``.
The schema of a field is the model's; its description is the docstring under the field.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from ruamel.yaml import YAML

from failback.kube.resources import GROUP, RESOURCES, SHORT_NAMES, VERSION
from failback.operator.schema.cel import rules_of
from failback.operator.schema.decoding import KINDS

CATEGORY: Final = "failback"
_INT64: Final = 2**63 - 1
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``; ``wide`` ones need ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


def _condition(kind: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_READY: Final = Column("Ready", _condition("Ready"))
_REASON: Final = Column("Reason", _condition("Ready", "reason"))
_CLUSTER: Final = Column("Cluster", ".spec.clusterRef.name")
_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "NameServer": (
        _READY,
        _REASON,
        Column("Replicas", ".spec.replicas", "integer"),
        Column("Addresses", ".status.addresses", wide=True),
    ),
    "BrokerCluster": (
        _READY,
        _REASON,
        Column("Pairs", ".spec.pairs", "integer"),
        Column("Ready-Pairs", ".status.readyPairs", "integer"),
        Column("Masters", ".status.masters"),
        Column("Operation", ".status.currentOperation.type"),
        Column("Step", ".status.currentOperation.step"),
        Column("Role", ".spec.masterRole", wide=True),
        Column("Flush", ".spec.flushDiskType", wide=True),
        Column("SlaveRead", ".spec.slaveReadEnable", "boolean", wide=True),
        Column("Engine", ".spec.engine.type", wide=True),
    ),
    "Topic": (
        _READY,
        _REASON,
        Column("Synced", _condition("Synced")),
        _CLUSTER,
        Column("Topic", ".status.topicName"),
        Column("Read", ".spec.readQueueNums", "integer"),
        Column("Write", ".spec.writeQueueNums", "integer"),
        Column("Perm", ".spec.perm", "integer"),
    ),
    "SubscriptionGroup": (
        _READY,
        _REASON,
        Column("Synced", _condition("Synced")),
        _CLUSTER,
        Column("Group", ".status.groupName"),
        Column("RetryMax", ".spec.retryMaxTimes", "integer"),
    ),
    "RoleSwitch": (
        _CLUSTER,
        Column("Pair", ".spec.pair"),
        Column("From", ".status.fromMember"),
        Column("To", ".status.toMember"),
        Column("Phase", ".status.phase"),
        Column("Safe", _condition("Safe")),
    ),
    "OffsetSnapshot": (
        _READY,
        _CLUSTER,
        Column("Every", ".spec.every"),
        Column("Last", ".status.lastSnapshot", "date"),
        Column("Restore", ".status.restore.phase"),
        Column("Again", ".status.restore.redelivered", "integer"),
        Column("Skipped", ".status.restore.skipped", "integer"),
    ),
    "ChaosExperiment": (
        _CLUSTER,
        Column("Fault", ".spec.faults[0].fault"),
        Column("Phase", ".status.phase"),
        Column("Arm", ".status.activeArm"),
        Column("Verdict", ".status.verdict"),
    ),
    "ReconsumptionReport": (
        Column("Phase", ".status.phase"),
        Column("Verdict", ".status.verdict"),
        Column("Outcome", ".status.outcome"),
        Column("Dup-Ratio", ".status.duplicateRatio"),
        Column("Lost", ".status.lost", "integer"),
        Column("Rewound", ".status.rewoundOffsets", "integer"),
        Column("Experiment", ".spec.experimentRef.name", wide=True),
    ),
}
"""Of each kind, without the age, which is the last of all."""
_SCALED: Final = {"NameServer": "replicas", "BrokerCluster": "pairs"}
"""The field of the spec that the scale subresource of a kind sets."""


def crd_of(kind: str) -> Schema:
    """Return the CustomResourceDefinition of one kind."""
    columns = (*COLUMNS[kind], _AGE)
    plural = RESOURCES[kind][2]
    subresources: Schema = {"status": {}}
    if kind in _SCALED:
        subresources["scale"] = {
            "specReplicasPath": f".spec.{_SCALED[kind]}",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version: Schema = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(each) for each in columns],
        "schema": {"openAPIV3Schema": schema_of(kind)},
        "subresources": subresources,
    }
    if _CLUSTER in columns:
        version["selectableFields"] = [{"jsonPath": _CLUSTER.path}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [SHORT_NAMES[kind]],
                "categories": [CATEGORY],
            },
            "conversion": {"strategy": "None"},
            "versions": [version],
        },
    }


def crd_files() -> dict[str, str]:
    """Return name and text of the file of every CRD."""
    return {f"{RESOURCES[kind][2]}.yaml": _yaml_text(crd_of(kind)) for kind in KINDS}


@functools.cache
def schema_of(kind: str) -> Schema:
    """Return the structural schema of one kind, rules included."""
    model = KINDS[kind]
    spec = _schema_of_model(model.model_fields["spec"].annotation)
    if not model.model_fields["spec"].is_required():
        spec["default"] = _filled({}, spec)
    schema: Schema = {
        "type": "object",
        "description": _sentence(model.__doc__ or ""),
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _nullable(_schema_of_model(model.status_model)),
        },
    }
    if model.model_fields["spec"].is_required():
        schema["required"] = ["spec"]
    _add_rules(kind, schema)
    return schema


def _column(column: Column) -> Schema:
    row: Schema = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.wide:
        row["priority"] = 1
    return row


class _FactoriesAsDefaults(GenerateJsonSchema):
    """JSON schema in which a nested model's default is written out as its set fields."""

    def get_default_value(self, schema: Any) -> Any:
        if "default_factory" in schema:
            return _plain(schema["default_factory"]())
        return super().get_default_value(schema)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def _schema_of_model(model: Any) -> Schema:
    source = model.model_json_schema(by_alias=True, schema_generator=_FactoriesAsDefaults)
    return _structural(source, source.get("$defs", {}))


def _nullable(node: Schema) -> Schema:
    """Allow null wherever a field may be left out: what is not known is written so in a list."""
    for name, field_schema in node.get("properties", {}).items():
        if name not in node.get("required", ()) and "default" not in field_schema:
            field_schema["nullable"] = True
        _nullable(field_schema)
    if "items" in node:
        _nullable(node["items"])
    return node


def _structural(node: Schema, shared: Mapping[str, Schema]) -> Schema:
    """Return ``node`` in the dialect of the API server: no references, no unions with null."""
    if "$ref" in node:
        target = shared[node["$ref"].rsplit("/", 1)[1]]
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _structural({**target, **beside}, shared)
    if _PRESERVE in node and "anyOf" in node:  # a union that no structural type can say
        return _kept(node, {_PRESERVE: True})
    if "anyOf" in node and "x-kubernetes-int-or-string" not in node:
        (only,) = [each for each in node["anyOf"] if each.get("type") != "null"]
        beside = {key: value for key, value in node.items() if key != "anyOf"}
        return _structural({**only, **beside}, shared)
    return _kept(node, _typed(node, shared))


def _typed(node: Schema, shared: Mapping[str, Schema]) -> Schema:
    if "properties" in node:
        out: Schema = {
            "type": "object",
            "properties": {
                name: _structural(each, shared) for name, each in node["properties"].items()
            },
        }
        if node.get("required"):
            out["required"] = sorted(node["required"])
        return out
    if node.get("type") == "array":
        return {"type": "array", "items": _structural(node["items"], shared)}
    if node.get("type") == "object":
        values = node.get("additionalProperties")
        if not isinstance(values, dict) or _is_mixed(values):
            return {"type": "object", _PRESERVE: True}
        return {"type": "object", "additionalProperties": _structural(values, shared)}
    if "x-kubernetes-int-or-string" in node:
        return {"anyOf": node["anyOf"], "x-kubernetes-int-or-string": True}
    if "const" in node:
        return {"type": node["type"], "enum": [node["const"]]}
    return {"type": node["type"], **({"enum": node["enum"]} if "enum" in node else {})}


def _is_mixed(values: Schema) -> bool:
    return len([each for each in values.get("anyOf", ()) if each.get("type") != "null"]) > 1 and (
        "x-kubernetes-int-or-string" not in values
    )


_VALUE_KEYS: Final = (
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)


def _kept(node: Schema, out: Schema) -> Schema:
    """Add what the API server and we spell alike."""
    if description := _sentence(node.get("description", "")):
        out["description"] = description
    default = node.get("default")
    if isinstance(default, dict) and "properties" in out:
        default = _filled(default, out)
    if default not in (None, [], {}):
        out["default"] = default
    for key in _VALUE_KEYS:
        if key in node:
            out[key] = node[key]
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in node:
            out[inclusive], out[exclusive] = node[exclusive], True
    if out.get("maximum") == _INT64:  # the server keeps bounds as doubles, which can't say this one
        del out["maximum"]
        out["format"] = "int64"
    return out


def _filled(value: Schema, node: Schema) -> Schema:
    """Return a default with the defaults of its own fields: rules are tried on it as it stands."""
    inner = {
        name: each["default"] for name, each in node["properties"].items() if "default" in each
    }
    return {**inner, **value}


def _sentence(text: str) -> str:
    """Return a docstring as paragraphs of one line each."""
    paragraphs = text.replace("``", "").strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _add_rules(kind: str, schema: Schema) -> None:
    for rule in rules_of(kind):
        node = _at(schema, rule.path)
        entry = {"rule": rule.text, "message": rule.message}
        node.setdefault("x-kubernetes-validations", []).append(entry)


def _at(schema: Schema, path: str) -> Schema:
    """Return the node at a path such as ``spec.pairOverrides[].config``."""
    node = schema
    for part in filter(None, path.split(".")):
        node = node["properties"][part.removesuffix("[]")]
        if part.endswith("[]"):
            node = node["items"]
    return node


_DIRECTIVE: Final = "%YAML 1.1\n---\n"


def _yaml_text(document: Schema) -> str:
    """Return YAML that kubectl and Helm read as it is meant: to YAML 1.1 a bare Off is false."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # declared as None
    yaml.width = 100
    stream = io.StringIO()
    yaml.dump(document, stream)
    text = stream.getvalue().removeprefix(_DIRECTIVE)
    return f"# Generated by `failback operator crds`; do not edit.\n{text}"
