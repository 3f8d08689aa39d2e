"""The published schemas are those of the structs; reports and predictions match them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tools.report_schemas import SCHEMAS, schema_of

from failback.analytics.report.blocks.report import Report
from failback.analytics.report.schema import report_schema
from tests.support.analytics.sample_report import compared_report


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: str(path.name))
def test_a_committed_schema_is_that_of_its_structs(path: Path) -> None:
    committed = path.read_text(encoding="utf-8")
    assert committed == schema_of(*SCHEMAS[path]), "run python tools/report_schemas.py"


def fields(node: Any, path: str) -> list[tuple[str, Any]]:
    """Every field below a schema, by its path."""
    found = []
    for name, field in node.get("properties", {}).items():
        found += [(f"{path}.{name}", field), *fields(field, f"{path}.{name}")]
    for inner in ("items", "additionalProperties"):
        if isinstance(node.get(inner), dict):
            found += fields(node[inner], path)
    return found


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: str(path.name))
def test_every_field_says_what_it_means_and_none_is_a_reference(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))
    assert "$ref" not in path.read_text(encoding="utf-8")
    assert [name for name, field in fields(schema, "") if not field.get("description")] == []


def test_structs_take_a_report_as_it_is() -> None:
    found = msgspec.convert(compared_report(), Report)
    assert (found.totals.dup, found.groups[0].group) == (40, "billing")
    assert found.compare is not None
    assert [arm.name for arm in found.compare.arms] == ["handover", "stay"]


def test_further_fields_may_come_within_a_version() -> None:
    schema = report_schema()
    objects = [schema, *(field for _, field in fields(schema, "") if "properties" in field)]
    assert all(each["additionalProperties"] is True for each in objects)
