"""Limits that a command line sets on figures of a report. Pure.

They are expectations as those of an experiment, so they become checks and move the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from failback.analytics.report.metric_paths import metric_problem
from failback.protocol.errors import ConfigError

Row = dict[str, Any]

_GIVEN: Final = re.compile(
    r"\s*(?:(?P<group>[^\s:]+):\s*)?(?P<metric>[A-Za-z_][\w.%|-]*)\s*(?P<op><=|>=|==|<|>)\s*"
    r"(?P<value>[-+]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*(?P<percent>%)?\s*"
)


def parse_limits(given: Iterable[str]) -> list[Row]:
    """Limits as a command line gives them: ``totals.dup_ratio <= 1%``, ``billing: dup <= 100``.

    Raises:
        ConfigError: One is not METRIC OP NUMBER, or names no figure; says what would do.
    """
    return [_parsed(text) for text in given]


def _parsed(text: str) -> Row:
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
