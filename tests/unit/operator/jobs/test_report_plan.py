"""A report waits for its input, counts in a Job, and shows the figures of its summary."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from failback.analytics.report.metric_paths import parse_limits
from failback.cli.shared.errors import FAIL, INCONCLUSIVE, USER_ERROR
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.planning.jobs.report import plan_report
from failback.operator.planning.observed.observed import ObservedReport
from failback.operator.planning.plan.types import Apply, Plan
from failback.operator.render.jobs import JobContext
from failback.operator.schema.decoding import decode

NOW = 1_700_000_000.0
CONTEXT = JobContext("shop", "0.1.0")
CLAIM = {"metadata": {"name": "failback-runs"}}
EXPERIMENT: dict[str, Any] = {
    "metadata": {"name": "kill"},
    "spec": {},
    "status": {
        "phase": "Completed",
        "runs": [
            {"arm": "stay", "repetition": 0, "run": "a"},
            {"arm": "handover", "repetition": 0, "run": "b"},
        ],
    },
}
ABSENT: dict[str, Any] = {"arm": "stay", "repetition": 1}
ONE_ABSENT: dict[str, Any] = {
    **EXPERIMENT,
    "status": {"phase": "Completed", "runs": [*EXPERIMENT["status"]["runs"], ABSENT]},
}
SEEN = ObservedReport(at=NOW, experiment=EXPERIMENT, claim=CLAIM)


def report(**spec: Any) -> ReconsumptionReport:
    given = {"experimentRef": {"name": "kill"}} if "inputs" not in spec else {}
    found = decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "ReconsumptionReport",
            "metadata": {
                "name": "kill",
                "namespace": "shop",
                "uid": "u",
                "creationTimestamp": "2023-11-14T22:13:20Z",
            },
            "spec": {**given, **spec},
        }
    )
    assert isinstance(found, ReconsumptionReport)
    return found


def condition(plan: Plan, kind: str) -> tuple[str, str, str]:
    found = next(each for each in plan.status["conditions"] if each["type"] == kind)
    return found["status"], found["reason"], found["message"]


def jobs(plan: Plan) -> list[dict[str, Any]]:
    return [dict(each.manifest) for each in plan.actions if isinstance(each, Apply)]


def ended(message: object, *, failed: str = "") -> dict[str, Any]:
    text = message if isinstance(message, str) else json.dumps(message)
    kind = {"type": "Failed", "reason": failed} if failed else {"type": "Complete"}
    job = {"metadata": {"name": "fbr-kill"}, "status": {"conditions": [kind | {"status": "True"}]}}
    state = {"terminated": {"exitCode": 1 if failed else 0, "message": text}}
    pod = {"status": {"containerStatuses": [{"name": "main", "state": state}]}}
    return {"job": job, "pod": pod}


def figures(**changes: Any) -> dict[str, Any]:
    return {
        "verdict": "Pass",
        "reasons": [],
        "produced": 1000,
        "delivered": 1040,
        "distinct": 1000,
        "duplicates": 40,
        "duplicateRatio": "0.04",
        "maxRedelivery": 2,
        "lost": 0,
        "outOfOrder": 0,
        "rewoundOffsets": 40,
        "rtoSeconds": {"produce": 51.2, "consume": 32.8},
        "byCause": {"rollback": 40, "retry": 0},
        "bound": 3000,
        "boundsExceeded": False,
        "perGroup": [{"group": "billing", "duplicates": 40}],
        "perPair": [],
        "ruleSet": "4.9.8",
        "runSha256": "ab" * 32,
        "artifactUri": "file:///runs/kill",
        "truncated": False,
    } | changes


def test_the_runs_of_a_finished_experiment_are_counted_in_one_job() -> None:
    plan = plan_report(report(), {}, replace(SEEN, experiment=ONE_ABSENT), CONTEXT, NOW)
    (job,) = jobs(plan)
    assert job["metadata"]["name"] == "fbr-kill"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        *("report", "--engine", "auto", "--summary", "/dev/termination-log"),
        *("--", "/runs/kill/stay-000", "/runs/kill/handover-000"),
    ]
    assert plan.status["phase"] == "Running"
    assert [each.reason for each in plan.events] == ["ReportStarted"]


@pytest.mark.parametrize(
    ("seen", "reason", "message"),
    [
        (
            replace(SEEN, experiment=None),
            "ExperimentMissing",
            "there is no ChaosExperiment kill",
        ),
        (
            replace(SEEN, experiment={**EXPERIMENT, "status": {"phase": "Draining"}}),
            "Waiting",
            "experiment kill is Draining",
        ),
        (
            replace(SEEN, claim=None),
            "InputMissing",
            "there is no PersistentVolumeClaim failback-runs",
        ),
    ],
)
def test_without_input_it_waits_and_gives_up_after_a_day(
    seen: ObservedReport, reason: str, message: str
) -> None:
    plan = plan_report(report(), {}, seen, CONTEXT, NOW)
    assert (plan.status["phase"], jobs(plan)) == ("Waiting", [])
    assert condition(plan, "Complete") == ("False", reason, message)
    assert plan.wake_after is not None
    late = plan_report(report(), {}, seen, CONTEXT, NOW + 86401)
    assert (late.status["phase"], late.wake_after) == ("Failed", None)
    assert [each.reason for each in late.events] == ["ReportFailed"]


def test_an_experiment_that_left_no_run_is_no_input() -> None:
    seen = replace(SEEN, experiment={**EXPERIMENT, "status": {"phase": "Failed"}})
    plan = plan_report(report(), {}, seen, CONTEXT, NOW)
    assert plan.status["phase"] == "Failed"
    assert condition(plan, "Complete")[1:] == ("InputMissing", "experiment kill left no run")


def test_given_inputs_need_no_experiment() -> None:
    inputs = {"claimName": "mine", "runs": ["old/base-000"]}
    seen = ObservedReport(at=NOW, claim={"metadata": {"name": "mine"}})
    (job,) = jobs(plan_report(report(inputs=inputs), {}, seen, CONTEXT, NOW))
    pod = job["spec"]["template"]["spec"]
    assert pod["containers"][0]["args"][-2:] == ["--", "/runs/old/base-000"]
    volume = next(each for each in pod["volumes"] if each["name"] == "runs")
    assert volume["persistentVolumeClaim"] == {"claimName": "mine"}


def test_figures_and_conditions_come_from_the_summary() -> None:
    seen = replace(SEEN, **ended(figures()))
    plan = plan_report(report(), {"phase": "Running"}, seen, CONTEXT, NOW)
    status = plan.status
    assert (status["phase"], status["verdict"]) == ("Done", "Pass")
    assert (status["duplicates"], status["duplicateRatio"]) == (40, "0.04")
    assert status["byCause"] == figures()["byCause"]
    assert status["bound"] == figures()["bound"]
    assert condition(plan, "Complete")[0] == "True"
    assert condition(plan, "WithinThresholds")[0] == "True"
    again = plan_report(report(), status, seen, CONTEXT, NOW + 5)
    assert (again.actions, again.status, again.events) == ((), status, ())


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({}, "WithinLimits", ""),
        (
            {"reasons": ["stay-0: EXPECT: totals.dup_ratio is 0.04, the limit is <= 0.03"]},
            "Duplicates",
            "stay-0: EXPECT: totals.dup_ratio is 0.04, the limit is <= 0.03",
        ),
        (
            {"lost": 2, "reasons": ["stay-1: EXPECT: totals.ooo_first is 3, the limit is <= 2"]},
            "OutOfOrder",
            "stay-1: EXPECT: totals.ooo_first is 3, the limit is <= 2",
        ),
        (
            {"reasons": ["stay-0: EXPECT: lost is 1, the limit is <= 0"]},
            "Lost",
            "stay-0: EXPECT: lost is 1, the limit is <= 0",
        ),
        ({"verdict": "Inconclusive", "reasons": ["NO_DRAIN: x"]}, "Inconclusive", "NO_DRAIN: x"),
        ({"lost": 2, "reasons": ["LOST: x"]}, "Lost", "LOST: x"),
        ({"reasons": []}, "Duplicates", "the runs' verdict is Fail"),
    ],
)
def test_the_verdict_is_the_one_of_the_pages(
    changes: dict[str, Any], reason: str, message: str
) -> None:
    """Also where the report's thresholds were missed: the Job had them."""
    told = {"outcome": "limit missed", "verdict": "Fail" if changes else "Pass"} | changes
    seen = replace(SEEN, **ended(figures(**told)))
    plan = plan_report(report(thresholds={"maxLost": 0}), {}, seen, CONTEXT, NOW)
    assert (plan.status["verdict"], plan.status["outcome"]) == (told["verdict"], "limit missed")
    assert condition(plan, "WithinThresholds")[1:] == (reason, message)
    assert plan.status["reasons"] == told.get("reasons", [])


