"""Reports over run folders that no experiment made: input, summary, and both engines."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.report.outcome import outcome_badge
from tests.support.analytics.cases import CASES
from tests.support.analytics.run_builder import merged
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.kubectl_plugin import plugin
from tests.support.operator.operator_process import condition_of, operator

CLAIM = "kept-runs"
FIGURES = (
    *("produced", "delivered", "distinct", "duplicates", "duplicateRatio", "maxRedelivery"),
    *("lost", "outOfOrder", "rewoundOffsets", "rtoSeconds", "byCause", "perGroup", "perPair"),
    *("bound", "boundsExceeded", "ruleSet", "runSha256", "verdict", "reasons", "outcome"),
)


def create_report(namespace: Namespace, name: str, **spec: Any) -> None:
    document = {"apiVersion": "failback.dev/v1alpha1", "kind": "ReconsumptionReport"}
    namespace.api.create({**document, "metadata": {"name": name}, "spec": spec})


def wait_for(namespace: Namespace, name: str, reason: str, seconds: float = 60) -> Object:
    """Wait until a report's condition Complete has a reason; return the report."""

    def told(item: Object) -> bool:
        return bool(condition_of(item, "Complete").get("reason") == reason)

    try:
        return namespace.api.wait("ReconsumptionReport", name, told, seconds=seconds)
    except TimeoutError:
        status = namespace.api.get("ReconsumptionReport", name).get("status")
        raise AssertionError(f"{name}: {json.dumps(status)}, not {reason}") from None


def said(report: Object) -> tuple[str, str, str]:
    """Return phase, value and message of the condition Complete."""
    found = condition_of(report, "Complete")
    return report["status"]["phase"], found["status"], found["message"]


def events(namespace: Namespace, reason: str) -> list[Object]:
    return [each for each in namespace.api.list("Event") if each["reason"] == reason]


