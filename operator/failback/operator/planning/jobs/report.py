"""Decide what a ReconsumptionReport needs now: its input, one Job, its figures. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Pass:
    """One pass over a report: what it starts from, and the plan that it ends with."""

    report: ReconsumptionReport
    status: Mapping[str, Any]
    observed: ObservedReport
    context: JobContext
    now: float

    def turned(self, phase: str, since: str, **figures: Any) -> dict[str, Any]:
        """Return the status of a report whose phase is another from now on.

        Args:
            since: The field that says when.
        """
        draft = {**self.status, **figures, "phase": phase, since: to_time(self.now)}
        draft.pop("blockedBy", None)
        return draft

    def plan(
        self,
        draft: Mapping[str, Any],
        verdicts: Iterable[Verdict],
        *,
        actions: tuple[Action, ...] = (),
        events: tuple[Event, ...] = (),
        wake_after: float | None = None,
    ) -> Plan:
        generation = self.report.metadata.generation
        conditions = judged(self.status, verdicts, now=self.now, generation=generation)
        status = {
            **draft,
            "conditions": conditions,
            "observedGeneration": generation,
            "operatorVersion": self.context.version,
        }
        return Plan(actions, status, events=events, wake_after=wake_after)

    def wait(self, reason: str, message: str) -> Plan:
        """Return the plan of a report that is as far as it was, and why."""
        verdicts = [Verdict("Complete", False, reason, message)]
        return self.plan(self.status, verdicts, wake_after=_WAIT)

    def fail(self, reason: str, message: str) -> Plan:
        verdicts = [Verdict("Complete", False, reason, message)]
        event = Event("ReportFailed", message, warning=True)
        return self.plan(self.turned("Failed", "finishedAt"), verdicts, events=(event,))


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
    this = _Pass(report, status, observed, context, now)
    if observed.job is not None:
        return _follow(this, observed.job)
    if observed.application is not None:
        return _follow_application(this, observed.application)
    found = _input(report, observed, context)
    if found.reason:
        created = from_time(report.metadata.creation_timestamp)
        waited = created is not None and now - created > PATIENCE_SECONDS
        if found.final or waited:
            return this.fail(found.reason, found.message)
        draft = {**status, "phase": "Waiting", "blockedBy": [found.reason]}
        verdicts = [Verdict("Complete", False, found.reason, found.message)]
        return this.plan(draft, verdicts, wake_after=_WAIT)
    make = spark_application if _needs_spark_operator(report) else report_job
    action = Apply(make(report, found.runs, found.claim, context))
    verdicts = [Verdict("Complete", False, "Waiting", "the Job has not ended")]
    runs = f"{len(found.runs)} run{'s' if len(found.runs) > 1 else ''}"
    started = Event("ReportStarted", f"{runs}, engine {report.spec.engine}")
    return this.plan(
        this.turned("Running", "startedAt"),
        verdicts,
        actions=(action,),
        events=(started,),
        wake_after=_POLL,
    )


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


# --- the Job --------------------------------------------------------------------------------------


def _follow(this: _Pass, job: Object) -> Plan:
    observed, end = this.observed, results.end_of(job)
    problem = results.pull_problem(observed.pod)
    if end is None and (problem or observed.refused_pod):
        reason = "ImagePullError" if problem else "PodRefused"
        return this.wait(reason, problem or observed.refused_pod)
    try:
        # A report of a failed run ends with its exit code, so a Job may fail and be complete.
        summary = results.report_summary(observed.pod)
    except results.SummaryInvalid as error:
        if end is None:
            return this.plan(this.status, (), wake_after=_POLL)
        if end.succeeded:
            return this.fail("SummaryInvalid", str(error))
        return this.fail("JobFailed", f"{end.why}; {error}")
    return _done(this, summary)


def _follow_application(this: _Pass, application: Object) -> Plan:
    seen = (application.get("status") or {}).get("applicationState") or {}
    try:
        summary = results.report_summary(this.observed.pod)
    except results.SummaryInvalid as error:
        state = str(seen.get("state") or "")
        if state in _FAILED_STATES or state == "COMPLETED":
            reason = "SummaryInvalid" if state == "COMPLETED" else "JobFailed"
            return this.fail(reason, f"{state}: {seen.get('errorMessage') or error}")
        return this.wait("Waiting", state)
    return _done(this, summary)


def _done(this: _Pass, summary: Mapping[str, Any]) -> Plan:
    figures = {name: summary[name] for name in FIGURES if summary.get(name) is not None}
    absent = _absent(this.report, this.observed)
    verdict, reason, message = judge(summary, absent)
    draft = this.turned("Done", "finishedAt", **figures, verdict=verdict)
    draft["reasons"] = [*(summary.get("reasons") or ()), *absent][:MAX_REASONS]
    pages = _where_the_pages_are(this.report, summary, this.observed)
    verdicts = [
        Verdict("Complete", True, "Counted", pages),
        Verdict("WithinThresholds", verdict == "Pass", reason, message),
    ]
    text = f"{verdict}: {summary['duplicates']} duplicates of {summary.get('distinct')} messages"
    event = Event("ReportFinished", text, warning=verdict == "Fail")
    return this.plan(draft, verdicts, events=(event,))


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
