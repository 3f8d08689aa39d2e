"""Read a ChaosExperiment file into a checked experiment, or name the field that is wrong.

Everything that can be refused before a cluster is touched is refused here: unknown fields and
faults with the nearest known name, values out of range, a fault that waits for one that does not
exist, two faults at once on one victim. Nothing is injected by this module.
"""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import pydantic
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from failback.chaos.catalogue import CATALOGUE, FaultKind, Parameter, parse_rung
from failback.chaos.model import (
    API_VERSION,
    KIND,
    Arm,
    ChaosExperimentResource,
    Fault,
    Model,
    Spec,
    Workload,
)
from failback.protocol.errors import ConfigError

_M = TypeVar("_M", bound=Model)
UNITS = ("Seconds", "Ms", "Bytes", "Messages", "PerSecond", "Ratio")


@dataclass(frozen=True, slots=True)
class ResolvedArm:
    """One arm with everything merged into it."""

    name: str
    engine: str | None
    broker_config: Mapping[str, str]
    workload: Workload
    faults: tuple[Fault, ...]


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
        data = self.spec.model_dump(mode="python", by_alias=True)
        data["timeScale"] = time_scale
        spec = _validate(Spec, data, "spec", None)
        return replace(self, spec=spec)


def load_experiment(path: Path | str) -> ChaosExperiment:
    """Read and check one experiment file.

    Raises:
        ConfigError: Names the file, the field's path and what is wrong with it.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), f"cannot be read: {error}") from error
    return parse_experiment(text, file=file)


def parse_experiment(text: str, *, file: Path | None = None) -> ChaosExperiment:
    """Check the text of an experiment file. Raises ``ConfigError`` like :func:`load_experiment`."""
    data = _load_yaml(text, file)
    resource = _validate(ChaosExperimentResource, data, "", file)
    spec = resource.spec
    seed = spec.seed if spec.seed is not None else secrets.randbits(64)
    raw_workload = data["spec"]["workload"]
    arms = tuple(
        _resolve_arm(arm, index, spec, raw_workload, file) for index, arm in enumerate(spec.arms)
    )
    _unique((arm.name for arm in arms), "spec.arms", "name", file)
    for index, arm in enumerate(arms):
        own = len(spec.faults)
        _check_faults(arm, own, index, file)
    return ChaosExperiment(
        name=resource.metadata.name,
        namespace=resource.metadata.namespace,
        cluster=spec.cluster_ref.name,
        seed=seed,
        spec=spec.model_copy(update={"seed": seed}),
        arms=arms,
        source=text,
    )


def check_engine(experiment: ChaosExperiment, arm: ResolvedArm, engine: str) -> None:
    """Refuse what the cluster's engine cannot do.

    Raises:
        ConfigError: timeScale with an engine whose intervals are fixed, or an unsupported fault.
    """
    if engine == "apache" and experiment.spec.time_scale != 1.0:
        raise ConfigError(
            "spec.timeScale",
            f"{experiment.spec.time_scale:g} needs engine failback: the intervals of engine apache "
            "are fixed, so the bounds would not scale",
        )
    for index, fault in enumerate(arm.faults):
        kind = CATALOGUE[fault.fault]
        if engine not in kind.engines:
            raise ConfigError(
                f"spec.faults[{index}].fault", f'"{fault.fault}" is not supported by {engine}'
            )


def check_target(arm: ResolvedArm, supports: frozenset[str]) -> None:
    """Raise ``ConfigError`` for a fault that this target cannot inject."""
    for index, fault in enumerate(arm.faults):
        if fault.fault not in supports:
            raise ConfigError(
                f"spec.faults[{index}].fault",
                f'"{fault.fault}" is not supported by this target, which can do '
                f"{', '.join(sorted(supports))}",
            )


# --- YAML and field errors -----------------------------------------------------------------------


def _load_yaml(text: str, file: Path | None) -> dict[str, Any]:
    try:
        documents = [each for each in YAML(typ="safe", pure=True).load_all(text) if each]
    except YAMLError as error:
        raise ConfigError("file", f"no valid YAML: {_one_line(str(error))}", file=file) from error
    chosen = [each for each in documents if isinstance(each, dict) and each.get("kind") == KIND]
    if len(chosen) != 1:
        found = [each.get("kind") for each in documents if isinstance(each, dict)]
        raise ConfigError(
            "kind", f"need exactly one {KIND} ({API_VERSION}), found {found or 'none'}", file=file
        )
    document: dict[str, Any] = chosen[0]
    return document


def _validate(model: type[_M], data: Any, prefix: str, file: Path | None) -> _M:
    try:
        return model.model_validate(_tuples(data))
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        field, problem = _describe(model, first, prefix)
        raise ConfigError(field, problem, file=file) from error


def _tuples(value: Any) -> Any:
    """Lists as tuples, at any depth: the models are immutable and strict."""
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_tuples(each) for each in value)
    return value


def _describe(model: type[Model], error: Any, prefix: str) -> tuple[str, str]:
    loc: Sequence[int | str] = error["loc"]
    field = prefix
    for part in loc:
        if isinstance(part, int):
            field += f"[{part}]"
        else:
            field += f".{part}" if field else part
    match error["type"]:
        case "extra_forbidden":
            owner = _model_at(model, loc[:-1])
            known = _aliases(owner) if owner is not None else []
            return field, unknown_name(str(loc[-1]), known)
        case "literal_error":
            expected = [each.strip(" '") for each in _expected(error)]
            return field, unknown_name(str(error["input"]), expected)
        case "missing":
            return field, "is required"
        case _:
            message = str(error["msg"])
            shown = error.get("input")
            return field, f"{message[0].lower()}{message[1:]} (got {shown!r})"


def _expected(error: Any) -> list[str]:
    text = str(error.get("ctx", {}).get("expected", ""))
    return text.replace(" or ", ", ").split(",")


def _model_at(model: type[Model], loc: Iterable[int | str]) -> type[Model] | None:
    current: type[Model] | None = model
    for part in loc:
        if current is None or isinstance(part, int):
            continue
        current = next(
            (
                _inner_model(info.annotation)
                for info in current.model_fields.values()
                if info.alias == part
            ),
            None,
        )
    return current


def _inner_model(annotation: Any) -> type[Model] | None:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, Model) else None
    return next(
        (found for each in get_args(annotation) if (found := _inner_model(each)) is not None), None
    )


def _aliases(model: type[Model]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def unknown_name(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if not close:
        close = [each for each in known if _without_unit(each) == name.lower()][:1]
    if close:
        return f'unknown "{name}", did you mean "{close[0]}"'
    return f'unknown "{name}", one of {", ".join(known)}' if known else f'unknown "{name}"'


def _without_unit(name: str) -> str:
    for unit in UNITS:
        if name.endswith(unit):
            return name.removesuffix(unit).lower()
    return name.lower()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _unique(names: Iterable[str], where: str, field: str, file: Path | None) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise ConfigError(f"{where}[{index}].{field}", f'"{name}" is used twice', file=file)
        seen.add(name)


# --- arms ----------------------------------------------------------------------------------------


def _resolve_arm(
    arm: Arm, index: int, spec: Spec, raw_workload: Any, file: Path | None
) -> ResolvedArm:
    merged = _merge(raw_workload, arm.workload)
    switches = {**merged.get("switches", {}), **arm.client_switches}
    if switches:
        merged = {**merged, "switches": switches}
    workload = _validate(Workload, merged, f"spec.arms[{index}].workload", file)
    _check_workload(workload, "spec.workload", file)
    return ResolvedArm(
        name=arm.name,
        engine=arm.engine,
        broker_config=arm.broker_config,
        workload=workload,
        faults=spec.faults + arm.faults,
    )


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


def _check_workload(workload: Workload, where: str, file: Path | None) -> None:
    _unique((topic.name for topic in workload.topics), f"{where}.topics", "name", file)
    topics = [topic.name for topic in workload.topics]
    for index, group in enumerate(workload.groups):
        field = f"{where}.groups[{index}]"
        if group.topic not in topics:
            raise ConfigError(f"{field}.topic", unknown_name(group.topic, topics), file=file)
        retries_end = 0 <= group.max_reconsume_times <= 3
        if group.handler.fail_ratio > 0 and not retries_end:
            raise ConfigError(
                f"{field}.maxReconsumeTimes",
                "must be 0 to 3 when handler.failRatio is above 0: 16 retries wait for hours and "
                "the drain would not end",
                file=file,
            )


# --- faults --------------------------------------------------------------------------------------


def _check_faults(arm: ResolvedArm, own: int, arm_index: int, file: Path | None) -> None:
    paths = [
        f"spec.faults[{index}]" if index < own else f"spec.arms[{arm_index}].faults[{index - own}]"
        for index in range(len(arm.faults))
    ]
    ids: dict[str, int] = {}
    for index, (fault, path) in enumerate(zip(arm.faults, paths, strict=True)):
        if fault.id in ids:
            raise ConfigError(f"{path}.id", f'"{fault.id}" is used twice', file=file)
        ids[fault.id] = index
        _check_fault(fault, path, arm, file)
    for fault, path in zip(arm.faults, paths, strict=True):
        _check_waits(fault, path, arm.faults, ids, file)
    _check_overlap(arm.faults, paths, file)


def _check_fault(fault: Fault, path: str, arm: ResolvedArm, file: Path | None) -> None:
    kind = CATALOGUE.get(fault.fault)
    if kind is None:
        raise ConfigError(f"{path}.fault", unknown_name(fault.fault, list(CATALOGUE)), file=file)
    for name, value in fault.with_.items():
        parameter = kind.parameter(name)
        if parameter is None:
            known = [each.name for each in kind.parameters]
            raise ConfigError(f"{path}.with.{name}", unknown_name(name, known), file=file)
        problem = _problem(parameter, value)
        if problem:
            raise ConfigError(f"{path}.with.{name}", problem, file=file)
    _check_fault_target(fault, kind, path, arm, file)


def _problem(parameter: Parameter, value: object) -> str | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match parameter.kind:
        case "seconds":
            if not number or not 0 <= float(value) <= 86400:  # type: ignore[arg-type]
                return f"must be a number of seconds from 0 to 86400 (got {value!r})"
        case "count":
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                return f"must be a whole number from 1 (got {value!r})"
        case "flag":
            if not isinstance(value, bool):
                return f"must be true or false (got {value!r})"
        case "choice":
            if value not in parameter.choices:
                return unknown_name(str(value), parameter.choices)
        case "rung":
            try:
                parse_rung(str(value))
            except ValueError as error:
                return str(error)
    return None


def _check_fault_target(
    fault: Fault, kind: FaultKind, path: str, arm: ResolvedArm, file: Path | None
) -> None:
    target = fault.target
    if kind.target == "group":
        groups = [group.name for group in arm.workload.groups]
        if not target.group:
            raise ConfigError(f"{path}.target.group", "is required", file=file)
        if target.group not in groups:
            raise ConfigError(f"{path}.target.group", unknown_name(target.group, groups), file=file)
    if kind.target == "broker":
        if bool(target.pair) == bool(target.pair_selector):
            raise ConfigError(f"{path}.target.pair", "give either pair or pairSelector", file=file)
        if target.group:
            raise ConfigError(f"{path}.target.group", f"{fault.fault} hits brokers", file=file)
    if target.mode in ("fixed", "fixed-percent", "random-max-percent") and target.value <= 0:
        raise ConfigError(f"{path}.target.value", f"must be above 0 for {target.mode}", file=file)


def _check_waits(
    fault: Fault, path: str, faults: Sequence[Fault], ids: Mapping[str, int], file: Path | None
) -> None:
    for name in ("after", "restartAfter"):
        text = fault.with_.get(name)
        if not text:
            continue
        rung, other = parse_rung(str(text))
        if other not in ids:
            raise ConfigError(f"{path}.with.{name}", unknown_name(other, list(ids)), file=file)
        if other == fault.id:
            raise ConfigError(f"{path}.with.{name}", "waits for itself", file=file)
        kind = CATALOGUE[faults[ids[other]].fault]
        if rung not in kind.rungs:
            raise ConfigError(
                f"{path}.with.{name}", f'{other} ({kind.name}) never reaches "{rung}"', file=file
            )
    seen = {fault.id}
    current = fault
    while text := current.with_.get("after"):
        _, other = parse_rung(str(text))
        if other in seen:
            raise ConfigError(f"{path}.with.after", f"waits in a circle over {other}", file=file)
        seen.add(other)
        current = faults[ids[other]]


def _check_overlap(faults: Sequence[Fault], paths: Sequence[str], file: Path | None) -> None:
    """Refuse two faults that are in effect on one victim at the same time.

    Only faults with fixed times can be compared; one that waits for a rung of another is ordered
    by that rung. A kill without downSeconds ends when the platform restarts it: counted as 10 s.
    """
    timed = [
        (fault.at, fault.at + fault.jitter_seconds + _length(fault), _victim(fault), fault, path)
        for fault, path in zip(faults, paths, strict=True)
        if not fault.with_.get("after") and CATALOGUE[fault.fault].target != "none"
    ]
    timed.sort(key=lambda each: each[0])
    for earlier_index, earlier in enumerate(timed):
        for later in timed[earlier_index + 1 :]:
            if earlier[2] == later[2] and later[0] < earlier[1]:
                raise ConfigError(
                    f"{later[4]}.at",
                    f"{later[3].id} begins at {later[0]:g} s while {earlier[3].id} is in effect on "
                    f"the same victim until {earlier[1]:g} s",
                    file=file,
                )


def _length(fault: Fault) -> float:
    kind = CATALOGUE[fault.fault]
    if kind.lasts is None:
        return 0.0
    parameter = kind.parameter(kind.lasts)
    value = fault.with_.get(kind.lasts, parameter.default if parameter else None)
    return 10.0 if value is None else float(value)


def _victim(fault: Fault) -> tuple[str, str]:
    target = fault.target
    if target.group:
        return "group", target.group
    return target.pair or target.pair_selector, target.role or "master"