@pytest.mark.parametrize(
    ("said", "verdict", "message"),
    [
        ({}, "Inconclusive", "stay-1 left no run and is not counted"),
        ({"verdict": "Fail", "lost": 1, "reasons": ["LOST: x"]}, "Fail", "LOST: x"),
    ],
)
def test_a_run_that_left_nothing_is_named_and_takes_the_pass_away(
    said: dict[str, Any], verdict: str, message: str
) -> None:
    seen = replace(SEEN, experiment=ONE_ABSENT, **ended(figures(**said)))
    plan = plan_report(report(), {"phase": "Running"}, seen, CONTEXT, NOW)
    assert (plan.status["phase"], plan.status["verdict"]) == ("Done", verdict)
    assert condition(plan, "WithinThresholds")[2] == message
    assert plan.status["reasons"][-1] == "stay-1 left no run and is not counted"
    stopped = {**EXPERIMENT, "status": {**EXPERIMENT["status"], "phase": "Aborted"}}
    aborted = plan_report(report(), {}, replace(seen, experiment=stopped), CONTEXT, NOW).status
    assert aborted["verdict"] == verdict
    assert aborted["reasons"][-1] == "experiment kill is Aborted: not every run was made"
    given = report(experimentRef=None, inputs={"claimName": "mine", "runs": ["old"]})
    assert plan_report(given, {}, seen, CONTEXT, NOW).status["reasons"] == said.get("reasons", [])


