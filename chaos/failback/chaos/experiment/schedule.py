"""Draw everything random of a run once, and lay the faults out in time. Pure.

One seed, sub-seeds by purpose and repetition: so a further drawn value never moves an existing one.
What is drawn goes into run.json; a replay uses those values, not this generator.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from failback.chaos.experiment.fault_kinds import MILESTONES, FaultKind, parse_milestone
from failback.chaos.experiment.model import Fault
from failback.chaos.experiment.spec import ChaosExperiment, ResolvedArm

PURPOSES = ("victims", "jitter", "phases", "payload", "handler")


def sub_seed(seed: int, purpose: str, repetition: int) -> int:
    """Return the 64-bit seed of one purpose in one repetition."""
    text = f"{seed}\0{purpose}\0{repetition}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def run_id(experiment: str, arm: str, repetition: int, seed: int, started_ns: int) -> str:
    """Name of a run: unique by its start, readable by its experiment."""
    digest = blake2b(f"{seed}\0{started_ns}".encode(), digest_size=4).hexdigest()
    return f"{experiment}-{arm}-{repetition}-{digest}"


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault with its drawn time. ``at_seconds`` counts from run zero, or from ``after``."""

    fault: Fault
    at_seconds: float
    after: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """Everything drawn for one repetition of one arm. Seconds are unscaled."""

    faults: tuple[PlannedFault, ...]
    start_phases: Mapping[str, float]
    seeds: Mapping[str, int]
    longest_seconds: float
    """Sum of the phases' limits, without time scale: twice this is the default time limit."""

    def drawn(self) -> dict[str, Any]:
        """The drawn values as run.json keeps them."""
        return {
            "seeds": {name: str(seed) for name, seed in self.seeds.items()},
            "at_seconds": {each.fault.id: each.at_seconds for each in self.faults},
            "start_phases": dict(self.start_phases),
        }


def plan_run(experiment: ChaosExperiment, arm: ResolvedArm, repetition: int) -> Schedule:
    """Draw the values of one repetition. Arms share seeds, so they share what is drawn."""
    seeds = {purpose: sub_seed(experiment.seed, purpose, repetition) for purpose in PURPOSES}
    planned = tuple(
        PlannedFault(fault, _drawn_at(fault, seeds["jitter"]), str(fault.with_.get("after", "")))
        for fault in arm.faults
    )
    phases: dict[str, float] = {}
    for group in arm.workload.groups:
        for member in range(group.members):
            name = f"{group.name}-{member}"
            draw = random.Random(sub_seed(seeds["phases"], name, repetition))
            phases[name] = round(draw.uniform(0, group.start.spread_seconds), 3)
    return Schedule(
        faults=in_order(planned),
        start_phases=phases,
        seeds=seeds,
        longest_seconds=_longest(experiment, planned, phases),
    )


def in_order(planned: Sequence[PlannedFault]) -> tuple[PlannedFault, ...]:
    """Order by time; a fault that waits for a milestone follows the one that it names.

    Of several that wait for milestones of one fault those go first whose milestone comes first: a
    fault is injected when the one before it is, and would be late behind one that waits longer.
    """
    placed: list[PlannedFault] = sorted(
        (each for each in planned if not each.after), key=lambda each: each.at_seconds
    )
    waiting = [each for each in planned if each.after]
    while waiting:
        names = [each.fault.id for each in placed]
        ready = [each for each in waiting if parse_milestone(each.after)[1] in names]
        if not ready:
            raise ValueError("faults wait for each other")
        for each in sorted(ready, key=_milestone_then_time, reverse=True):
            place = names.index(parse_milestone(each.after)[1]) + 1
            placed.insert(place, each)
            names.insert(place, each.fault.id)
        waiting = [each for each in waiting if each not in ready]
    return tuple(placed)


def _milestone_then_time(planned: PlannedFault) -> tuple[int, float]:
    return MILESTONES.index(parse_milestone(planned.after)[0]), planned.at_seconds


def _drawn_at(fault: Fault, seed: int) -> float:
    if not fault.jitter_seconds:
        return fault.at
    draw = random.Random(sub_seed(seed, fault.id, 0))
    return round(fault.at + draw.uniform(0, fault.jitter_seconds), 3)


def _longest(
    experiment: ChaosExperiment, planned: Sequence[PlannedFault], phases: Mapping[str, float]
) -> float:
    spec = experiment.spec
    faults = sum(
        each.at_seconds + _lasts(each.fault, experiment.kinds[each.fault.fault]) for each in planned
    )
    return (
        60
        + max(phases.values(), default=0.0)
        + spec.warmup_seconds
        + spec.steady_state.timeout_seconds
        + faults
        + spec.recover_timeout_seconds
        + spec.cooldown_seconds
        + spec.drain.timeout_seconds
        + spec.scan_timeout_seconds
    )


def _lasts(fault: Fault, kind: FaultKind) -> float:
    total = 0.0
    for parameter in kind.parameters:
        if parameter.kind == "seconds":
            value = fault.with_.get(parameter.name, parameter.default)
            total += float(value) if isinstance(value, (int, float)) else 10.0
    return total
