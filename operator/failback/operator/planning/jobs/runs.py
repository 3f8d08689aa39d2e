"""Runs of an experiment: which comes next, and what a summary becomes in the status. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from failback.operator.kinds.chaos_experiment import Arm, ChaosExperiment

MAX_TIMELINE: Final = 200
MAX_TARGETS: Final = 64
MAX_REASONS: Final = 32
_MAX_REASON: Final = 240
_WORST_VERDICTS_FIRST: Final = ("Fail", "Inconclusive", "Pass")
_BAD_INPUT, _GUARD_REFUSED = 2, 4
NOT_PROVED: Final = "FAULT_NOT_PROVED"
_OF_SUMMARY: Final = ("reportUri", "run", "runSha256")


class Injected(NamedTuple):
    """Condition ``Injected`` after a run; ``ends`` when no further run makes sense."""

    value: bool
    reason: str
    message: str = ""
    ends: bool = False


def order(experiment: ChaosExperiment) -> list[tuple[Arm, int]]:
    """Return all runs in order: arms rotate by repetition, so that none always comes first."""
    arms = experiment.spec.arms
    found = []
    for repetition in range(experiment.spec.repetitions):
        turn = repetition % len(arms)
        found += [(arm, repetition) for arm in [*arms[turn:], *arms[:turn]]]
    return found


def next_run(experiment: ChaosExperiment, status: Mapping[str, Any]) -> tuple[Arm, int] | None:
    """Return the first run without a result, ``None`` when all have one."""
    done = {(each["arm"], each["repetition"]) for each in status.get("runs") or ()}
    return next((run for run in order(experiment) if (run[0].name, run[1]) not in done), None)


def worst(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return the worst verdict; no run at all proves nothing."""
    verdicts = {str(each.get("verdict") or "Inconclusive") for each in runs}
    return next((word for word in _WORST_VERDICTS_FIRST if word in verdicts), "Inconclusive")


def result_of(
    arm: str, repetition: int, summary: Mapping[str, Any] | None, why: str
) -> dict[str, Any]:
    """Return the entry of ``status.runs``; a run without a summary is Inconclusive."""
    found: dict[str, Any] = {"arm": arm, "repetition": repetition}
    if summary is None:
        return found | {"verdict": "Inconclusive", "reasons": [why[:_MAX_REASON]]}
    found["verdict"] = summary["verdict"]
    found |= {name: str(summary[name]) for name in _OF_SUMMARY if summary.get(name)}
    reasons = [str(each)[:_MAX_REASON] for each in summary["reasons"]]
    if not any(each.startswith(NOT_PROVED) for each in reasons):
        doubtful = [str(fault["id"]) for fault in summary["faults"] if not fault["proved"]]
        reasons[:0] = [f"{NOT_PROVED}: {', '.join(doubtful)}"] if doubtful else []
    reasons = reasons[:MAX_REASONS]
    return found | ({"reasons": reasons} if reasons else {})


def targets_of(
    before: Iterable[Mapping[str, Any]], heard: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Add brokers that were hit to those already known, each once."""
    found = [dict(each) for each in before]
    names = ("pair", "member", "brokerId", "address", "pod")
    for each in heard:
        target = {name: each[name] for name in names if each.get(name) is not None}
        if target not in found:
            found.append(target)
    return found[:MAX_TARGETS]


def timeline_of(
    before: Sequence[Mapping[str, Any]], run: str, summary: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], bool]:
    """Add the instants of one run, in order; tell whether some had no room."""
    targets = summary["targets"]
    where = (
        {"pod": targets[0].get("pod"), "brokerId": targets[0].get("brokerId")} if targets else {}
    )
    instants = []
    for fault in summary["faults"]:
        for name in ("issued", "effect", "heal"):
            if fault.get(name) is None:
                continue
            entry = {"t": fault[name], "event": f"{run} {fault['id']} {fault.get('fault')} {name}"}
            about_broker = len(targets) == 1 and fault.get("fault") != "kill-consumer"
            if about_broker:
                entry |= {key: value for key, value in where.items() if value is not None}
            instants.append(entry)
    instants.sort(key=lambda each: float(each["t"]))
    found = [*(dict(each) for each in before), *instants]
    return found[:MAX_TIMELINE], len(found) > MAX_TIMELINE


def injected_of(runs: Sequence[Mapping[str, Any]], newest: Mapping[str, Any] | None) -> Injected:
    """Return what all runs together say of ``Injected``: True when every fault was proved.

    Args:
        runs: ``status.runs``, that of ``newest`` the last.
        newest: Summary of a run that has just ended, if one has.
    """
    if newest is not None and newest["exit"] in (_BAD_INPUT, _GUARD_REFUSED):
        reason = "GuardRefused" if newest["exit"] == _GUARD_REFUSED else "JobFailed"
        said = newest["reasons"][0] if newest["reasons"] else "the run was refused"
        return Injected(False, reason, f"{_name(runs[-1])}: {said}", ends=not newest["faults"])
    for run in runs:
        for said in run.get("reasons") or ():
            if said.startswith(NOT_PROVED):
                return Injected(False, "NotProved", f"{_name(run)}: {said}")
    for run in runs:
        if not run.get("run"):  # it left no record
            said = next(iter(run.get("reasons") or ()), "it left no run")
            return Injected(False, "JobFailed", f"{_name(run)}: {said}")
    return Injected(True, "Proved", "every fault was proved")


def _name(run: Mapping[str, Any]) -> str:
    return f"{run['arm']}-{run['repetition']}"
