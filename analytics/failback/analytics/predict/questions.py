"""What a prediction is asked about: groups with their settings, and the faults to predict. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from failback.analytics.predict.faults import FAULTS, FaultPlan, find_fault
from failback.analytics.predict.knobs import rank_knobs, useful
from failback.analytics.predict.prediction import boundless, predict
from failback.analytics.predict.prediction_document import Case
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.sources import plan_of, uptimes_of, with_system, with_workload
from failback.protocol.errors import ConfigError

UNKNOWN_AGES: Final = (
    "the source does not say how long clients ran: all phases are taken as unknown"
)
Observed = Mapping[str, int]
"""Duplicates of a run by group, as its report has them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options narrow down or override. ``values`` are the pairs of ``--set`` and more."""

    values: Mapping[str, Any]
    faults: tuple[str, ...] = ()
    arm: str = ""
    group: str = ""
    cluster: Path | None = None
    down_seconds: float | None = None

    def plans(self, of_source: FaultPlan | None) -> tuple[FaultPlan, ...]:
        """The faults to predict: those named, else the source's own, else all."""
        down = self.down_seconds
        if down is None and of_source is not None and of_source.kills_master:
            down = of_source.down_seconds or None
        named = [find_fault(name) for name in self.faults]
        if not named and of_source is not None:
            chosen = of_source
            if self.down_seconds is not None and chosen.kills_master:
                chosen = replace(chosen, down_seconds=self.down_seconds)
            return (chosen,)
        found = named or list(FAULTS.values())
        return tuple(
            replace(plan, down_seconds=down)
            if down is not None and plan.kills_master and plan.broker_uptime_seconds is None
            else plan
            for plan in found
        )


@dataclass(frozen=True, slots=True)
class Question:
    """One group under one set of settings, and the faults to predict for it."""

    name: str
    settings: Settings
    plans: tuple[FaultPlan, ...]
    observed: int | None = None
    notes: tuple[str, ...] = ()

    def answer(self, draws: int, seed: int, top: int) -> Case:
        """Predict the faults; ``top`` settings that would help against the worst of them."""
        without = {plan.name: boundless(self.settings, plan) for plan in self.plans}
        plans = [plan for plan in self.plans if not without[plan.name]] or self.plans
        found = [predict(self.settings, plan, draws=draws, seed=seed) for plan in plans]
        knobs = []
        if top:
            # The fault that costs most is the one to turn knobs for.
            worst = max(found, key=lambda each: (each.mean, each.worst))
            ranked = rank_knobs(self.settings, worst.fault, before=worst, draws=draws, seed=seed)
            knobs = useful(ranked)[:top]
        return Case(
            name=self.name,
            settings=self.settings,
            predictions=tuple(found),
            knobs=tuple(knobs),
            observed=self.observed,
            notes=(*self.notes, *(f"{name}: {why}" for name, why in without.items() if why)),
        )


def of_run(
    run: Mapping[str, Any],
    asked: Asked,
    observed: Observed | None = None,
) -> list[Question]:
    """Ask for the groups of a run.

    Args:
        run: ``run.json``.
        asked: What narrows it down.
        observed: What to compare with, where the faults are the run's own.

    Raises:
        ConfigError: Names what the run lacks, or the option that does not fit it.
    """
    for name in ("workload", "faults", "arm"):
        if name not in run:
            raise ConfigError(name, "is missing")
    settings = with_system(Settings(), run).with_values(asked.values)
    workload = {**run["workload"], "switches": run.get("switches") or {}}
    uptimes = None
    if "steady_state" in run:  # a person may have written down no more than a prediction needs
        uptimes = uptimes_of(run["warmup_seconds"], run["steady_state"], run["faults"])
    notes = () if uptimes else (UNKNOWN_AGES,)
    questions = []
    for group in chosen_groups([str(each["name"]) for each in workload["groups"]], asked.group):
        of_group = with_workload(
            settings,
            workload,
            group,
            uptime_seconds=uptimes[0] if uptimes else None,
            longest_uptime_seconds=uptimes[1] if uptimes else None,
        ).with_values(asked.values)
        plan = None if asked.faults else plan_of(run["faults"], group, "faults")
        seen = None if asked.faults else (observed or {}).get(group)
        name = f"{run['arm']}/{group}"
        questions.append(Question(name, of_group, asked.plans(plan), seen, notes))
    return questions


def chosen_groups(names: Sequence[str], wanted: str) -> list[str]:
    """The groups to predict for: the one that is wanted, else all. Raises ``ConfigError``."""
    if not wanted:
        if not names:
            raise ConfigError("spec.workload.groups", "there is no consumer group to predict for")
        return list(names)
    if wanted not in names:
        raise ConfigError("--group", f'no group "{wanted}", there is {", ".join(names) or "none"}')
    return [wanted]
