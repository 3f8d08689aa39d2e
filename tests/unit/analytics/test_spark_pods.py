"""Executors as pods: the settings of a driver on a ``k8s://`` master, and what it refuses."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from failback.analytics.analysis.engines.spark.pods import (
    TEMPLATE,
    check_lakes,
    pod_settings,
    submitted,
)
from failback.analytics.analysis.engines.spark.session import check_reach, settings_of
from failback.analytics.errors import EngineUnavailable, ReportInputError
from failback.analytics.lake.store import open_store
from failback.analytics.report.make_report import report_many
from tests.support.analytics.bad_input import clean

MASTER = "k8s://https://127.0.0.1:6443"
VOLUME = "spark.kubernetes.executor.volumes.persistentVolumeClaim.lake"
POD = {"POD_NAME": "fbr-kill-x", "POD_NAMESPACE": "shop"}


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IMAGE", "NAMESPACE", "SERVICE_ACCOUNT", "CLAIM", "MASTER", "MEMORY"):
        monkeypatch.delenv(f"FAILBACK_SPARK_{name}", raising=False)
    for name in ("PYSPARK_SUBMIT_ARGS", "POD_NAME", "POD_NAMESPACE", "POD_IP"):
        monkeypatch.delenv(name, raising=False)


def test_executors_have_the_image_of_this_version_unless_another_is_named() -> None:
    assert pod_settings({}, "1.2.3") == {
        "spark.kubernetes.container.image": "failback/analytics:1.2.3",
        "spark.kubernetes.executor.podTemplateFile": str(TEMPLATE),
    }
    found = pod_settings({"FAILBACK_SPARK_IMAGE": "registry/a:1"}, "1.2.3")
    assert found["spark.kubernetes.container.image"] == "registry/a:1"


def test_in_a_pod_executors_run_beside_it_and_belong_to_it() -> None:
    found = pod_settings(POD, "1")
    assert found["spark.kubernetes.namespace"] == "shop"
    assert found["spark.kubernetes.driver.pod.name"] == "fbr-kill-x"


def test_in_another_namespace_they_cannot_belong_to_it() -> None:
    found = pod_settings({**POD, "FAILBACK_SPARK_NAMESPACE": "jobs"}, "1")
    assert found["spark.kubernetes.namespace"] == "jobs"
    assert "spark.kubernetes.driver.pod.name" not in found


def test_account_and_claim_are_those_that_are_named() -> None:
    named = {"FAILBACK_SPARK_SERVICE_ACCOUNT": "spark", "FAILBACK_SPARK_CLAIM": "runs:/runs"}
    found = pod_settings(named, "1")
    assert found["spark.kubernetes.authenticate.executor.serviceAccountName"] == "spark"
    assert found[f"{VOLUME}.options.claimName"] == "runs"
    assert found[f"{VOLUME}.mount.path"] == "/runs"


@pytest.mark.parametrize("claim", ["runs", ":/runs", "runs:", "runs:runs"])
def test_a_claim_needs_name_and_path(claim: str) -> None:
    with pytest.raises(EngineUnavailable, match=r"FAILBACK_SPARK_CLAIM=.*must be NAME:PATH"):
        pod_settings({"FAILBACK_SPARK_CLAIM": claim}, "1")


def test_the_whole_session_on_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (POD | {"POD_IP": "10.0.0.7"}).items():
        monkeypatch.setenv(name, value)
    found = settings_of(MASTER, tmp_path)
    assert found["spark.kubernetes.container.image"] == f"failback/analytics:{version('failback')}"
    # Pods are never on this machine, also where their API server is.
    assert found["spark.driver.host"] == "10.0.0.7"
    assert found["spark.driver.bindAddress"] == "0.0.0.0"
    assert "spark.executorEnv.PYTHONPATH" not in found, "the image has its own code"
    assert found["spark.sql.ansi.enabled"] == "true"


def test_other_masters_know_nothing_of_pods(tmp_path: Path) -> None:
    for master in ("local[2]", "spark://127.0.0.1:7077", "spark://elsewhere:7077"):
        found = settings_of(master, tmp_path)
        assert not [name for name in found if "kubernetes" in name]
        assert "spark.executorEnv.PYTHONPATH" in found
        assert (found.get("spark.driver.host") == "127.0.0.1") == ("elsewhere" not in master)


def test_what_was_submitted_stands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = (
        "--master local[2] --conf spark.sql.shuffle.partitions=7 -c spark.driver.memory=5g "
        "--conf 'spark.kubernetes.container.image=registry/a:1' --conf 'a.b=c d' pyspark-shell"
    )
    assert submitted({"PYSPARK_SUBMIT_ARGS": words})["a.b"] == "c d"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words)
    found = settings_of(MASTER, tmp_path)
    for name in ("shuffle.partitions", "driver.memory", "container.image"):
        assert not [each for each in found if each.endswith(name)], name


def test_a_lake_that_pods_do_not_see_is_refused(tmp_path: Path) -> None:
    mounted = {f"{VOLUME}.mount.path": "/runs"}
    check_lakes([Path("/runs/a/lake")], mounted)
    with pytest.raises(ReportInputError, match="/runsome/lake: executors in pods cannot read it"):
        check_lakes([Path("/runsome/lake")], mounted)
    check_reach("local[2]", [open_store(tmp_path)])
    with pytest.raises(ReportInputError, match="FAILBACK_SPARK_CLAIM"):
        check_reach(MASTER, [open_store(tmp_path)])


def test_a_report_on_a_cluster_refuses_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from failback.analytics.analysis.engines.spark import session

    monkeypatch.setattr(session, "why_not", lambda: None)
    run = clean().write(tmp_path / "run")
    with pytest.raises(ReportInputError, match="executors in pods cannot read it"):
        report_many([run], "spark", tmp_path / "out", master=MASTER)
    assert not (tmp_path / "out").exists()
