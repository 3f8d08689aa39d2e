"""The published schema of ``report.json``, checked at every write and every read.

A report says ``failback.report/1``. New fields may come at any time within ``/1``; readers keep
what they do not know. A field that is removed or gets another type makes ``/2``, which this version
refuses by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jsonschema

from failback.analytics.errors import ReportInputError

Report = dict[str, Any]

SCHEMA: Final = "failback.report/1"
MOST_INTEGER: Final = 2**53
"""Integers above are no JSON numbers that every reader keeps: they have to be texts."""


@cache
def report_schema() -> Report:
    """The JSON Schema of ``report.json``."""
    text = resources.files("failback.analytics").joinpath("report.schema.json").read_text("utf-8")
    found: Report = json.loads(text)
    return found


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(report_schema())


def check_report(document: Report) -> None:
    """Raise ``jsonschema.ValidationError`` where a report does not match its schema."""
    _validator().validate(document)
    for path, value in _integers(document, "$"):
        if abs(value) > MOST_INTEGER:
            problem = f"{value} is above 2^53: it must be a text"
            raise jsonschema.ValidationError(f"{path}: {problem}")


def _integers(value: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield path, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _integers(each, f"{path}.{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _integers(each, f"{path}[{number}]")


def read_report(path: Path) -> Report:
    """Read and check a ``report.json``; fields that this version does not know are kept.

    Raises:
        ReportInputError: It cannot be read, is of another version, or breaks the schema; names
            the field.
    """
    try:
        document: Report = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ReportInputError(f"cannot be read: {error}", path) from error
    version = document.get("schema") if isinstance(document, dict) else None
    if version != SCHEMA:
        raise ReportInputError(f"schema is {version!r}, this version reads {SCHEMA!r}", path)
    try:
        check_report(document)
    except jsonschema.ValidationError as error:
        raise ReportInputError(f"{error.json_path}: {error.message}", path) from error
    return document
