"""Write the reference pages that come from code: ``python tools/reference_pages.py``.

A test compares every page with what its function returns.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import (
    api_page,
    cli_page,
    consume_log_page,
    metrics_page,
    partial_rows_page,
    report_tables_page,
)
from tools.field_reference import reference
from tools.key_meanings import MEANINGS as KEYS

from failback.analytics.analysis.causes.labels import CAUSES, REPORT_GROUPS
from failback.analytics.analysis.causes.meanings import GROUPS, MEANINGS
from failback.analytics.report.schema import report_schema
from failback.broker.config.config import BrokerConfig
from failback.broker.config.config_file import to_text
from failback.operator.engines.catalogue import class_of

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
_CHANGES: Final = {
    "live": "live",
    "roll": "restart",
    "immutable": "never, once a store exists",
    "switch": "role switch",
    "refused": "not offered",
}
_MADE: Final = "Made by `python tools/reference_pages.py` from the code."


def causes() -> str:
    """Return ``reference/causes.md``."""
    parts = [
        "# Causes",
        "A report gives every duplicate one cause. This page says what each means and what prevents"
        " it.\n[How often the label is right](../explanation/attribution.md) is measured.",
        _MADE,
    ]
    for group in REPORT_GROUPS:
        parts.append(f"## {group}")
        parts.append(_sentence(GROUPS[group]))
        for cause in [name for name, its_group in CAUSES.items() if its_group == group]:
            meaning = MEANINGS[cause]
            lines = [f"* **What happened.** {meaning.happened}", f"* **What helps.** {meaning.fix}"]
            if meaning.modes:
                links = [f"[{n}](../explanation/failure-modes.md#mode-{n})" for n in meaning.modes]
                lines.append(f"* **Failure modes.** {', '.join(links)}")
            parts += [f"### {cause}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def broker_conf() -> str:
    """Return ``reference/broker-conf.md``."""
    rows = [
        f"| `{key}` | {_kind(declared)} | {_default(declared)} | {_when(key)} | {KEYS[key]} |"
        for key, declared in sorted(broker_keys().items())
    ]
    return "\n".join(
        [
            "# Keys of broker.conf",
            "",
            "A Failback broker reads the keys of RocketMQ 4.9 and its own, which begin with"
            " `failback`. Keys that",
            "it does not know are kept and shown; what has no effect is listed in one line at the"
            " start. The file is",
            "read as java.util.Properties reads it, a text in UTF-8 as such. `failback broker -p`"
            " prints what a file gives.",
            "What is refused, and what Apache's broker makes of it, is in"
            " [compatibility](../compatibility.md#where-we-differ-from-apache-497-on-purpose).",
            "",
            "Intervals are milliseconds, sizes are bytes, unless the sentence says otherwise."
            " *Changed* says when a new value counts:",
            "*live* at once (`failback admin updateBrokerConfig`), *restart* at the next start."
            " What a running broker",
            "can't take up is refused, with everything that was asked beside it.",
            "",
            _MADE,
            "",
            "| key | type | default | changed | what it does |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def broker_keys() -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of broker.conf by their key."""
    return {
        BrokerConfig.key_of(field.name): field
        for field in dataclasses.fields(BrokerConfig)
        if not field.metadata.get("own")
    }


def _kind(declared: dataclasses.Field[Any]) -> str:
    names = {"bool": "true or false", "int": "integer", "float": "number", "str": "text"}
    if choices := declared.metadata.get("choices"):
        return ", ".join(f"`{choice}`" for choice in choices)
    low, high = declared.metadata.get("range", (None, None))
    kind = names[str(declared.type)]
    if low is None or low < -1:
        return kind
    return f"{kind} from {low:,}" if high > 2**31 else f"{kind} {low:,} to {high:,}"


def _default(declared: dataclasses.Field[Any]) -> str:
    text = to_text(declared.default)
    return f"`{text}`" if text else ""


def _when(key: str) -> str:
    return _CHANGES[class_of(key, "failback")]


def report_json() -> str:
    """Return ``reference/report-json.md``."""
    schema = report_schema()
    parts = [
        "# report.json",
        f"Schema `{schema['$id']}`; `failback report --schema` prints it as JSON Schema."
        f" {schema['description']}\nA field in **bold** is always there. `[]` is an entry of a"
        " list, `*` any key. Within `/1` fields are only added.",
        _MADE,
    ]
    plain: list[str] = []
    for name, field in schema["properties"].items():
        rows = list(_fields(field, name))
        if not rows:
            mark = "**" if name in schema.get("required", ()) else ""
            plain.append(f"| {mark}`{name}`{mark} | {_type(field)} | {_text(field)} |")
            continue
        parts.append(f"## {name}")
        if text := _text(field):
            parts.append(text)
        parts.append("\n".join(["| field | type | meaning |", "|---|---|---|", *rows]))
    first = ["## Fields of the report itself"]
    first.append("\n".join(["| field | type | meaning |", "|---|---|---|", *plain]))
    return "\n\n".join([*parts[:3], *first, *parts[3:]]) + "\n"


def _fields(node: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield a row for every field below ``node``."""
    node = _resolved(node)
    if "items" in node:
        yield from _fields(node["items"], f"{prefix}[]")
    if isinstance(more := node.get("additionalProperties"), dict):
        yield from _fields(more, f"{prefix}.*")
    for name, child in node.get("properties", {}).items():
        path = f"{prefix}.{name}"
        mark = "**" if name in node.get("required", ()) else ""
        yield f"| {mark}`{path}`{mark} | {_type(child)} | {_text(child)} |"
        yield from _fields(child, path)


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference leads to, and of several forms the one that has fields."""
    if "$ref" in node:
        found: Any = report_schema()
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return _resolved(found)
    for form in node.get("anyOf", ()):
        if form.get("type") != "null":
            return _resolved(form)
    return node


def _type(node: dict[str, Any]) -> str:
    may_be_null = any(form.get("type") == "null" for form in node.get("anyOf", ()))
    node = _resolved(node)
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    kinds = node.get("type", "any")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if "pattern" in node and "integer" in kinds:
        kinds = [kind for kind in kinds if kind != "string"]
    shown = [
        f"list of {_type(node['items'])}" if kind == "array" and "items" in node else kind
        for kind in kinds
        if kind != "null"
    ]
    return ", ".join(shown) + (" or null" if "null" in kinds or may_be_null else "")


def _text(node: dict[str, Any]) -> str:
    return " ".join((node.get("description") or _resolved(node).get("description") or "").split())


def lake() -> str:
    """Return ``reference/lake.md``, whose tables come from the schema."""
    return consume_log_page.with_tables(consume_log_page.PAGE.read_text(encoding="utf-8"))


PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/broker-conf.md": broker_conf,
    "reference/causes.md": causes,
    "reference/cli.md": cli_page.render,
    "reference/lake.md": lake,
    "reference/metrics.md": metrics_page.render,
    "reference/python-api.md": api_page.render,
    "reference/report-json.md": report_json,
    "reference/report-tables.md": report_tables_page.render,
    "reference/resources.md": reference,
    "design/partial-rows.md": partial_rows_page.render,
}


def main() -> int:
    for name, render in PAGES.items():
        (DOCS / name).write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
