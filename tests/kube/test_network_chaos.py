"""Links that Chaos Mesh cuts: what its daemons would do is done by nft on the lab's addresses.

The harness sees none of it: a slave that stands still and catches up is all the proof.
"""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest

from failback.chaos.cluster.link import Cut
from failback.chaos.cluster.target import Injection
from failback.chaos.errors import GuardRefused, TargetError
from failback.chaos.targets.kube.mesh import KIND, network_chaos
from tests.kube.optional_kinds import optional_kinds
from tests.support.chaos.kube_cluster import (
    CHAOS_ACCOUNT,
    allow,
    experiment_text,
    set_up_cluster,
    target_of,
)
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import chart_rules
from tests.support.processes.child_process import failback_command, failback_environment

TABLE = "inet failback_lab_mesh"
CUT = {
    "id": "f1",
    "fault": "cut-replication",
    "at": 5,
    "target": {"pair": "demo-0"},
    "with": {"durationSeconds": 80},
}


class Mesh:
    """Stands for Chaos Mesh; one that is ``idle`` says that it has cut, and has not."""

    def __init__(self, namespace: Namespace, *, idle: bool = False) -> None:
        self._namespace = namespace
        self._idle = idle
        self._stop = threading.Event()
        self.seen: list[Object] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Mesh:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        nft(f"table {TABLE}\ndelete table {TABLE}")

    def _run(self) -> None:
        api = self._namespace.api
        while not self._stop.wait(0.1):
            for each in api.list(KIND):
                name, finalizers = each["metadata"]["name"], each["metadata"].get("finalizers")
                if "deletionTimestamp" in each["metadata"]:
                    nft(f"table {TABLE}\ndelete table {TABLE}")
                    api.patch(KIND, name, {"metadata": {"finalizers": None}})
                elif not finalizers:
                    self.seen.append(each)
                    if not self._idle:
                        nft(self._rules(each))
                    body = {
                        "metadata": {"finalizers": ["chaos-mesh/records"]},
                        "status": {"conditions": [{"type": "AllInjected", "status": "True"}]},
                    }
                    api.patch(KIND, name, body)

    def _rules(self, found: Object) -> str:
        """Drop what a broker's slaves and its HA port say to each other."""
        (pod,) = found["spec"]["selector"]["pods"][self._namespace.name]
        address = self._namespace.api.get("Pod", pod)["status"]["podIP"]
        drops = f"ip daddr {address} tcp dport 10912 drop; ip saddr {address} tcp sport 10912 drop;"
        return (
            f"table {TABLE} {{ chain input {{ type filter hook input priority -200; {drops} }}\n}}"
        )


def nft(commands: str) -> None:
    subprocess.run(["nft", "-f", "-"], input=commands, text=True, check=True)


def run_cut(
    namespace: Namespace, kubeconfig: Path, folder: Path
) -> tuple[int, dict[str, object], str]:
    """Run the experiment as its Job does; return exit code, evidence of f1 and what was said."""
    file = folder / "experiment.yaml"
    file.write_text(experiment_text([CUT], namespace))
    words = ("experiment", "run", str(file), "--target", "kube", "--no-report")
    runs = ("--runs", str(folder / "runs"), "--kubeconfig", str(kubeconfig))
    done = subprocess.run(
        [*failback_command("cli", *words), *runs],
        env={**failback_environment(), "POD_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    (outcome,) = (folder / "runs").rglob("outcome.json")
    (fault,) = json.loads(outcome.read_text())["faults"]
    return done.returncode, fault, done.stdout + done.stderr


@pytest.fixture
def kubeconfig(namespace: Namespace, node: NodeProcess) -> Path:
    """Of an account that may make objects of Chaos Mesh, beside a pair."""
    set_up_cluster(namespace)
    allow(namespace)
    rules = chart_rules(namespace, "chaos.chaosMesh.enabled=true", account=CHAOS_ACCOUNT)
    return namespace.identity("mesh", rules).kubeconfig


@pytest.mark.alone  # a witness that is late beside other tests makes the run Inconclusive
def test_a_cut_is_proved_by_the_slave(
    namespace: Namespace, kubeconfig: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    target = target_of(namespace)
    with pytest.raises(GuardRefused, match="Chaos Mesh drops packets here: install it"):
        target.refuse_unsafe(Injection("cut-replication"))
    target.close()
    with optional_kinds(control_plane), Mesh(namespace) as mesh:
        code, fault, said = run_cut(namespace, kubeconfig, tmp_path)
        assert code == 0, said
        assert "its slaves' stood still" in str(fault["proof"])
        (made,) = mesh.seen
        assert made["spec"]["action"] == "partition"
        assert made["spec"]["target"]["selector"]["pods"] == {namespace.name: ["demo-0-1-0"]}
        assert namespace.api.list(KIND) == []


@pytest.mark.soak
def test_a_cut_that_is_only_reported_is_none(
    namespace: Namespace, kubeconfig: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    with optional_kinds(control_plane), Mesh(namespace, idle=True):
        code, fault, said = run_cut(namespace, kubeconfig, tmp_path)
        assert (code, fault["proved"]) == (3, False), said
        assert "the cut of demo-0-0-0 was not seen" in str(fault["why"])
        assert namespace.api.list(KIND) == []


def test_every_kind_of_cut_is_an_object_of_chaos_mesh() -> None:
    pods: list[Object] = [
        {"metadata": {"name": name, "namespace": "shop"}, "status": {}}
        for name in ("demo-0-0-0", "demo-0-1-0", "demo-1-0-0")
    ]
    found = [
        network_chaos(pods[0], cut, pods)["spec"]
        for cut in (
            Cut("replication", "out", seconds=10),
            Cut("replication", loss_ratio=0.3),
            Cut("nameserver", "in", bytes_per_second=4000),
            Cut("clients", delay_ms=300),
        )
    ]
    assert [each["action"] for each in found] == ["partition", "loss", "bandwidth", "delay"]
    assert [each["direction"] for each in found] == ["to", "both", "from", "both"]
    assert found[0]["duration"] == "130s"
    assert found[0]["target"]["selector"]["pods"] == {"shop": ["demo-0-1-0"]}
    assert (found[1]["loss"]["loss"], found[2]["bandwidth"]["rate"]) == ("30", "4000bps")
    assert found[3]["target"]["selector"]["expressionSelectors"][0]["operator"] == "NotIn"
    with pytest.raises(TargetError, match="rejects no packets"):
        network_chaos(pods[0], Cut("clients", reject=True), pods)
    with pytest.raises(TargetError, match="no other end"):
        network_chaos(pods[2], Cut("replication"), pods)
