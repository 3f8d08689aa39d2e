"""Decide what a ChaosExperiment needs now: one Job per arm and repetition, in turn. Pure.

The operator injects nothing. It asks the guards and lays an arm over the cluster by naming it in
the status. It makes the Job and shows what the Job reports. A heal Job takes back what a lost Job
left. The seed is in the status before the first Job exists. A Job's name follows from arm and
repetition, so a pass that is repeated makes nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from failback.operator.kinds.chaos_experiment import Arm, ChaosExperiment
from failback.operator.planning.jobs import guards, results
from failback.operator.planning.jobs.results import Heal, heal_state
from failback.operator.planning.jobs.runs import (
    injected_of,
    next_run,
    order,
    result_of,
    targets_of,
    timeline_of,
    worst,
)
from failback.operator.planning.observed.observed import ObservedExperiment
from failback.operator.planning.plan.children import drift, finished
from failback.operator.planning.plan.encoding import (
    Verdict,
    find_condition,
    from_time,
    judged,
    to_time,
)
from failback.operator.planning.plan.types import Action, Apply, Delete, Event, Plan
from failback.operator.render.experiment_jobs import (
    GRACE_SECONDS,
    HEAL_SECONDS,
    experiment_config_map,
    experiment_job,
    heal_job,
    run_job_name,
)
from failback.operator.render.jobs import JobContext, run_claim
from failback.operator.schema.permitted import broken

OVER: Final = frozenset({"Completed", "Aborted", "Failed"})
GIVE_UP_SECONDS: Final = GRACE_SECONDS + HEAL_SECONDS
"""A deletion waits so long for a stop and its heal; then the object goes."""
_AT_ONCE: Final = 0.1
_POLL: Final = 2.0
_WAIT: Final = 5.0
_PREPARING: Final = "Preparing"
_STAGES: Final[Mapping[str, str]] = {
    "Pending": _PREPARING,
    "SteadyState": "SteadyState",
    "Injecting": "Injecting",
    "Recovering": "Recovering",
    "Draining": "Draining",
}
"""What a run says of itself → the phase of the experiment."""


@dataclass(slots=True)
class _Draft:
    """The status that this pass will write, and what goes with it."""

    experiment: ChaosExperiment
    before: Mapping[str, Any]
    now: float
    status: dict[str, Any]
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By type of the condition."""

    def condition(self, kind: str, value: bool | None, reason: str, message: str = "") -> None:
        self.verdicts[kind] = Verdict(kind, value, reason, message)

    def event(self, reason: str, message: str, *, warning: bool = False) -> None:
        self.events.append(Event(reason, message, warning))

    def says(self, kind: str, reason: str) -> bool:
        """Whether the status said so already before this pass."""
        found = find_condition(self.before, kind)
        return found is not None and found["reason"] == reason

    def end(self, phase: str) -> None:
        self.status["phase"] = phase
        self.status["finishedAt"] = to_time(self.now)
        for name in ("activeArm", "activeRepetition", "blockedBy"):
            self.status.pop(name, None)

    @property
    def leaves_something(self) -> bool:
        """Whether a run has begun, or is about to, whose heal is not certain yet."""
        began = "startedAt" in self.status
        return began and (self.status.get("phase") not in OVER or _is_unhealed(self.status))

    def plan(self, wake_after: float | None, *, gone: bool = False) -> Plan:
        generation = self.experiment.metadata.generation
        self.status["conditions"] = judged(
            self.before, self.verdicts.values(), now=self.now, generation=generation
        )
        self.status["observedGeneration"] = generation
        return Plan(
            actions=tuple(self.actions),
            status=self.status,
            events=tuple(self.events),
            wake_after=wake_after,
            finalizer=self.leaves_something and not gone,
        )


