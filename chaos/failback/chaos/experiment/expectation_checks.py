"""Refuse expectations that no run of the experiment could meet or miss.

An arm or a group that the experiment has not, a value that does not fit the comparison. Whether the
metric is a figure of a report is known to the analysis, which is asked where it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from failback.chaos.experiment.model import Expectation, Spec
from failback.chaos.experiment.reading import unknown_name
from failback.protocol.errors import ConfigError, raise_all


class MetricProblem(Protocol):
    """Says why a metric is no figure of a report; empty where it is one."""

    def __call__(self, metric: str, *, of_group: bool = False) -> str:
        """Judge the metric of an expectation, which may be about one group."""


def any_metric(metric: str, *, of_group: bool = False) -> str:
    """Accept every metric: for callers without the schema of reports."""
    return ""


def check_expectations(
    spec: Spec, groups_of: Mapping[str, Sequence[str]], metric_problem: MetricProblem
) -> None:
    """Check all expectations.

    Args:
        groups_of: The consumer groups of each arm.

    Raises:
        ConfigError: All that is wrong, each with its path.
    """
    found = [
        ConfigError(f"{path}.{name}", problem)
        for path, wish, own_arm in _with_arms(spec)
        for name, problem in (
            ("metric", metric_problem(wish.metric, of_group=wish.group is not None)),
            ("arm", _arm_problem(wish, own_arm, groups_of)),
            ("group", _group_problem(wish, own_arm or wish.arm, groups_of)),
            ("value", _value_problem(wish)),
        )
        if problem
    ]
    raise_all(found)


def _arm_problem(
    wish: Expectation, own_arm: str | None, groups_of: Mapping[str, Sequence[str]]
) -> str:
    if own_arm is not None and wish.arm not in (None, own_arm):
        return f'"{wish.arm}" is another arm than {own_arm}, which this stands in'
    arm = own_arm or wish.arm
    return "" if arm is None or arm in groups_of else unknown_name(arm, list(groups_of))


def _group_problem(
    wish: Expectation, arm: str | None, groups_of: Mapping[str, Sequence[str]]
) -> str:
    if arm is not None and arm not in groups_of:
        return ""  # of an arm that is not there nothing is known
    arms = groups_of if arm is None else [arm]
    known = sorted({group for name in arms for group in groups_of[name]})
    return "" if wish.group is None or wish.group in known else unknown_name(wish.group, known)


def _with_arms(spec: Spec) -> Iterator[tuple[str, Expectation, str | None]]:
    """Path, expectation, and the arm that it stands in."""
    for index, each in enumerate(spec.expect):
        yield f"spec.expect[{index}]", each, None
    for number, arm in enumerate(spec.arms):
        for index, each in enumerate(arm.expect):
            yield f"spec.arms[{number}].expect[{index}]", each, arm.name


def _value_problem(wish: Expectation) -> str:
    value = wish.value
    match wish.op:
        case "within-bound":
            return "" if value is None else f"must be left out: the report has the bound ({value})"
        case "between":
            if not isinstance(value, tuple):
                return f"must be two numbers [LOW, HIGH] for Between, got {value!r}"
            low, high = value
            return "" if low <= high else f"{low:g} is above {high:g}: must be [LOW, HIGH]"
        case _:
            if value is None or isinstance(value, tuple):
                return f"must be a number for {wish.op}, got {value!r}"
            return ""
