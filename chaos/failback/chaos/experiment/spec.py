"""Read a ChaosExperiment file into a checked experiment, or name the field that is wrong.

Everything that can be refused before a cluster is touched is refused here: unknown fields and
faults with the nearest known name, values out of range, a fault that waits for one that does not
exist, two faults at once on one victim. Nothing is injected by this module.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from failback.chaos.experiment.expectation_checks import (
    MetricProblem,
    any_metric,
    check_expectations,
)
from failback.chaos.experiment.fault_checks import check_together, check_written, fault_problems
from failback.chaos.experiment.fault_kinds import FaultKinds
from failback.chaos.experiment.model import (
    Arm,
    ChaosExperimentResource,
    Fault,
    Group,
    Spec,
    Workload,
    as_called,
)
from failback.chaos.experiment.reading import load_yaml, put_places, unknown_name, validate_fields
from failback.protocol.errors import ConfigError, check_all, raise_all


@dataclass(frozen=True, slots=True)
class ResolvedArm:
    """One arm with everything merged into it."""

    name: str
    engine: str | None
    broker_config: Mapping[str, str]
    workload: Workload
    faults: tuple[Fault, ...]
    """None of them is made of others: those were taken apart."""
    written: tuple[Fault, ...]
    """The same as the file has them."""


@dataclass(frozen=True, slots=True)
class ChaosExperiment:
    """A checked experiment. ``seed`` is always set: drawn when the file leaves it out."""

    name: str
    namespace: str
    cluster: str
    seed: int
    spec: Spec
    arms: tuple[ResolvedArm, ...]
    source: str
    """Text of the file, kept word by word in every run folder."""
    kinds: FaultKinds = field(repr=False, compare=False)
    """What its faults may be."""

    def arm(self, name: str) -> ResolvedArm:
        """Return one arm.

        Raises:
            ConfigError: There is no arm of that name.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        names = [arm.name for arm in self.arms]
        raise ConfigError("arm", unknown_name(name, names))

    def arm_order(self, repetition: int) -> tuple[ResolvedArm, ...]:
        """Arms of one repetition: rotated, so that no arm always comes first."""
        turn = repetition % len(self.arms)
        return self.arms[turn:] + self.arms[:turn]

    def with_seed(self, seed: int) -> ChaosExperiment:
        """Return the same experiment with this seed: a replay, or what a parent process drew."""
        return replace(self, seed=seed, spec=self.spec.model_copy(update={"seed": seed}))

    def with_time_scale(self, time_scale: float) -> ChaosExperiment:
        """Return the same experiment at another time scale, checked like the file's own."""
        written = load_yaml(self.source)["spec"]
        data = {**written, "timeScale": time_scale, "seed": self.seed}
        spec = validate_fields(Spec, data, "spec")
        return replace(self, spec=spec)


def parse_experiment(
    text: str,
    kinds: FaultKinds,
    *,
    file: Path | None = None,
    metric_problem: MetricProblem = any_metric,
) -> ChaosExperiment:
    """Check the text of an experiment file that may name these kinds of faults.

    Args:
        metric_problem: Says why the metric of an expectation is no figure of a report.

    Raises:
        ConfigError: All that is wrong, each with its place in the file and the field's path.
    """
    try:
        return _parsed(load_yaml(text, file), text, kinds, metric_problem)
    except ConfigError as error:
        if file is not None:
            put_places(error, text, file)
        raise


def _parsed(
    data: dict[str, Any], text: str, kinds: FaultKinds, metric_problem: MetricProblem
) -> ChaosExperiment:
    try:
        resource, arms = _read(data)
    except ConfigError as error:
        raise_all([error, *raw_problems(data, kinds, metric_problem)])
        raise
    spec = resource.spec
    seed = spec.seed if spec.seed is not None else secrets.randbits(64)
    groups_of = {arm.name: [group.name for group in arm.workload.groups] for arm in arms}
    check_all(
        partial(_check_arms, arms, len(spec.faults), kinds),
        partial(check_expectations, spec, groups_of, metric_problem),
    )
    arms = tuple(replace(arm, faults=_apart(arm, kinds)) for arm in arms)
    return ChaosExperiment(
        name=resource.metadata.name,
        namespace=resource.metadata.namespace,
        cluster=spec.cluster_ref.name,
        seed=seed,
        spec=spec.model_copy(update={"seed": seed}),
        arms=arms,
        source=text,
        kinds=kinds,
    )