def plan_experiment(
    experiment: ChaosExperiment,
    status: Mapping[str, Any],
    observed: ObservedExperiment,
    context: JobContext,
    now: float,
    *,
    drawn_seed: int,
    deleting: bool = False,
) -> Plan:
    """Return what brings an experiment on, and the status to write.

    Args:
        drawn_seed: Used once, when neither spec nor status has one.
        deleting: The object is going away: stop, heal, and let it go.
    """
    draft = _Draft(experiment, status, now, {**status, "operatorVersion": context.version})
    if deleting:
        return _delete(draft, observed, context)
    if status.get("phase") in OVER:
        return Plan(status=status, finalizer=draft.leaves_something)
    if experiment.spec.abort:
        return _abort(draft, observed, context)
    if "seed" not in status:
        given = experiment.spec.seed
        draft.status |= {"seed": drawn_seed if given is None else given, "phase": "Pending"}
        return draft.plan(_AT_ONCE)
    paused = experiment.metadata.is_paused
    draft.condition("Paused", paused, "Requested" if paused else "")
    run = next_run(experiment, status)
    if run is None:
        return _complete(draft)
    arm, repetition = run
    name = run_job_name(experiment.name, arm.name, repetition)
    if name in observed.jobs:
        return _follow(draft, arm, repetition, observed, context)
    if paused:
        return draft.plan(None)
    return _begin(draft, arm, repetition, observed, context)


# --- before a Job ---------------------------------------------------------------------------------


def _begin(
    draft: _Draft, arm: Arm, repetition: int, observed: ObservedExperiment, context: JobContext
) -> Plan:
    experiment = draft.experiment
    chosen = (draft.before.get("activeArm"), draft.before.get("activeRepetition"))
    lacking = guards.arm_problem(arm, observed) if observed.cluster is not None else ""
    if chosen == (arm.name, repetition) and lacking:
        draft.condition("Injected", False, "ApplyingArm", f"arm {arm.name}: {lacking}")
        draft.status["blockedBy"] = ["ApplyingArm"]
        return draft.plan(_POLL)
    refused = guards.refusal(experiment, arm, observed, context.permits) or _claim_refusal(
        experiment, observed, context
    )
    if refused is not None:
        if not draft.says("Injected", refused.reason):
            draft.event("ExperimentRefused", refused.message, warning=True)
        draft.condition("Injected", False, refused.reason, refused.message)
        draft.status["blockedBy"] = [refused.reason]
        return draft.plan(_WAIT)
    if chosen != (arm.name, repetition):
        draft.status |= {"activeArm": arm.name, "activeRepetition": repetition}
        draft.condition("Injected", False, "ApplyingArm", f"arm {arm.name}")
        return draft.plan(_AT_ONCE)
    heal = heal_state(experiment, observed)
    if heal.job is not None:  # of an earlier run: its name is needed again
        draft.actions += _remove(heal)
        return draft.plan(_POLL)
    if observed.claim is None:
        claim = experiment.spec.job.run_volume.claim_name
        draft.actions.append(Apply(run_claim(claim, context)))
    seed = int(draft.before["seed"])
    settings = finished(experiment_config_map(experiment, seed, context))
    if drift(settings, observed.settings) is not None:
        draft.actions.append(Apply(settings))
    draft.actions.append(Apply(experiment_job(experiment, arm.name, repetition, context)))
    draft.status.pop("blockedBy", None)
    draft.status["phase"] = _PREPARING
    if "startedAt" not in draft.before:
        draft.status["startedAt"] = to_time(draft.now)
        draft.event("ExperimentStarted", f"seed {seed}, {len(order(experiment))} runs")
        if experiment.spec.guard.require_namespace_label is not None:
            text = "spec.guard.requireNamespaceLabel has no effect: the namespace consents or not"
            draft.event("FieldIgnored", text, warning=True)
    draft.condition("Injected", None, "Running", f"{arm.name}-{repetition}")
    return draft.plan(_POLL)


def _claim_refusal(
    experiment: ChaosExperiment, observed: ObservedExperiment, context: JobContext
) -> guards.Refusal | None:
    """Only the chart's own claim is made here; one that the spec names must be there."""
    claim = experiment.spec.job.run_volume.claim_name
    if observed.claim is not None or claim == context.runs_claim:
        return None
    return guards.Refusal("GuardRefused", f"there is no PersistentVolumeClaim {claim}")


# --- while a Job runs, and at its end -------------------------------------------------------------