def test_thresholds_go_to_the_job_as_limits_of_its_command_line() -> None:
    limits = {"maxDuplicateRatio": "0.015", "maxLost": 0, "maxOutOfOrder": 20}
    (job,) = jobs(plan_report(report(thresholds=limits), {}, SEEN, CONTEXT, NOW))
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    given = [limit for word, limit in pairwise(words) if word == "--expect"]
    assert given == ["dup_ratio <= 0.015", "lost <= 0", "ooo_first <= 20"]
    assert [(each["metric"], each["value"]) for each in parse_limits(given)] == [
        ("totals.dup_ratio", 0.015),
        ("totals.lost", 0),
        ("totals.ooo_first", 20),
    ]


def test_an_answer_ends_the_job_at_the_first_try() -> None:
    """Of which exit code 1, a missed limit, is one; whatever else happened is tried again."""
    (job,) = jobs(plan_report(report(), {}, SEEN, CONTEXT, NOW))
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert job["spec"]["backoffLimit"] == 1
    assert (rule["action"], rule["onExitCodes"]["operator"]) == ("FailJob", "In")
    assert rule["onExitCodes"]["values"] == [FAIL, USER_ERROR, INCONCLUSIVE]


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (ended("nonsense"), "SummaryInvalid"),
        (ended({"verdict": "Pass"}), "SummaryInvalid"),
        (ended("", failed="BackoffLimitExceeded"), "JobFailed"),
    ],
)
def test_a_job_without_figures_fails_the_report(end: dict[str, Any], reason: str) -> None:
    plan = plan_report(report(), {}, replace(SEEN, **end), CONTEXT, NOW)
    assert plan.status["phase"] == "Failed"
    assert condition(plan, "Complete")[1] == reason


def test_a_job_that_failed_with_figures_is_complete() -> None:
    """``failback report`` ends with 1 when the verdict is Fail: that is an answer."""
    end = ended(figures(verdict="Fail", reasons=["x"]), failed="PodFailurePolicy")
    plan = plan_report(report(), {}, replace(SEEN, **end), CONTEXT, NOW)
    assert (plan.status["phase"], plan.status["verdict"]) == ("Done", "Fail")


def test_the_spark_operator_is_needed_where_it_is_asked_for() -> None:
    wanted = report(engine="Spark", spark={"mode": "SparkApplication"})
    plan = plan_report(wanted, {}, SEEN, CONTEXT, NOW)
    assert condition(plan, "Complete")[1] == "SparkOperatorMissing"
    assert jobs(plan) == []
    served = replace(SEEN, served_kinds=frozenset({"SparkApplication"}))
    (made,) = jobs(plan_report(wanted, {}, served, CONTEXT, NOW))
    assert made["kind"] == "SparkApplication"
    state = {"applicationState": {"state": "FAILED", "errorMessage": "no driver"}}
    failed = replace(served, application={"status": state})
    over = plan_report(wanted, {}, failed, CONTEXT, NOW)
    assert condition(over, "Complete")[1:] == ("JobFailed", "FAILED: no driver")


def test_definitions_are_passed_on_to_the_job() -> None:
    definitions = {"key": "MessageID", "window": "15m", "ignoreRetryTopics": True}
    (job,) = jobs(plan_report(report(definitions=definitions), {}, SEEN, CONTEXT, NOW))
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert words[3:8] == ["--key", "messageId", "--window", "15m", "--ignore-retry-topics"]


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "gone"}}}
    pod = {"status": {"containerStatuses": [{"name": "main", "image": "i:1", **waiting}]}}
    seen = replace(SEEN, job={"metadata": {}, "status": {}}, pod=pod)
    plan = plan_report(report(), {}, seen, CONTEXT, NOW)
    assert condition(plan, "Complete")[1:] == ("ImagePullError", "i:1: ErrImagePull: gone")
    seen = replace(seen, pod=None, refused_pod="exceeded quota: q")
    plan = plan_report(report(), {}, seen, CONTEXT, NOW)
    assert condition(plan, "Complete")[1:] == ("PodRefused", "exceeded quota: q")
