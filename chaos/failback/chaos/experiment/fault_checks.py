"""Refuse faults of an experiment that cannot be injected as they are written.

A fault of no kind, a parameter that its kind has not, a wait for what never comes, two faults at
once on one victim: each is a ``ConfigError`` with the field's path. Single faults are checked as
they are written; how they go together, once those that are made of others were taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from failback.chaos.experiment.fault_kinds import FaultKind, FaultKinds, Parameter, parse_milestone
from failback.chaos.experiment.model import Fault, FaultTarget, written
from failback.chaos.experiment.reading import unknown_name
from failback.protocol.errors import ConfigError, check_all, raise_all

_OF_A_RETURN: Final = ("accept", "registered", "slave-synced")
_NUMBERS: Final = {
    "seconds": ("of seconds ", 0, 86_400),
    "offset": ("of seconds ", -86_400, 86_400),
    "milliseconds": ("of milliseconds ", 0, 86_400_000),
    "ratio": ("", 0, 1),
}
"""Kind of a parameter that is a number → of what, the least and the most."""


def check_written(
    faults: Sequence[Fault], paths: Sequence[str], groups: Sequence[str], kinds: FaultKinds
) -> None:
    """Check every fault of one arm by itself; ``paths`` are theirs in the file."""
    check_all(
        *(
            partial(_check_fault, fault, path, groups, kinds)
            for fault, path in zip(faults, paths, strict=True)
        )
    )


def check_together(faults: Sequence[Fault], paths: Sequence[str], kinds: FaultKinds) -> None:
    """Check what the faults of one arm are to each other; none is made of others any more."""
    ids: dict[str, int] = {}
    for index, (fault, path) in enumerate(zip(faults, paths, strict=True)):
        if fault.id in ids:
            raise ConfigError(f"{path}.id", f'"{fault.id}" is used twice')
        ids[fault.id] = index
    for fault, path in zip(faults, paths, strict=True):
        _check_waits(fault, path, faults, ids, kinds)
    _check_overlap(faults, paths, kinds)


def _check_fault(fault: Fault, path: str, groups: Sequence[str], kinds: FaultKinds) -> None:
    problems = fault_problems(fault.fault, fault.with_, path, kinds)
    kind = kinds.get(fault.fault)
    if kind is None:
        raise_all(problems)
        return
    check_all(partial(raise_all, problems), partial(_check_target, fault, kind, path, groups))
    problem_together = kind.check(kind.values(fault.with_)) if kind.check else None
    if problem_together:
        name, problem = problem_together
        raise ConfigError(f"{path}.with.{name}".rstrip("."), problem)


def fault_problems(
    name: str, parameters: Mapping[str, Any], path: str, kinds: FaultKinds
) -> list[ConfigError]:
    """Return what is wrong with the name and the parameters of one fault."""
    kind = kinds.get(name)
    if kind is None:
        return [ConfigError(f"{path}.fault", unknown_name(name, list(kinds)))]
    known = [each.name for each in kind.parameters]
    found = []
    for key, value in parameters.items():
        parameter = kind.parameter(key)
        problem = _problem(parameter, value) if parameter else unknown_name(key, known)
        if problem:
            found.append(ConfigError(f"{path}.with.{key}", problem))
    return found


def _problem(parameter: Parameter, value: object) -> str | None:
    match parameter.kind:
        case "seconds" | "offset" | "milliseconds" | "ratio" as kind:
            what, least, most = _NUMBERS[kind]
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not least <= float(value) <= most:  # type: ignore[arg-type]
                return f"must be a number {what}from {least} to {most} (got {value!r})"
        case "count":
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                return f"must be a whole number from 1 (got {value!r})"
        case "flag":
            if not isinstance(value, bool):
                return f"must be true or false (got {value!r})"
        case "choice":
            if value not in parameter.choices:
                return unknown_name(str(value), parameter.written_choices)
        case "version":
            if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){2}", str(value)):
                return f"must be a version such as 5.3.3 (got {value!r})"
        case "milestone":
            try:
                parse_milestone(str(value))
            except ValueError as error:
                return str(error)
    return None


def _check_target(fault: Fault, kind: FaultKind, path: str, groups: Sequence[str]) -> None:
    target = fault.target
    if kind.target == "nameservers" and target != FaultTarget():
        problem = f"is not taken: {kind.name} says by with.which what is hit"
        raise ConfigError(f"{path}.target", problem)
    if kind.target in ("group", "both"):
        if not target.group:
            raise ConfigError(f"{path}.target.group", "is required")
        if target.group not in groups:
            raise ConfigError(f"{path}.target.group", unknown_name(target.group, groups))
    if kind.target in ("broker", "both"):
        if bool(target.pair) == bool(target.pair_selector):
            raise ConfigError(f"{path}.target.pair", "give either pair or pairSelector")
        if target.group and kind.target == "broker":
            raise ConfigError(f"{path}.target.group", f"{fault.fault} hits brokers")
    if target.mode is not None and target.mode not in kind.modes:
        modes = " or ".join(kind.written_modes)
        problem = f"{kind.name} takes {modes} only (got {written(target.mode)})"
        raise ConfigError(f"{path}.target.mode", problem)
    if target.mode in ("fixed", "fixed-percent", "random-max-percent") and target.value <= 0:
        raise ConfigError(f"{path}.target.value", f"must be above 0 for {written(target.mode)}")


def _check_waits(
    fault: Fault, path: str, faults: Sequence[Fault], ids: Mapping[str, int], kinds: FaultKinds
) -> None:
    for name in ("after", "restartAfter"):
        text = fault.with_.get(name)
        if not text:
            continue
        milestone, other = parse_milestone(str(text))
        if other not in ids:
            raise ConfigError(f"{path}.with.{name}", unknown_name(other, list(ids)))
        if other == fault.id:
            raise ConfigError(f"{path}.with.{name}", "waits for itself")
        awaited = faults[ids[other]]
        kind = kinds[awaited.fault]
        if milestone not in kind.milestones:
            problem = f'{other} ({kind.name}) never reaches "{milestone}"'
            raise ConfigError(f"{path}.with.{name}", problem)
        if milestone in _OF_A_RETURN and awaited.with_.get("restart") is False:
            problem = f'{other} never reaches "{milestone}": it has restart false'
            raise ConfigError(f"{path}.with.{name}", problem)
    seen = {fault.id}
    current = fault
    while text := current.with_.get("after"):
        _, other = parse_milestone(str(text))
        if other in seen:
            raise ConfigError(f"{path}.with.after", f"waits in a circle over {other}")
        seen.add(other)
        current = faults[ids[other]]


def _check_overlap(faults: Sequence[Fault], paths: Sequence[str], kinds: FaultKinds) -> None:
    """Refuse two faults that are in effect on one victim at the same time.

    Only faults with fixed times can be compared; one that waits for a milestone of another is
    ordered by it. A kill without downSeconds ends when the platform restarts it: counted as 10 s.
    """
    timed = [
        (
            fault.at,
            fault.at + fault.jitter_seconds + _length(fault, kinds[fault.fault]),
            _victim(fault, kinds[fault.fault]),
            fault,
            path,
        )
        for fault, path in zip(faults, paths, strict=True)
        if not fault.with_.get("after") and kinds[fault.fault].target != "none"
    ]
    timed.sort(key=lambda each: each[0])
    for earlier_index, earlier in enumerate(timed):
        for later in timed[earlier_index + 1 :]:
            if earlier[2] == later[2] and later[0] < earlier[1]:
                raise ConfigError(
                    f"{later[4]}.at",
                    f"{later[3].id} begins at {later[0]:g} s while {earlier[3].id} is in effect on "
                    f"the same victim until {earlier[1]:g} s",
                )


def _length(fault: Fault, kind: FaultKind) -> float:
    if kind.lasts is None:
        return 0.0
    value = kind.values(fault.with_)[kind.lasts]
    return 10.0 if value is None else float(value)


def _victim(fault: Fault, kind: FaultKind) -> tuple[str, str]:
    target = fault.target
    if kind.target == "group":
        return "group", target.group
    if kind.target == "nameservers":
        return "nameservers", ""
    return target.pair or target.pair_selector, target.role or "master"
