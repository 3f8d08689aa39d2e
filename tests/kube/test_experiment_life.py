"""What refuses an experiment, and what an aborted one leaves: one small cluster, one operator."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.client.admin.admin import AdminClient
from tests.kube.test_experiment_mission import open_entries, over
from tests.support.chaos.kube_cluster import TIME_SCALE, allow, chaos_account, experiment_text
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, is_true, operator

MASTER, SLAVE = "demo-0-0", "demo-0-1"
LEASE = "failback-demo-chaos"
KEY, OWN, LAID_OVER = "maxTransferCountOnMessageInMemory", "24", "16"


@pytest.fixture(scope="module")
def lived_in(control_plane: ControlPlane, node: NodeProcess) -> Iterator[Namespace]:
    """A namespace without the label, in it a ready cluster and its operator."""
    namespace = Namespace(control_plane)
    scale = {"failbackTimeScale": str(TIME_SCALE)}
    try:
        chaos_account(namespace)
        with operator(namespace):
            create(namespace, "NameServer", "main", replicas=1, config=scale)
            create(
                namespace,
                "BrokerCluster",
                "demo",
                nameServerRef={"name": "main"},
                slaveReadEnable=True,
                updateStrategy={"minReadySeconds": 0},
                config={**scale, "autoCreateTopicEnable": "false", KEY: OWN},
            )
            namespace.api.wait("BrokerCluster", "demo", is_calm, seconds=180)
            yield namespace
    finally:
        namespace.clean_up()


def create(namespace: Namespace, kind: str, name: str, **spec: Any) -> None:
    metadata = {"name": name}
    document = {"apiVersion": "failback.dev/v1alpha1", "kind": kind, "metadata": metadata}
    namespace.api.create({**document, "spec": spec})


def experiment(namespace: Namespace, name: str, fault: Object, **spec: Any) -> None:
    """Create an experiment of one fault, without a seed."""
    found = json.loads(experiment_text([fault], namespace, **spec))
    found["metadata"]["name"] = name
    del found["spec"]["seed"]
    namespace.api.create(found)


def is_calm(cluster: Object) -> bool:
    status = cluster.get("status", {})
    holds = all(is_true(kind)(cluster) for kind in ("Ready", "RolesConsistent", "ConfigApplied"))
    return holds and not status.get("currentOperation")


def is_busy(cluster: Object) -> bool:
    return bool(cluster.get("status", {}).get("currentOperation"))


def refused(namespace: Namespace, name: str, reason: str, message: str) -> None:
    """Wait until an experiment says that it is refused for this, in these words."""

    def told(item: Object) -> bool:
        found = condition_of(item, "Injected")
        return (found.get("status"), found.get("reason"), found.get("message")) == (
            "False",
            reason,
            message,
        )

    try:
        found = namespace.api.wait("ChaosExperiment", name, told, seconds=60)
    except TimeoutError:
        status = namespace.api.get("ChaosExperiment", name).get("status")
        raise AssertionError(f"{name}: {status}, not {reason}: {message}") from None
    assert found["status"]["phase"] == "Pending"
    assert found["status"]["blockedBy"] == [reason]
    assert "startedAt" not in found["status"]


def wait_refusals(namespace: Namespace, name: str, messages: list[str]) -> None:
    """Wait until exactly these refusals were told: an event follows the status."""
    wait_until(lambda: len(refusals(namespace, name)) >= len(messages), f"refusals of {name}", 30)
    assert refusals(namespace, name) == messages


def refusals(namespace: Namespace, name: str) -> list[str]:
    """Return the messages of the events that refused an experiment, one per event, sorted."""
    found = [
        item["note"] if "note" in item else item["message"]
        for item in namespace.api.list("Event")
        if item["reason"] == "ExperimentRefused"
        and (item.get("involvedObject") or item["regarding"])["name"] == name
    ]
    return sorted(found)


def annotate(namespace: Namespace, **marks: str | None) -> None:
    named = {f"failback.dev/{key.replace('_', '-')}": value for key, value in marks.items()}
    namespace.api.patch("BrokerCluster", "demo", {"metadata": {"annotations": named}})


async def test_an_abort_takes_back_the_fault_and_the_arm(
    lived_in: Namespace, node: NodeProcess
) -> None:
    api = lived_in.api
    allow(lived_in)
    before = api.wait("BrokerCluster", "demo", is_calm, seconds=120)
    assert await asked(lived_in) == {MASTER: OWN, SLAVE: OWN}
    experiment(
        lived_in,
        "halted",
        {
            "id": "f1",
            "fault": "pause",
            "at": 10,
            "target": {"pair": "demo-0", "role": "Master"},
            "with": {"durationSeconds": 500},
        },
        arms=[{"name": "narrow", "brokerConfig": {KEY: LAID_OVER}}],
    )
    wait_until(lambda: api.list("Job"), "the Job", 90)
    assert await asked(lived_in) == {MASTER: LAID_OVER, SLAVE: LAID_OVER}
    assert {line_of(lived_in, each) for each in (MASTER, SLAVE)} == {f"{KEY}={LAID_OVER}"}
    victim = node.pids(lived_in.name, f"{MASTER}-0")[1]
    wait_until(lambda: state_of(victim) == "T", "the broker is stopped", 120)
    held = api.get("Lease", LEASE)["spec"]
    assert held["holderIdentity"]

    api.patch("ChaosExperiment", "halted", {"spec": {"abort": True}})
    ended = api.wait("ChaosExperiment", "halted", over, seconds=200)
    status = ended["status"]
    assert status["phase"] == "Aborted", status
    assert "activeArm" not in status
    assert status["seed"] >= 0
    assert condition_of(ended, "Injected")["reason"] == "Aborted"
    assert condition_of(ended, "Recovered")["status"] == "True"
    running = [node.pids(lived_in.name, f"{each}-0") for each in (MASTER, SLAVE)]
    assert victim in running[0], "it was restarted, not continued"
    assert [state_of(pid) for pids in running for pid in pids].count("T") == 0
    lease = api.get("Lease", LEASE)
    assert not lease["spec"].get("holderIdentity")
    assert "failback.dev/run-dir" not in lease["metadata"].get("annotations", {})
    ledgers = list(
        (node.claim_folder(lived_in.name, "failback-runs") / "halted").rglob("undo.jsonl")
    )
    assert ledgers
    assert [entry for each in ledgers for entry in open_entries(each)] == []

    after = api.wait("BrokerCluster", "demo", is_calm, seconds=120)
    wait_until(
        lambda: {line_of(lived_in, each) for each in (MASTER, SLAVE)} == {f"{KEY}={OWN}"},
        "the cluster's own file",
        60,
    )
    after = api.wait("BrokerCluster", "demo", is_calm, seconds=120)
    assert await asked(lived_in) == {MASTER: OWN, SLAVE: OWN}
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    api.delete("ChaosExperiment", "halted")
    api.wait_gone("ChaosExperiment", "halted")


@pytest.mark.soak
def test_each_guard_refuses_in_its_own_words_and_no_job_is_made(
    lived_in: Namespace, node: NodeProcess
) -> None:
    api, name = lived_in.api, lived_in.name
    kill = {"id": "f1", "fault": "kill", "at": 10, "target": {"pair": "demo-0", "role": "Master"}}
    for job in api.list("Job"):
        api.wait_gone("Job", job["metadata"]["name"])
    unlabel = {"metadata": {"labels": {"failback.dev/chaos-allowed": None}}}
    lived_in.control_plane.api.patch("Namespace", name, unlabel)
    if api.find("Lease", LEASE) is not None:
        api.delete("Lease", LEASE)
    restart_that_stands_still(lived_in)
    held = {
        "holderIdentity": "another-run",
        "leaseDurationSeconds": 3600,
        "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime()),
    }
    manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    api.create({**manifest, "metadata": {"name": LEASE}, "spec": held})

    experiment(lived_in, "lab", kill)
    experiment(lived_in, "astray", kill, clusterRef={"name": "nobody"})
    experiment(lived_in, "swap", {**kill, "fault": "swap-roles"})
    unlabelled = f"namespace {name} has no label failback.dev/chaos-allowed=true"
    refused(lived_in, "lab", "NotAllowed", unlabelled)
    refused(lived_in, "astray", "ClusterMissing", "there is no BrokerCluster nobody")
    allow(lived_in)
    refused(lived_in, "swap", "GuardRefused", "f1: swap-roles needs guard.consent: [role-swap]")
    refused(lived_in, "lab", "ClusterBusy", f"lease {LEASE} is held by another-run")
    api.delete("Lease", LEASE)
    operation = api.get("BrokerCluster", "demo")["status"]["currentOperation"]["type"]
    refused(lived_in, "lab", "ClusterBusy", f"cluster demo: {operation} is in progress")
    wait_refusals(lived_in, "lab", [f"lease {LEASE} is held by another-run", unlabelled])
    api.delete("ChaosExperiment", "lab")
    api.wait_gone("ChaosExperiment", "lab")

    annotate(lived_in, restart_member=None, pause_reconciliation=None)
    api.wait("BrokerCluster", "demo", is_calm, seconds=120)
    long_pause = {"durationSeconds": 61 / TIME_SCALE}
    experiment(lived_in, "long", {**kill, "fault": "pause", "with": long_pause})
    words = (
        "f1: a pause of 61 s is longer than the liveness window of 60 s: "
        "set lifecycle.livenessProbe: false"
    )
    refused(lived_in, "long", "GuardRefused", words)
    wait_refusals(lived_in, "long", [words])
    wait_refusals(lived_in, "astray", ["there is no BrokerCluster nobody"])
    assert api.list("Job") == []
    for each in ("astray", "swap", "long"):
        api.delete("ChaosExperiment", each)
        api.wait_gone("ChaosExperiment", each)


def restart_that_stands_still(namespace: Namespace) -> None:
    """Have the slave restarted, and pause the cluster before that is done."""
    annotate(namespace, restart_member=SLAVE)
    namespace.api.wait("BrokerCluster", "demo", is_busy, seconds=60)
    annotate(namespace, pause_reconciliation="true")

    def stands(item: Object) -> bool:
        kinds = ("Paused", "Ready", "RolesConsistent")
        return is_busy(item) and all(is_true(kind)(item) for kind in kinds)

    namespace.api.wait("BrokerCluster", "demo", stands, seconds=120)


async def asked(namespace: Namespace) -> dict[str, str]:
    """Return what each broker says of the key (GET_BROKER_CONFIG)."""
    suffix = f"{namespace.name}.svc.cluster.local"
    async with AdminClient([f"main-ns-0.main-ns.{suffix}:9876"]) as admin:
        return {
            each: (await admin.broker_config(f"{each}-0.demo-brokers.{suffix}:10911"))[KEY]
            for each in (MASTER, SLAVE)
        }


def line_of(namespace: Namespace, member: str) -> str:
    """Return the line of the key in a member's file."""
    text = namespace.api.get("ConfigMap", member)["data"]["broker.conf"]
    return next((line for line in text.splitlines() if line.startswith(f"{KEY}=")), "")


def state_of(pid: int) -> str:
    """Return the kernel's letter for a process: T is stopped; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
