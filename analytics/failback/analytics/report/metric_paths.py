"""Paths of figures of a report, and limits on them, by the report's schema. Pure.

Experiments name figures so in ``expect[].metric``, command lines in ``--expect``; a wrong name is
found before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from failback.analytics.report.schema import report_schema
from failback.common.text import nearest
from failback.protocol.errors import ConfigError

_NUMBERS: Final = frozenset({"integer", "number", "boolean"})
_Node = dict[str, Any]
_GIVEN: Final = re.compile(
    r"\s*(?:(?P<group>[^\s:]+):\s*)?(?P<metric>[A-Za-z_][\w.%|-]*)\s*(?P<op><=|>=|==|<|>)\s*"
    r"(?P<value>[-+]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*(?P<percent>%)?\s*"
)


def metric_problem(metric: str, *, of_group: bool = False) -> str:
    """What is wrong with the path of a figure; empty if nothing is.

    Args:
        metric: Such as ``totals.lost``; entries of lists by number, or by group or fault.
        of_group: The path is looked up in the entry of one group, as ``checks`` does.
    """
    schema = report_schema()
    if of_group:
        metric = metric.removeprefix("totals.").removeprefix("groups.")
        schema = schema["properties"]["groups"]["items"]
    node = _node_at(schema, metric.split("."))
    if node is None:
        where = "report.json has of a group" if of_group else "report.json has"
        return f'"{metric}" is no figure that {where}{_meant(metric, of_group)}'
    return "" if _is_number(node) else f'"{metric}" is no number{_meant(metric, of_group)}'


def is_path(parts: Sequence[str]) -> bool:
    """Whether a report may have something at a path, by its schema."""
    return _node_at(report_schema(), parts) is not None


def is_field(parts: Sequence[str]) -> bool:
    """Whether the schema names what a path leads to, so that a report may leave it out."""
    above = _node_at(report_schema(), parts[:-1])
    return above is not None and parts[-1] in above.get("properties", {})


def _node_at(node: _Node, parts: Iterable[str]) -> _Node | None:
    for part in parts:
        if part == "":
            return None
        inner = _inner(node, part)
        if inner is None:
            return None
        node = inner
    return node


def _inner(node: _Node, part: str) -> _Node | None:
    if "items" in node:
        found: _Node = node["items"]
        return found
    rest = node.get("additionalProperties")
    other = rest if isinstance(rest, dict) else {} if _is_free(node) else None
    inner: _Node | None = node.get("properties", {}).get(part, other)
    return inner


def _is_free(node: _Node) -> bool:
    """An object, or anything, of which the schema says no more."""
    return "properties" not in node and node.get("type") in (None, "object", ["object", "null"])


def _is_number(node: _Node) -> bool:
    """Numbers, texts of integers above 2^53, and what the schema leaves open."""
    if {"enum", "const", "properties", "items"} & node.keys():
        return False
    kinds = node.get("type", [])
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    return not kinds or bool(kinds & _NUMBERS) or "pattern" in node


@cache
def _figures(of_group: bool) -> tuple[str, ...]:
    """Figures with a path of their own, without entries of lists: what may have been meant."""
    schema = report_schema()
    if of_group:
        schema = schema["properties"]["groups"]["items"]
    return tuple(_leaves(schema, ""))


def _meant(metric: str, of_group: bool) -> str:
    """The figure with a near path, else the first with a near last name."""
    figures = _figures(of_group)
    by_name = {figure.rpartition(".")[2]: figure for figure in reversed(figures)}
    near = nearest(metric, figures)
    near = near or by_name.get(nearest(metric.rpartition(".")[2], by_name), "")
    return f', did you mean "{near}"?' if near else ""


def _leaves(node: _Node, path: str) -> Iterator[str]:
    for name, inner in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        if "properties" in inner:
            yield from _leaves(inner, here)
        elif inner.get("type") != "object" and _is_number(inner):
            yield here


def parse_limits(given: Iterable[str]) -> list[_Node]:
    """Limits as a command line gives them: ``totals.dup_ratio <= 1%``, ``billing: dup <= 100``.

    Raises:
        ConfigError: One is not METRIC OP NUMBER, or names no figure; says what would do.
    """
    return [_parsed(text) for text in given]


def _parsed(text: str) -> _Node:
    found = _GIVEN.fullmatch(text)
    if found is None:
        raise ConfigError("--expect", f"{text!r} is not METRIC OP NUMBER, as in 'dup_ratio <= 1%'")
    value = float(found["value"].replace("_", ""))
    value = value / 100 if found["percent"] else value
    metric = found["metric"]
    if found["group"] is None and "." not in metric:
        metric = f"totals.{metric}"
    if problem := metric_problem(metric, of_group=found["group"] is not None):
        raise ConfigError("--expect", problem)
    return {
        "metric": metric,
        "group": found["group"],
        "op": found["op"],
        "value": int(value) if value.is_integer() else value,
    }
