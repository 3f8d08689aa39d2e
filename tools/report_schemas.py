"""Write the schemas of ``report.json`` and of predictions: ``python tools/report_schemas.py``.

They are made of the structs in ``report/blocks`` and ``tools/predict_document.py``; a test
compares. Types are written out where they are used: a schema is read without following references.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec
from tools.predict_document import PredictDocument

from failback.analytics.report.blocks.report import Report

ROOT: Final = Path(__file__).resolve().parent.parent / "analytics" / "failback" / "analytics"
SCHEMAS: Final[dict[Path, tuple[type[msgspec.Struct], str, str, str]]] = {
    ROOT / "report" / "report.schema.json": (
        Report,
        "failback.report/1",
        "Failback report",
        "Times *_ns are ns after run zero; null is not measurable, never 0; integers above 2^53 are"
        " strings.",
    ),
    ROOT / "predict" / "predict.schema.json": (
        PredictDocument,
        "failback.predict/1",
        "Failback prediction",
        "Figures are messages. Median, band, mean and max come from the draws; worst is the closed"
        " form and never below max. null: not known.",
    ),
}
"""File: struct, id, title, description."""
_ORDER: Final = ("description", "const", "enum", "type", "minimum", "pattern", "minItems",
                 "maxItems", "items", "properties", "required", "additionalProperties")  # fmt: skip


def schema_of(struct: type[msgspec.Struct], name: str, title: str, description: str) -> str:
    """Return the content of a schema's file."""
    (root,), parts = msgspec.json.schema_components([struct], ref_template="{name}")
    found = _plain(root, parts)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        "title": title,
        "description": description,
    }
    return json.dumps({**head, **found, "description": description}, indent=1) + "\n"


def _plain(node: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The same without references, with one list of types where a value may be of several."""
    if "$ref" in node:
        inner = {key: value for key, value in parts[node["$ref"]].items() if key != "description"}
        node = {**inner, **{key: value for key, value in node.items() if key != "$ref"}}
    found: dict[str, Any] = {key: node[key] for key in _ORDER if key in node}
    if "anyOf" in node:
        forms = [_plain(form, parts) for form in node["anyOf"]]
        kinds = [form["type"] for form in forms if "type" in form]
        found = {key: value for form in forms for key, value in form.items()} | found
        if len(kinds) == len(forms):
            found["type"] = kinds
    if len(found.get("enum", ())) == 1:
        found["const"] = found.pop("enum")[0]
    if "items" in node:
        found["items"] = _plain(node["items"], parts)
    if "properties" in node:
        found["properties"] = {
            name: _plain(field, parts) for name, field in node["properties"].items()
        }
    kind = found.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind):
        more = node.get("additionalProperties", found.get("additionalProperties", True))
        found["additionalProperties"] = _plain(more, parts) if isinstance(more, dict) else True
    found.pop("title", None)
    return {key: found[key] for key in _ORDER if key in found}


def main() -> int:
    for path, described in SCHEMAS.items():
        path.write_text(schema_of(*described), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