@pytest.mark.soak
def test_a_report_waits_for_its_input_and_refuses_what_is_no_summary(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.pretend_pods()
    with operator(namespace):
        create_report(namespace, "early", experimentRef={"name": "nobody"})
        inputs = {"claimName": CLAIM, "runs": ["old/base-000"]}
        create_report(namespace, "kept", inputs=inputs, engine="Local")
        early = wait_for(namespace, "early", "ExperimentMissing")
        assert said(early) == ("Waiting", "False", "there is no ChaosExperiment nobody")
        assert early["status"]["blockedBy"] == ["ExperimentMissing"]
        kept = wait_for(namespace, "kept", "InputMissing")
        missing = f"there is no PersistentVolumeClaim {CLAIM}"
        assert said(kept) == ("Waiting", "False", missing)
        assert namespace.api.list("Job") == []

        namespace.create_claim(CLAIM)
        namespace.api.wait("Job", "fbr-kept", seconds=60)
        running = wait_for(namespace, "kept", "Waiting")
        assert said(running)[0] == "Running"
        end_pod(namespace, "fbr-kept", "a line of text, not the figures")
        kept = wait_for(namespace, "kept", "SummaryInvalid")
        assert said(kept)[:2] == ("Failed", "False")
        assert said(kept)[2].startswith("the termination message is no JSON:")
        assert kept["status"]["finishedAt"]
        assert "duplicates" not in kept["status"]
        wait_until(lambda: events(namespace, "ReportFailed"), "the event, which follows the status")
        assert len(events(namespace, "ReportFailed")) == 1
        assert said(namespace.api.get("ReconsumptionReport", "early"))[0] == "Waiting"


def end_pod(namespace: Namespace, job: str, message: str) -> None:
    """Let the pod of a Job end well, as its kubelet would say, with a termination message."""

    def running() -> list[Object]:
        found = namespace.api.list("Pod", labels=f"batch.kubernetes.io/job-name={job}")
        return [pod for pod in found if pod.get("status", {}).get("phase") == "Running"]

    wait_until(running, f"the pod of {job}", 60)
    (pod,) = running()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ended = {
        "exitCode": 0,
        "reason": "Completed",
        "message": message,
        "startedAt": now,
        "finishedAt": now,
    }
    (container,) = pod["status"]["containerStatuses"]
    status = {
        "phase": "Succeeded",
        "containerStatuses": [
            {**container, "ready": False, "started": False, "state": {"terminated": ended}}
        ],
    }
    name = pod["metadata"]["name"]
    namespace.api.patch("Pod", name, {"status": status}, subresource="status")


@pytest.mark.skipif(bool(why_not()), reason=f"Spark can't start: {why_not()}")
@pytest.mark.soak
def test_spark_and_the_process_itself_count_and_judge_the_same(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.create_claim(CLAIM)
    namespace.api.wait(
        "PersistentVolumeClaim", CLAIM, lambda item: item["status"].get("phase") == "Bound"
    )
    volume = node.claim_folder(namespace.name, CLAIM)
    merged([CASES[name]()[0] for name in ("c3", "c7")]).write(volume / "old" / "base-000", parts=2)
    with operator(namespace):
        for engine in ("local", "spark"):
            create_report(
                namespace,
                engine,
                inputs={"claimName": CLAIM, "runs": ["old/base-000"]},
                engine=engine.capitalize(),
                spark={"mode": "Job", "master": "local[*]"},
                thresholds={"maxDuplicateRatio": "0.001"},
                artifactUri=f"file:///runs/{engine}",
            )
        reports = {
            engine: wait_for(namespace, engine, "Counted", seconds=240)
            for engine in ("local", "spark")
        }
        for engine in ("local", "spark"):
            ended_at_once(namespace, f"fbr-{engine}")
        the_plugin_fetches_the_page(namespace, volume)
    found = {engine: item["status"] for engine, item in reports.items()}
    counted = {
        engine: {name: status.get(name) for name in FIGURES} for engine, status in found.items()
    }
    assert counted["spark"] == counted["local"]
    assert counted["local"]["duplicates"] > 0
    assert counted["local"]["byCause"]
    for engine in ("local", "spark"):
        (page,) = (volume / engine).rglob("report.json")
        document = json.loads(page.read_text())
        assert document["engine"] == engine
        missed = condition_of(reports[engine], "WithinThresholds")
        assert (missed["status"], missed["reason"]) == ("False", "Duplicates")
        assert (found[engine]["verdict"], found[engine]["outcome"]) == ("Fail", "limit missed")
        assert document["verdict"]["value"] == "Fail"
        assert document["outcome"]["met"] is False
        badge = outcome_badge(document)
        assert badge.text.endswith(": limit missed")
        for said in ("report.html", "summary.md"):
            assert badge.text in page.with_name(said).read_text()


def the_plugin_fetches_the_page(namespace: Namespace, volume: Path) -> None:
    """The page comes from the volume as it is there, and no pod is left that fetched it."""
    before = {pod["metadata"]["name"] for pod in namespace.api.list("Pod")}
    code, said, told = plugin(namespace, "report", "local", "--out", "fetched")
    assert code == 1, told
    assert said.startswith("local: Fail, limit missed")
    (page,) = (namespace.folder / "fetched").rglob("report.html")
    (kept,) = (volume / "local").rglob("report.html")
    assert page.read_bytes() == kept.read_bytes()
    left = {pod["metadata"]["name"] for pod in namespace.api.list("Pod")} - before
    wait_until(lambda: all(namespace.api.find("Pod", name) is None for name in left), "no pod", 60)


def ended_at_once(namespace: Namespace, job: str) -> None:
    """A Job whose report missed a limit ended with that answer, and was not tried again."""
    namespace.api.wait("Job", job, lambda item: bool(condition_of(item, "Failed")), seconds=60)
    failed = condition_of(namespace.api.get("Job", job), "Failed")
    assert (failed["status"], failed["reason"]) == ("True", "PodFailurePolicy")
    assert len(namespace.api.list("Pod", labels=f"batch.kubernetes.io/job-name={job}")) == 1
