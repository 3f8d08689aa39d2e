"""Decide what a ReconsumptionReport needs now: its input, one Job, its figures. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from failback.common.text import typed
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.planning.jobs import results
from failback.operator.planning.jobs.experiment import OVER
from failback.operator.planning.jobs.runs import MAX_REASONS
from failback.operator.planning.observed.observed import Object, ObservedReport
from failback.operator.planning.plan.encoding import Verdict, from_time, judged, to_time
from failback.operator.planning.plan.types import Action, Apply, Event, Plan
from failback.operator.render.jobs import RUNS, JobContext, run_folder
from failback.operator.render.report_jobs import report_job, spark_application
from failback.operator.schema.permitted import broken

FINISHED: Final = frozenset({"Done", "Failed"})
PATIENCE_SECONDS: Final = 24 * 3600.0
"""So long a report waits for its input."""
FIGURES: Final = (
    *("produced", "delivered", "distinct", "duplicates", "duplicateRatio", "maxRedelivery"),
    *("lost", "outOfOrder", "rewoundOffsets", "rtoSeconds", "byCause", "perGroup", "perPair"),
    *("bound", "boundsExceeded", "ruleSet", "runSha256", "artifactUri", "reasons", "outcome"),
)
_WAIT: Final = 10.0
_POLL: Final = 2.0
_OF_FIGURE: Final = {"dup_ratio": "Duplicates", "lost": "Lost", "ooo_first": "OutOfOrder"}
"""Reason of the condition, by the figure that missed its limit."""
_MISSED: Final = re.compile(rf": (?:totals\.)?(?P<figure>{'|'.join(_OF_FIGURE)}) is ")
_FAILED_STATES: Final = ("FAILED", "SUBMISSION_FAILED", "FAILING", "INVALIDATING")


class _Input(NamedTuple):
    """Run folders and the claim that holds them, or why there are none yet."""

    runs: tuple[str, ...] = ()
    claim: str = ""
    reason: str = ""
    message: str = ""
    final: bool = False
    """Nothing will change by waiting."""


def plan_report(
    report: ReconsumptionReport,
    status: Mapping[str, Any],
    observed: ObservedReport,
    context: JobContext,
    now: float,
) -> Plan:
    """Return what brings a report on, and the status to write."""
    if status.get("phase") in FINISHED:
        return Plan(status=status)
    if observed.job is not None:
        return _follow(report, status, observed, context, now)
    if observed.application is not None:
        return _follow_application(report, status, observed, context, now)
    found = _input(report, observed, context)
    if found.reason:
        created = from_time(report.metadata.creation_timestamp)
        waited = created is not None and now - created > PATIENCE_SECONDS
        return _wait(report, status, found, context, now, give_up=found.final or waited)
    make = spark_application if _needs_spark_operator(report) else report_job
    actions: list[Action] = [Apply(make(report, found.runs, found.claim, context))]
    draft = {**status, "phase": "Running", "startedAt": to_time(now)}
    draft.pop("blockedBy", None)
    verdicts = [Verdict("Complete", False, "Waiting", "the Job has not ended")]
    runs = f"{len(found.runs)} run{'s' if len(found.runs) > 1 else ''}"
    started = Event("ReportStarted", f"{runs}, engine {report.spec.engine}")
    return _plan(report, status, draft, verdicts, context, now, actions, [started], _POLL)


# --- input ----------------------------------------------------------------------------------------


def _input(report: ReconsumptionReport, observed: ObservedReport, context: JobContext) -> _Input:
    refused = broken(report, context.permits)
    if refused:
        return _Input(reason="InvalidSpec", message="; ".join(map(str, refused[:3])))
    if _needs_spark_operator(report) and "SparkApplication" not in observed.served_kinds:
        text = "the API server serves no SparkApplication"
        return _Input(reason="SparkOperatorMissing", message=text)
    found = _from_experiment(report, observed) if report.spec.experiment_ref else _given(report)
    if found.reason:
        return found
    claim = found.claim or context.runs_claim
    if observed.claim is None:
        return _Input(reason="InputMissing", message=f"there is no PersistentVolumeClaim {claim}")
    return found._replace(claim=claim)


def _needs_spark_operator(report: ReconsumptionReport) -> bool:
    return report.spec.engine == "Spark" and report.spec.spark.mode == "SparkApplication"


def _from_experiment(report: ReconsumptionReport, observed: ObservedReport) -> _Input:
    assert report.spec.experiment_ref is not None
    name = report.spec.experiment_ref.name
    experiment = observed.experiment
    if experiment is None:
        return _Input(reason="ExperimentMissing", message=f"there is no ChaosExperiment {name}")
    status = experiment.get("status") or {}
    phase = status.get("phase") or "Pending"
    if phase not in OVER:
        return _Input(reason="Waiting", message=f"experiment {name} is {phase}")
    runs = [
        run_folder(name, each["arm"], each["repetition"])
        for each in status.get("runs") or ()
        if each.get("run")
    ]
    if not runs:
        return _Input(reason="InputMissing", message=f"experiment {name} left no run", final=True)
    volume = (experiment["spec"].get("job") or {}).get("runVolume") or {}
    return _Input(tuple(runs), str(volume.get("claimName") or ""))


def _absent(report: ReconsumptionReport, observed: ObservedReport) -> list[str]:
    """Name the runs of the experiment that left nothing to count, or were never made."""
    if report.spec.experiment_ref is None or observed.experiment is None:
        return []
    name, status = report.spec.experiment_ref.name, observed.experiment.get("status") or {}
    said = [
        f"{each['arm']}-{each['repetition']} left no run and is not counted"
        for each in status.get("runs") or ()
        if not each.get("run")
    ]
    if status.get("phase") == "Completed":
        return said
    return [*said, f"experiment {name} is {status.get('phase')}: not every run was made"]


def claim_of(report: ReconsumptionReport, experiment: Object | None, context: JobContext) -> str:
    """Return the name of the claim to observe for a report."""
    if report.spec.inputs is not None:
        return report.spec.inputs.claim_name or context.runs_claim
    volume = ((experiment or {}).get("spec", {}).get("job") or {}).get("runVolume") or {}
    return str(volume.get("claimName") or context.runs_claim)


def _given(report: ReconsumptionReport) -> _Input:
    inputs = report.spec.inputs
    assert inputs is not None
    base = RUNS
    if inputs.uri is not None:
        base = inputs.uri.removeprefix("file://").rstrip("/")
    runs = tuple(f"{base}/{run}" for run in inputs.runs) or (base,)
    return _Input(runs, inputs.claim_name or "")


def _wait(
    report: ReconsumptionReport,
    status: Mapping[str, Any],
    found: _Input,
    context: JobContext,
    now: float,
    *,
    give_up: bool,
) -> Plan:
    draft = {**status, "phase": "Failed" if give_up else "Waiting"}
    events = []
    if give_up:
        draft |= {"finishedAt": to_time(now)}
        draft.pop("blockedBy", None)
        events.append(Event("ReportFailed", found.message, warning=True))
    else:
        draft["blockedBy"] = [found.reason]
    verdicts = [Verdict("Complete", False, found.reason, found.message)]
    wake = None if give_up else _WAIT
    return _plan(report, status, draft, verdicts, context, now, [], events, wake)


# --- the Job --------------------------------------------------------------------------------------


def _follow(
    report: ReconsumptionReport,
    status: Mapping[str, Any],
    observed: ObservedReport,
    context: JobContext,
    now: float,
) -> Plan:
    assert observed.job is not None
    end = results.end_of(observed.job)
    problem = results.pull_problem(observed.pod)
    if end is None and (problem or observed.refused_pod):
        reason = "ImagePullError" if problem else "PodRefused"
        verdicts = [Verdict("Complete", False, reason, problem or observed.refused_pod)]
        return _plan(report, status, {**status}, verdicts, context, now, [], [], _WAIT)
    try:
        # A report of a failed run ends with its exit code, so a Job may fail and be complete.
        summary = results.report_summary(observed.pod)
    except results.SummaryInvalid as error:
        if end is None:
            return _plan(report, status, {**status}, [], context, now, [], [], _POLL)
        reason = "SummaryInvalid" if end.succeeded else "JobFailed"
        message = str(error) if end.succeeded else f"{end.why}; {error}"
        return _fail(report, status, reason, message, context, now)
    return _done(report, status, summary, observed, context, now)


def _follow_application(
    report: ReconsumptionReport,
    status: Mapping[str, Any],
    observed: ObservedReport,
    context: JobContext,
    now: float,
) -> Plan:
    assert observed.application is not None
    application = (observed.application.get("status") or {}).get("applicationState") or {}
    try:
        summary = results.report_summary(observed.pod)
    except results.SummaryInvalid as error:
        state = str(application.get("state") or "")
        if state in _FAILED_STATES or state == "COMPLETED":
            reason = "SummaryInvalid" if state == "COMPLETED" else "JobFailed"
            message = f"{state}: {application.get('errorMessage') or error}"
            return _fail(report, status, reason, message, context, now)
        verdicts = [Verdict("Complete", False, "Waiting", state)]
        return _plan(report, status, {**status}, verdicts, context, now, [], [], _WAIT)
    return _done(report, status, summary, observed, context, now)


def _done(
    report: ReconsumptionReport,
    status: Mapping[str, Any],
    summary: Mapping[str, Any],
    observed: ObservedReport,
    context: JobContext,
    now: float,
) -> Plan:
    figures = {name: summary[name] for name in FIGURES if summary.get(name) is not None}
    absent = _absent(report, observed)
    verdict, reason, message = judge(summary, absent)
    draft = {**status, **figures, "phase": "Done", "finishedAt": to_time(now), "verdict": verdict}
    draft["reasons"] = [*(summary.get("reasons") or ()), *absent][:MAX_REASONS]
    draft.pop("blockedBy", None)
    verdicts = [
        Verdict("Complete", True, "Counted", _where_the_pages_are(report, summary, observed)),
        Verdict("WithinThresholds", verdict == "Pass", reason, message),
    ]
    text = f"{verdict}: {summary['duplicates']} duplicates of {summary.get('distinct')} messages"
    event = Event("ReportFinished", text, warning=verdict == "Fail")
    return _plan(report, status, draft, verdicts, context, now, [], [event], None)


def _where_the_pages_are(
    report: ReconsumptionReport, summary: Mapping[str, Any], observed: ObservedReport
) -> str:
    """Say where report.html lies: the status has the figures only."""
    place = str(summary.get("artifactUri") or "").removeprefix("file://")
    claim = str((observed.claim or {}).get("metadata", {}).get("name") or "")
    if not place or not claim:
        return "the figures are in the status"
    text = f"the figures are in the status, report.html is in {place} of the claim {claim}"
    command = typed("kubectl", "failback", "report", report.name)
    return f"{text}: {command}, or kubectl cp from a pod that mounts it"


def _fail(
    report: ReconsumptionReport,
    status: Mapping[str, Any],
    reason: str,
    message: str,
    context: JobContext,
    now: float,
) -> Plan:
    draft = {**status, "phase": "Failed", "finishedAt": to_time(now)}
    draft.pop("blockedBy", None)
    verdicts = [Verdict("Complete", False, reason, message)]
    event = Event("ReportFailed", message, warning=True)
    return _plan(report, status, draft, verdicts, context, now, [], [event], None)


# --- judging --------------------------------------------------------------------------------------


def judge(summary: Mapping[str, Any], absent: Sequence[str] = ()) -> tuple[str, str, str]:
    """Return verdict, reason and message of the condition WithinThresholds.

    The thresholds went to the Job as limits of each run, so the summary has judged by them.

    Args:
        absent: What is said of runs that could not be counted: the verdict is then not Pass.
    """
    verdict = str(summary["verdict"])
    if verdict == "Pass" and absent:
        return "Inconclusive", "Inconclusive", absent[0]
    if verdict == "Pass":
        return "Pass", "WithinLimits", ""
    said = summary.get("reasons") or [f"the runs' verdict is {verdict}"]
    if verdict == "Inconclusive":
        return verdict, "Inconclusive", str(said[0])
    missed = _MISSED.search(str(said[0]))
    if missed is not None:
        return verdict, _OF_FIGURE[missed["figure"]], str(said[0])
    return verdict, "Lost" if summary.get("lost") else "Duplicates", str(said[0])


# --- the status -----------------------------------------------------------------------------------


def _plan(
    report: ReconsumptionReport,
    before: Mapping[str, Any],
    draft: dict[str, Any],
    verdicts: Sequence[Verdict],
    context: JobContext,
    now: float,
    actions: Sequence[Action],
    events: Sequence[Event],
    wake_after: float | None,
) -> Plan:
    generation = report.metadata.generation
    draft["conditions"] = judged(before, verdicts, now=now, generation=generation)
    draft["observedGeneration"] = generation
    draft["operatorVersion"] = context.version
    return Plan(tuple(actions), draft, events=tuple(events), wake_after=wake_after)