def _follow(
    draft: _Draft, arm: Arm, repetition: int, observed: ObservedExperiment, context: JobContext
) -> Plan:
    name = run_job_name(draft.experiment.name, arm.name, repetition)
    job, pod = observed.jobs[name], observed.pods.get(name)
    draft.status.setdefault("startedAt", to_time(draft.now))
    end = results.end_of(job)
    if end is None and results.exit_code(pod) is None:
        return _show_progress(draft, f"{arm.name}-{repetition}", pod, observed)
    try:
        summary = results.run_summary(pod)
        why = ""
    except results.SummaryInvalid as error:
        summary, why = None, f"SummaryInvalid: {error}"
        if end is not None and end.why:
            why = f"{why} ({end.why})"
    if summary is None or summary["exit"] == results.NOT_HEALED:
        heal = heal_state(draft.experiment, observed)
        if not heal.over:
            return _await_heal(draft, heal, context)
        draft.actions += _remove(heal) if heal.healed else []
        if not heal.healed:
            return _heal_failed(draft, heal, result_of(arm.name, repetition, summary, why))
    return _record(draft, arm.name, repetition, summary, why)


def _show_progress(
    draft: _Draft, run: str, pod: Mapping[str, Any] | None, observed: ObservedExperiment
) -> Plan:
    problem = results.pull_problem(pod)
    refused = "; ".join(observed.refused_pods.values())
    if problem or refused:
        reason = "ImagePullError" if problem else "PodRefused"
        draft.condition("Injected", False, reason, problem or refused)
        return draft.plan(_WAIT)
    progress = observed.progress
    if progress is None:
        if draft.says("Injected", "ImagePullError") or draft.says("Injected", "PodRefused"):
            draft.condition("Injected", None, "Running", run)
        return draft.plan(_POLL)
    if progress.get("phase") in _STAGES:
        draft.status["phase"] = _STAGES[progress["phase"]]
    draft.status["resolvedTargets"] = targets_of(
        draft.before.get("resolvedTargets") or (), progress.get("resolvedTargets") or ()
    )
    fault = progress.get("fault")
    message = f"{run}: {fault} is in effect" if fault else run
    earlier = find_condition(draft.before, "Injected")
    said = str(earlier["message"]) if earlier else ""
    if message != said:
        if fault:
            draft.event("FaultInjected", message)
        elif said.endswith("is in effect") and said.startswith(f"{run}:"):
            draft.event("FaultHealed", said.removesuffix("is in effect") + "healed")
    draft.condition("Injected", None, "Running", message)
    return draft.plan(_POLL)


def _record(
    draft: _Draft, arm: str, repetition: int, summary: Mapping[str, Any] | None, why: str
) -> Plan:
    """Write the result of one run; the next pass goes on with the next one."""
    result = result_of(arm, repetition, summary, why)
    draft.status["runs"] = [*(draft.before.get("runs") or ()), result]
    for name in ("activeArm", "activeRepetition"):
        draft.status.pop(name, None)
    if summary is not None:
        draft.status["resolvedTargets"] = targets_of(
            draft.before.get("resolvedTargets") or (), summary["targets"]
        )
        timeline, truncated = timeline_of(
            draft.before.get("timeline") or (), f"{arm}-{repetition}", summary
        )
        draft.status["timeline"] = timeline
        if truncated:
            draft.status["timelineTruncated"] = True
    injected = injected_of(draft.status["runs"], summary)
    draft.condition("Injected", injected.value, injected.reason, injected.message)
    draft.condition("Recovered", True, "Healed")
    restored = summary is not None and bool(summary.get("recovered"))
    if not draft.says("SteadyStateRestored", "Deviated"):
        draft.condition(
            "SteadyStateRestored",
            restored,
            "Held" if restored else "Deviated",
            "" if restored else "; ".join(result.get("reasons", ()))[:200],
        )
    if injected.ends:
        draft.event("ExperimentRefused", injected.message, warning=True)
        draft.status["verdict"] = worst(draft.status["runs"])
        draft.end("Failed")
        return draft.plan(None)
    draft.status["phase"] = _PREPARING
    return draft.plan(_AT_ONCE)


def _complete(draft: _Draft) -> Plan:
    runs: Sequence[Mapping[str, Any]] = draft.before.get("runs") or ()
    verdict = draft.status["verdict"] = worst(runs)
    injected = injected_of(runs, None)
    draft.condition("Injected", injected.value, injected.reason, injected.message)
    draft.end("Completed")
    draft.event("ExperimentFinished", f"{verdict}: {len(runs)} runs", warning=verdict == "Fail")
    return draft.plan(None)


# --- stopping and healing -------------------------------------------------------------------------


def _await_heal(draft: _Draft, heal: Heal, context: JobContext) -> Plan:
    if heal.job is None:
        draft.actions.append(Apply(_heal(draft.experiment, context)))
    draft.condition("Recovered", False, "HealPending", "the heal Job has not ended")
    draft.status["blockedBy"] = ["HealPending"]
    return draft.plan(_POLL)


