"""Check the names in an experiment's file whose fields are not all right.

So a misspelt fault or metric is told together with the other mistakes of the file. What is not of
the form that it should have is passed over: the check of the fields tells that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from failback.chaos.experiment.expectation_checks import MetricProblem
from failback.chaos.experiment.fault_checks import fault_problems
from failback.chaos.experiment.fault_kinds import FaultKinds
from failback.chaos.experiment.model import as_called
from failback.protocol.errors import ConfigError


def raw_problems(
    data: Mapping[str, Any], kinds: FaultKinds, metric_problem: MetricProblem, file: Path | None
) -> list[ConfigError]:
    """Return what is wrong with the names of faults, parameters and metrics."""
    found = []
    for path, fault in _entries(data, "faults"):
        name, parameters = fault.get("fault"), fault.get("with")
        if isinstance(name, str) and name:
            with_ = as_called(parameters) if isinstance(parameters, dict) else {}
            found += fault_problems(name, with_, path, kinds, file)
    for path, wish in _entries(data, "expect"):
        metric = wish.get("metric")
        if isinstance(metric, str) and metric:
            problem = metric_problem(metric, of_group=wish.get("group") is not None)
            found += [ConfigError(f"{path}.metric", problem, file=file)] if problem else []
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