def _read(data: dict[str, Any]) -> tuple[ChaosExperimentResource, tuple[ResolvedArm, ...]]:
    """Check every field and every arm's workload; the faults are still as they are written."""
    resource = validate_fields(ChaosExperimentResource, data, "")
    spec, arms = resource.spec, []

    def resolve(arm: Arm, index: int) -> None:
        arms.append(_resolve_arm(arm, index, spec, data["spec"]["workload"]))

    check_all(
        *(partial(resolve, arm, index) for index, arm in enumerate(spec.arms)),
        partial(_unique, (arm.name for arm in spec.arms), "spec.arms", "name"),
    )
    return resource, tuple(arms)


def check_engine(experiment: ChaosExperiment, arm: ResolvedArm, engine: str) -> None:
    """Refuse what the cluster's engine cannot do.

    Raises:
        ConfigError: timeScale with an engine whose intervals are fixed, or an unsupported fault.
    """
    if engine == "apache" and experiment.spec.time_scale != 1.0:
        raise ConfigError(
            "spec.timeScale",
            f"{experiment.spec.time_scale:g} needs engine Failback: the intervals of Apache's "
            "broker are fixed, so the bounds would not scale",
        )
    for index, fault in enumerate(arm.written):
        kind = experiment.kinds[fault.fault]
        if engine not in kind.engines:
            why = f": {kind.why_not_others}" if kind.why_not_others else ""
            problem = f'"{fault.fault}" is not supported by {engine}{why}'
            raise ConfigError(f"spec.faults[{index}].fault", problem)
        if fault.with_.get("toVersion") and engine != "apache":
            problem = "needs engine Apache: of Failback's broker the version that is here can run"
            raise ConfigError(f"spec.faults[{index}].with.toVersion", problem)


def check_target(experiment: ChaosExperiment, arm: ResolvedArm, target: str) -> None:
    """Raise ``ConfigError`` for a fault that this kind of target cannot inject."""
    for index, fault in enumerate(arm.written):
        kind = experiment.kinds[fault.fault]
        if target not in kind.supported_by:
            problem = f'"{fault.fault}" cannot be done on a {target} cluster'
            needs = f": it needs {kind.needs}" if kind.needs else ""
            raise ConfigError(f"spec.faults[{index}].fault", problem + needs)


# --- arms ----------------------------------------------------------------------------------------


def _resolve_arm(arm: Arm, index: int, spec: Spec, raw_workload: Any) -> ResolvedArm:
    merged = _merge(raw_workload, arm.workload)
    switches = {**merged.get("switches", {}), **arm.client_switches}
    if switches:
        merged = {**merged, "switches": switches}
    workload = validate_fields(Workload, merged, f"spec.arms[{index}].workload")
    _check_workload(workload, "spec.workload")
    return ResolvedArm(
        name=arm.name,
        engine=arm.engine,
        broker_config=arm.broker_config,
        workload=workload,
        faults=(),
        written=spec.faults + arm.faults,
    )


def _apart(arm: ResolvedArm, kinds: FaultKinds) -> tuple[Fault, ...]:
    return tuple(part for fault in arm.written for part in kinds[fault.fault].taken_apart(fault))


def _check_arms(arms: Sequence[ResolvedArm], common: int, kinds: FaultKinds) -> None:
    check_all(
        *(
            partial(_check_arm, arm, _fault_paths(arm, common, index), kinds)
            for index, arm in enumerate(arms)
        )
    )


def _check_arm(arm: ResolvedArm, paths: list[str], kinds: FaultKinds) -> None:
    """A part of a fault that is made of others answers for the fault that was written."""
    groups = [group.name for group in arm.workload.groups]
    check_written(arm.written, paths, groups, kinds)
    _check_failing(arm, paths)
    parts = [
        (part, path)
        for fault, path in zip(arm.written, paths, strict=True)
        for part in kinds[fault.fault].taken_apart(fault)
    ]
    check_together([part for part, _ in parts], [path for _, path in parts], kinds)


