"""The main job from resources alone: a cluster, an experiment with both arms, and a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from failback.analytics.report.status_summary import status_of
from failback.cli.shared.bundled import bundled
from tests.support.chaos.kube_cluster import allow, chaos_account
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, is_true, operator

POD = "demo-0-0-0"
TIME_SCALE = 0.3
"""The demo's own tenth leaves the slave five seconds to serve: too few beside other tests."""
MIN_SERVED = 400
"""The demo's own count would leave a busy machine too little time to stop before the return."""


def resources(namespace: Namespace) -> tuple[list[Object], Object]:
    """The demo's own files, their timers scaled: name server and cluster, experiment."""
    yaml = YAML(typ="safe", pure=True)
    name_server, cluster = yaml.load_all(bundled("cluster.yaml").read_text())
    experiment = yaml.load(bundled("experiment.yaml").read_text())
    scale = {"failbackTimeScale": str(TIME_SCALE)}
    for each in (name_server, cluster, experiment):
        each["metadata"] = {"name": each["metadata"]["name"]}
    for each in (name_server, cluster):
        each["spec"]["config"] = scale
    experiment["spec"]["timeScale"] = str(TIME_SCALE)
    (stopped,) = (arm["faults"][0] for arm in experiment["spec"]["arms"] if "faults" in arm)
    stopped["with"]["minServed"] = MIN_SERVED
    return [name_server, cluster], experiment


def report_of(name: str) -> Object:
    return {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": "ReconsumptionReport",
        "metadata": {"name": name},
        "spec": {"experimentRef": {"name": name}, "thresholds": {"maxLost": 0}},
    }


def over(item: Object) -> bool:
    return item.get("status", {}).get("phase") in ("Completed", "Aborted", "Failed")


def set_up(namespace: Namespace) -> Object:
    """Allow chaos, make the experiments' account and a ready cluster; return the experiment."""
    allow(namespace)
    chaos_account(namespace)
    cluster, experiment = resources(namespace)
    for manifest in cluster:
        namespace.api.create(manifest)
    namespace.api.wait("BrokerCluster", "demo", is_true("Ready"), seconds=180)
    namespace.api.wait("BrokerCluster", "demo", is_true("RolesConsistent"), seconds=120)
    return experiment


@pytest.mark.alone
def test_the_mission_from_resources_alone(namespace: Namespace, node: NodeProcess) -> None:
    with operator(namespace):
        experiment = set_up(namespace)
        namespace.api.create(experiment)
        namespace.api.create(report_of("failback-demo"))
        ended = namespace.api.wait("ChaosExperiment", "failback-demo", over, seconds=600)
        status = ended["status"]
        assert (status["phase"], status["verdict"]) == ("Completed", "Pass"), json.dumps(status)
        assert {each["arm"] for each in status["runs"]} == {"stay", "handover"}
        for kind in ("Injected", "Recovered", "SteadyStateRestored"):
            assert condition_of(ended, kind)["status"] == "True"
        assert [each["pod"] for each in status["resolvedTargets"]] == [POD]
        counted = namespace.api.wait(
            "ReconsumptionReport", "failback-demo", is_true("Complete"), seconds=240
        )
    runs = node.claim_folder(namespace.name, "failback-runs") / "failback-demo"
    reports = [document(runs / f"{arm}-000") for arm in ("stay", "handover")]
    killed = [
        json.loads((runs / f"{arm}-000" / "outcome.json").read_text())["faults"][0]["proof"]["K3"]
        for arm in ("stay", "handover")
    ]
    assert killed == ["SIGKILL", "SIGKILL"]
    expected = status_of(reports, "")
    found = counted["status"]
    assert found["verdict"] == "Pass"
    for name in ("delivered", "distinct", "duplicates", "duplicateRatio", "lost", "byCause"):
        assert found[name] == expected[name], name
    assert found["bound"] == expected["bound"]
    causes = {each["arm"]: each["causes"] for each in found["perGroup"]}
    assert causes["stay"] == {}
    assert "ROLLBACK_SLAVE_ONLY_PROGRESS" in causes["handover"]


def document(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "report" / "report.json").read_text()))


@pytest.mark.soak
def test_an_experiment_that_is_deleted_in_its_middle_leaves_nothing(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace):
        experiment = set_up(namespace)
        namespace.api.create(experiment)
        namespace.api.wait(
            "ChaosExperiment",
            "failback-demo",
            lambda item: item.get("status", {}).get("resolvedTargets"),
            seconds=240,
        )
        namespace.api.delete("ChaosExperiment", "failback-demo")
        namespace.api.wait_gone("ChaosExperiment", "failback-demo", seconds=240)
        namespace.api.wait("BrokerCluster", "demo", is_true("Ready"), seconds=180)
        lease = namespace.api.get("Lease", "failback-demo-chaos")
        assert not lease["spec"].get("holderIdentity")
        runs = node.claim_folder(namespace.name, "failback-runs") / "failback-demo"
        left = [line for ledger in runs.rglob("undo.jsonl") for line in open_entries(ledger)]
        assert left == []


def open_entries(ledger: Path) -> list[str]:
    """Ids of a ledger that nobody saw healed."""
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    healed = {line["id"] for line in lines if "healed" in line}
    return [line["id"] for line in lines if "call" in line and line["id"] not in healed]
