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
from failback.analytics.report.blocks import LARGE
from failback.common.files import parsed, read_file
from failback.common.text import why

Report = dict[str, Any]

SCHEMA: Final = "failback.report/1"
MOST_INTEGER: Final = 2**53
"""Integers above are no JSON numbers that every reader keeps: in the file they are texts."""


@cache
def report_schema() -> Report:
    """The JSON Schema of ``report.json``."""
    text = (
        resources.files("failback.analytics.report")
        .joinpath("report.schema.json")
        .read_text("utf-8")
    )
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


def report_bytes(document: Report) -> bytes:
    """The content of a ``report.json``. Raises ``jsonschema.ValidationError`` as check_report."""
    plain = _with_texts(document)
    check_report(plain)
    return json.dumps(plain, ensure_ascii=False, indent=1).encode() + b"\n"


def _with_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_texts(each) for each in value]
    return str(value) if isinstance(value, int) and abs(value) > MOST_INTEGER else value


def _with_numbers(value: Any, schema: Report) -> Any:
    """Texts of large integers as integers, where the schema says that they are."""
    if isinstance(value, str):
        return int(value) if schema.get("pattern") == LARGE else value
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_with_numbers(each, items) for each in value]
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        other = rest if isinstance(rest, dict) else {}
        return {name: _with_numbers(each, known.get(name, other)) for name, each in value.items()}
    return value


def read_report(path: Path) -> Report:
    """Read and check a ``report.json``; fields that this version does not know are kept.

    Raises:
        ReportInputError: It cannot be read, is of another version, or breaks the schema; names
            the field.
    """
    try:
        content = read_file(path)
    except OSError as error:
        raise ReportInputError(f"cannot be read: {why(error)}", path) from error
    return parse_report(content, path)


def parse_report(content: bytes, path: Path | str) -> Report:
    """The same of what was read from ``path``."""
    try:
        document: Report = parsed(content)
    except ValueError as error:
        raise ReportInputError(f"cannot be read: {why(error)}", path) from error
    version = document.get("schema") if isinstance(document, dict) else None
    if version != SCHEMA:
        raise ReportInputError(f"schema is {version!r}, this version reads {SCHEMA!r}", path)
    try:
        check_report(document)
    except jsonschema.ValidationError as error:
        raise ReportInputError(f"{error.json_path}: {error.message}", path) from error
    found: Report = _with_numbers(document, report_schema())
    return found
