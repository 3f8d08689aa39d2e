"""Refuse expectations that no run of the experiment could meet or miss.

An arm or a group that the experiment has not, a value that does not fit the comparison. Whether the
metric is a figure of a report is known to the analysis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from failback.chaos.experiment.model import Expectation, Spec
from failback.chaos.experiment.reading import unknown_name
from failback.protocol.errors import ConfigError


def written_expectations(spec: Spec) -> Iterator[tuple[str, Expectation]]:
    """Each expectation with its path in the file."""
    for path, each, _ in _with_arms(spec):
        yield path, each


def check_expectations(
    spec: Spec, groups_of: Mapping[str, Sequence[str]], file: Path | None
) -> None:
    """Check all expectations.

    Args:
        groups_of: The consumer groups of each arm.

    Raises:
        ConfigError: The first that is wrong, with its path.
    """
    for path, wish, own_arm in _with_arms(spec):
        arm = own_arm or wish.arm
        if arm is not None and arm not in groups_of:
            raise ConfigError(f"{path}.arm", unknown_name(arm, list(groups_of)), file=file)
        if own_arm is not None and wish.arm not in (None, own_arm):
            problem = f'"{wish.arm}" is another arm than {own_arm}, which this stands in'
            raise ConfigError(f"{path}.arm", problem, file=file)
        arms = groups_of if arm is None else [arm]
        known = sorted({group for name in arms for group in groups_of[name]})
        if wish.group is not None and wish.group not in known:
            raise ConfigError(f"{path}.group", unknown_name(wish.group, known), file=file)
        if problem := _value_problem(wish):
            raise ConfigError(f"{path}.value", problem, file=file)


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
                return f"must be two numbers [LOW, HIGH] for between, got {value!r}"
            low, high = value
            return "" if low <= high else f"{low:g} is above {high:g}: must be [LOW, HIGH]"
        case _:
            if value is None or isinstance(value, tuple):
                return f"must be a number for {wish.op}, got {value!r}"
            return ""