def _heal(experiment: ChaosExperiment, context: JobContext) -> Mapping[str, Any]:
    """Return the Job that heals; the chart's own, where the one asked for is not allowed."""
    permits = context.permits
    if permits is not None and broken(experiment, permits):
        ours = {"image": None, "service_account_name": permits.experiment_accounts[0]}
        own = experiment.spec.job.model_copy(update=ours)
        spec = experiment.spec.model_copy(update={"job": own})
        experiment = experiment.model_copy(update={"spec": spec})
    return heal_job(experiment, context)


def _heal_failed(draft: _Draft, heal: Heal, result: Mapping[str, Any] | None) -> Plan:
    """Keep the Lease with the run, so that nothing else is injected until a person has healed
    it."""
    if result is not None:
        draft.status["runs"] = [*(draft.before.get("runs") or ()), dict(result)]
    draft.condition("Recovered", False, "HealFailed", heal.why)
    draft.event("HealFailed", heal.why, warning=True)
    draft.status["verdict"] = worst(draft.status.get("runs") or ())
    draft.end("Failed")
    return draft.plan(None)


def _began(draft: _Draft, observed: ObservedExperiment) -> bool:
    """A Job may be there before the status tells of it: what it left needs a heal, too."""
    return "startedAt" in draft.before or bool(observed.jobs)


def _stop(draft: _Draft, observed: ObservedExperiment) -> bool:
    """Have every running Job end in order; tell whether all have."""
    stopped = True
    for name, job in sorted(observed.jobs.items()):
        if name == heal_state(draft.experiment, observed).name:
            continue
        if results.end_of(job) is not None and not results.is_leaving(job):
            continue
        stopped = False
        if not results.is_leaving(job):
            uid = str(job["metadata"]["uid"])
            draft.actions.append(Delete(("Job", name), uid, "Foreground"))
    return stopped


def _abort(draft: _Draft, observed: ObservedExperiment, context: JobContext) -> Plan:
    began = _began(draft, observed)
    if began:
        draft.status.setdefault("startedAt", to_time(draft.now))
    if not draft.says("Injected", "Aborted"):
        draft.event("ExperimentAborted", "asked to stop", warning=True)
    draft.condition("Injected", False, "Aborted", "asked to stop")
    heal = heal_state(draft.experiment, observed)
    if not _stop(draft, observed):
        draft.condition("Recovered", False, "HealPending", "the run is being stopped")
        return draft.plan(_POLL)
    if began and not heal.over:
        return _await_heal(draft, heal, context)
    if began and not heal.healed:
        return _heal_failed(draft, heal, None)
    draft.condition("Recovered", True, "Healed")
    draft.status["verdict"] = worst(draft.status.get("runs") or ())
    draft.end("Aborted")
    return draft.plan(None)


def _delete(draft: _Draft, observed: ObservedExperiment, context: JobContext) -> Plan:
    """Stop and heal what may still be in effect, then let the object go."""
    over = draft.before.get("phase") in OVER
    if not _began(draft, observed) or (over and not _is_unhealed(draft.before)):
        return draft.plan(None, gone=True)
    draft.status.setdefault("startedAt", to_time(draft.now))
    since = from_time(draft.experiment.metadata.deletion_timestamp)
    heal = heal_state(draft.experiment, observed)
    if since is not None and draft.now - since > GIVE_UP_SECONDS:
        draft.event("HealFailed", heal.why or "the heal did not end in time", warning=True)
        return draft.plan(None, gone=True)
    if not _stop(draft, observed):
        draft.condition("Recovered", False, "HealPending", "the run is being stopped")
        return draft.plan(_POLL)
    if heal.over and heal.healed:
        return draft.plan(None, gone=True)
    if heal.over:  # tried once more until the time is over
        draft.actions += _remove(heal)
        return draft.plan(_WAIT)
    return _await_heal(draft, heal, context)


def _is_unhealed(status: Mapping[str, Any]) -> bool:
    recovered = find_condition(status, "Recovered")
    return recovered is not None and recovered["status"] == "False"


def _remove(heal: Heal) -> list[Action]:
    if heal.job is None or results.is_leaving(heal.job):
        return []
    return [Delete(("Job", heal.name), str(heal.job["metadata"]["uid"]))]
