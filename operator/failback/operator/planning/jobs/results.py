"""What Jobs and their pods say: ended or not, how, and the summary they left. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from failback.common.text import typed
from failback.operator.kinds.chaos_experiment import ChaosExperiment
from failback.operator.planning.observed.observed import Object, ObservedExperiment
from failback.operator.render.experiment_jobs import heal_job_name
from failback.operator.render.jobs import CONTAINER

NOT_HEALED: Final = 5
_PULL_PROBLEMS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
)
_VERDICTS: Final = ("Pass", "Fail", "Inconclusive")
MAX_REASON: Final = 240


class SummaryInvalid(ValueError):
    """A termination message is not what the Job's program writes; the text says why."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a Job ended: whether it succeeded, and the platform's words when it did not."""

    succeeded: bool
    why: str = ""


def end_of(job: Object) -> JobEnd | None:
    """Return how a Job ended, ``None`` while it has not."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition.get("type") in ("Complete", "SuccessCriteriaMet"):
            if condition["type"] == "Complete":
                return JobEnd(True)
        elif condition.get("type") == "Failed":
            words = [condition.get("reason", ""), condition.get("message", "")]
            return JobEnd(False, ": ".join(filter(None, words)))
    return None


def is_leaving(job: Object | None) -> bool:
    """Tell whether a Job is being deleted."""
    return bool(job and job["metadata"].get("deletionTimestamp"))


def main_status(pod: Object | None) -> Mapping[str, Any]:
    """Return the status of a pod's main container; empty while there is none."""
    statuses = (pod or {}).get("status", {}).get("containerStatuses") or ()
    return next((each for each in statuses if each.get("name") == CONTAINER), {})


def pull_problem(pod: Object | None) -> str:
    """Return the kubelet's words about an image that it can't pull, or nothing."""
    waiting = (main_status(pod).get("state") or {}).get("waiting") or {}
    if waiting.get("reason") not in _PULL_PROBLEMS:
        return ""
    image = main_status(pod).get("image", "")
    return f"{image}: {waiting.get('reason')}: {waiting.get('message', '')}".rstrip(": ")


def exit_code(pod: Object | None) -> int | None:
    """Return the exit code of the main container, ``None`` while it has none."""
    ended = _terminated(pod)
    return int(ended["exitCode"]) if ended else None


def _terminated(pod: Object | None) -> Mapping[str, Any]:
    return (main_status(pod).get("state") or {}).get("terminated") or {}


def run_summary(pod: Object | None) -> dict[str, Any]:
    """Read what ``failback experiment run`` left.

    Raises:
        SummaryInvalid: There is none, or it is something else.
    """
    found = _object(pod)
    _need(found, "exit", int)
    _need(found, "verdict", str)
    for name in ("reasons", "targets", "faults"):
        _need(found, name, list)
    if found["verdict"] not in _VERDICTS:
        raise SummaryInvalid(f"verdict is {found['verdict']!r}")
    for fault in found["faults"]:
        if not isinstance(fault, dict) or "id" not in fault or "proved" not in fault:
            raise SummaryInvalid("a fault has no id or does not say whether it was proved")
    return found


def report_summary(pod: Object | None) -> dict[str, Any]:
    """Read what ``failback report`` left. Raises ``SummaryInvalid`` like :func:`run_summary`."""
    found = _object(pod)
    _need(found, "verdict", str)
    if found["verdict"] not in _VERDICTS:
        raise SummaryInvalid(f"verdict is {found['verdict']!r}")
    for name in ("delivered", "duplicates"):
        _need(found, name, int)
    _need(found, "byCause", dict)
    return found


def _object(pod: Object | None) -> dict[str, Any]:
    text = str(_terminated(pod).get("message") or "")
    if not text.strip():
        raise SummaryInvalid("the Job left no termination message")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SummaryInvalid(f"the termination message is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise SummaryInvalid("the termination message is no JSON object")
    return found


def _need(found: Mapping[str, Any], name: str, kind: type) -> None:
    value = found.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise SummaryInvalid(f"{name} is missing or no {kind.__name__}")


@dataclass(frozen=True, slots=True)
class Heal:
    """State of the heal Job; ``over`` and ``healed`` are false while there is none."""

    name: str
    job: Object | None = None
    over: bool = False
    healed: bool = False
    why: str = ""


def heal_state(experiment: ChaosExperiment, observed: ObservedExperiment) -> Heal:
    """Return what is known of an experiment's heal Job."""
    name = heal_job_name(experiment.name)
    job = observed.jobs.get(name)
    if job is None:
        return Heal(name)
    end = end_of(job)
    if end is None:
        return Heal(name, job)
    if end.succeeded:
        return Heal(name, job, over=True, healed=True)
    code = exit_code(observed.pods.get(name))
    how = f"exit code {code}" if code is not None else end.why
    folder = f"/runs/{experiment.name}"
    why = f"{name} ended with {how}: type {typed('failback', 'experiment', 'heal', folder)}"
    return Heal(name, job, over=True, why=why)