def _merge(base: Any, changes: Any) -> Any:
    """``changes`` over ``base``: mappings by key, lists of named things by name."""
    if isinstance(base, Mapping) and isinstance(changes, Mapping):
        result = dict(base)
        for key, value in changes.items():
            result[key] = _merge(base[key], value) if key in base else value
        return result
    if _named(base) and _named(changes):
        by_name = {each["name"]: each for each in changes}
        known = {each["name"] for each in base}
        kept = [_merge(each, by_name.get(each["name"], {})) for each in base]
        return kept + [each for each in changes if each["name"] not in known]
    return changes


def _named(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and all(isinstance(each, Mapping) and "name" in each for each in value)
    )


def _check_workload(workload: Workload, where: str) -> None:
    topics = [topic.name for topic in workload.topics]
    found = []
    for index, load in enumerate(workload.topics):
        shares = sum(load.delay_levels.values())
        if shares > 1:
            problem = f"the shares are {shares:g} together, 1 at most"
            found.append((f"topics[{index}].delayLevels", problem))
    for index, group in enumerate(workload.groups):
        if group.topic not in topics:
            found.append((f"groups[{index}].topic", unknown_name(group.topic, topics)))
        if group.handler.fail_ratio > 0 and not _retries_end(group):
            problem = (
                "must be 0 to 3 when handler.failRatio is above 0: 16 retries wait for hours and "
                "the drain would not end"
            )
            found.append((f"groups[{index}].maxReconsumeTimes", problem))
    errors = [ConfigError(f"{where}.{name}", problem) for name, problem in found]
    check_all(partial(_unique, topics, f"{where}.topics", "name"), partial(raise_all, errors))


def _retries_end(group: Group) -> bool:
    return 0 <= group.max_reconsume_times <= 3


def _check_failing(arm: ResolvedArm, paths: list[str]) -> None:
    """A fault that has handlers fail needs a group whose retries come to an end."""
    groups = {group.name: group for group in arm.workload.groups}
    for fault, path in zip(arm.written, paths, strict=True):
        ratios = [name for name in ("failRatio", "throwRatio") if fault.with_.get(name)]
        if ratios and not _retries_end(groups[fault.target.group]):
            raise ConfigError(
                f"{path}.with.{ratios[0]}",
                f"maxReconsumeTimes of {fault.target.group} must be 0 to 3: 16 retries wait for "
                "hours and the drain would not end",
            )


def _fault_paths(arm: ResolvedArm, common: int, arm_index: int) -> list[str]:
    """Where the arm's faults stand in the file: the experiment's ``common`` ones come first."""
    return [
        f"spec.faults[{index}]"
        if index < common
        else f"spec.arms[{arm_index}].faults[{index - common}]"
        for index in range(len(arm.written))
    ]


def _unique(names: Iterable[str], where: str, field: str) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise ConfigError(f"{where}[{index}].{field}", f'"{name}" is used twice')
        seen.add(name)


def raw_problems(
    data: Mapping[str, Any], kinds: FaultKinds, metric_problem: MetricProblem
) -> list[ConfigError]:
    """Return what is wrong with the names of faults, parameters and metrics."""
    found = []
    for path, fault in _entries(data, "faults"):
        name, parameters = fault.get("fault"), fault.get("with")
        if isinstance(name, str) and name:
            with_ = as_called(parameters) if isinstance(parameters, dict) else {}
            found += fault_problems(name, with_, path, kinds)
    for path, wish in _entries(data, "expect"):
        metric = wish.get("metric")
        if isinstance(metric, str) and metric:
            problem = metric_problem(metric, of_group=wish.get("group") is not None)
            found += [ConfigError(f"{path}.metric", problem)] if problem else []
    return found


def _entries(data: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each mapping of a list that stands in the spec and in its arms, with its path."""
    spec = data.get("spec")
    if not isinstance(spec, Mapping):
        return
    arms = spec.get("arms")
    places = [("spec", spec)]
    for index, arm in enumerate(arms if isinstance(arms, list) else ()):
        places.append((f"spec.arms[{index}]", arm if isinstance(arm, Mapping) else {}))
    for path, place in places:
        entries = place.get(key)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, Mapping):
                yield f"{path}.{key}[{index}]", entry
