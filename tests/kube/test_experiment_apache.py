"""The chaos harness against Apache's broker, through the real API server.

One broker, because Apache 4.9 listens on every address: two of one cluster would want one port of
this machine. The conditions that an operator writes are written by the test.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.chaos.cluster.target import Deadline, Injection
from failback.chaos.cluster.view import Member, ProcessState
from failback.chaos.errors import TargetError
from failback.chaos.targets.kube.target import KubernetesTarget
from failback.operator.render.context import kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode
from tests.support.chaos.kube_cluster import (
    CHAOS_ACCOUNT,
    allow,
    experiment_text,
    say_conditions,
    target_of,
)
from tests.support.chaos.restarts import await_another
from tests.support.common.polling import wait_until
from tests.support.java.apache import LOG_FILE_BYTES, server_home
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.net.ports import free_port_block
from tests.support.processes.child_process import failback_command, failback_environment

pytestmark = [pytest.mark.long, pytest.mark.soak]

POD = "demo-0-0-0"
FRUGAL = "-Xms256m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@pytest.fixture
def target(namespace: Namespace, node: NodeProcess) -> Iterator[KubernetesTarget]:
    server_home()
    set_up_cluster(namespace)
    allow(namespace)
    found = target_of(namespace)
    yield found
    found.close()


def set_up_cluster(namespace: Namespace) -> None:
    head = {"apiVersion": "failback.dev/v1alpha1"}
    port = free_port_block(4) + 2
    config = {"mappedFileSizeCommitLog": str(LOG_FILE_BYTES), "autoCreateTopicEnable": "false"}
    manifests: list[Object] = [
        {**head, "kind": "NameServer", "metadata": {"name": "main"}, "spec": {"replicas": 1}},
        {
            **head,
            "kind": "BrokerCluster",
            "metadata": {"name": "demo"},
            "spec": {
                "nameServerRef": {"name": "main"},
                "slavesPerPair": 0,
                "engine": {"type": "Apache", "version": "4.9.7", "javaOptions": FRUGAL},
                "networking": {"listenPort": port},
                "config": config,
            },
        },
    ]
    items = [decode(namespace.api.create(manifest)) for manifest in manifests]
    for manifest in render(items, kubernetes_context(namespace.name, "0.1.0")):
        namespace.api.apply(manifest, manager="test")
    namespace.api.wait("Pod", POD, serves, seconds=300)
    say_conditions(namespace, Ready="True", RolesConsistent="True")


def serves(pod: Object) -> bool:
    """Ready but for the gate, which an operator opens."""
    found = pod.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("ContainersReady", "True") for each in found)


def master(target: KubernetesTarget) -> Member:
    """The broker, once it is registered."""

    def registered() -> bool:
        try:
            view = target.view()
        except TargetError:  # it runs, and does not answer yet
            return False
        return not view.conflicts and view.members[0].identity is not None

    wait_until(registered, "a registered broker", seconds=120)
    view = target.view()
    assert view.engine == "apache"
    (member,) = view.members
    assert (member.pod, member.role) == (POD, "master")
    return member


def test_a_kill_is_proved_a_hold_keeps_the_broker_down_and_a_release_brings_it_back(
    target: KubernetesTarget,
) -> None:
    member = master(target)
    victim = target.identity(member)
    assert victim == member.identity
    assert victim.pid != 1
    assert victim.boot_ms is not None
    earlier = len(target.deaths(0))

    target.hold(member, "u0001")
    receipt = target.signal(victim, signal.SIGKILL)
    death = target.await_gone(victim, Deadline.after(60))
    assert (death.signal, death.code, death.doubt) == (9, None, "")
    assert (death.pid, death.ticks) == (victim.pid, victim.ticks)
    assert receipt.returned.mono_ns >= receipt.issued.mono_ns
    wait_until(lambda: target.pod_state(POD) == "Held", "the held container", seconds=60)
    assert target.process_state(victim) is ProcessState.GONE
    assert target.stat_store(member, "abort") is not None, "shutdown code ran"
    with pytest.raises(TargetError, match="no broker runs in it, it is Held"):
        target.identity(member)
    heard = target.deaths(earlier)
    assert [(pod, each.signal, each.pid) for _, pod, each in heard] == [(POD, 9, victim.pid)]

    target.release(member)
    after = await_another(target, member, victim, Deadline.after(300))
    assert after.uid == victim.uid
    assert after.container != victim.container
    assert after.boot_ms is not None
    assert after.boot_ms > victim.boot_ms
    with pytest.raises(TargetError, match="REPLACED"):
        target.signal(victim, signal.SIGKILL)
    assert target.process_state(after) is ProcessState.RUNNING


def test_a_pause_is_seen_by_the_kernel_and_a_termination_in_the_exit_code(
    target: KubernetesTarget,
) -> None:
    member = master(target)
    victim = target.identity(member)
    target.refuse_unsafe(Injection("pause", seconds=3_600))  # no liveness probe ends a frozen JVM
    target.signal(victim, signal.SIGSTOP)
    wait_until(lambda: target.process_state(victim) is ProcessState.STOPPED, "a stopped broker")
    target.signal(victim, signal.SIGCONT)
    wait_until(lambda: target.process_state(victim) is ProcessState.RUNNING, "a running broker")

    target.hold(member, "u0002")
    target.signal(victim, signal.SIGTERM)
    death = target.await_gone(victim, Deadline.after(120))
    assert death.signal == signal.SIGTERM
    wait_until(lambda: target.pod_state(POD) == "Held", "the held container", seconds=60)
    assert target.stat_store(member, "abort") is None, "no shutdown code ran"
    target.release(member)
    assert not await_another(target, member, victim, Deadline.after(300)).same(victim)


def test_a_whole_run_of_a_kill_is_proved(
    target: KubernetesTarget, namespace: Namespace, tmp_path: Path
) -> None:
    """With real timers: those of Apache cannot be scaled. There is no slave to consume from while
    the master is down, which a report would call inconclusive: only the harness is asked."""
    master(target)
    fault = {
        "id": "f1",
        "fault": "kill",
        "at": 5,
        "target": {"pair": "demo-0", "role": "Master"},
        "with": {"downSeconds": 15},
    }
    file = tmp_path / "experiment.yaml"
    file.write_text(experiment_text([fault], namespace, timeScale="1", cooldownSeconds=10))
    identity = namespace.identity_of(CHAOS_ACCOUNT)
    done = subprocess.run(
        [
            *failback_command(
                "cli", "experiment", "run", str(file), "--target", "kube", "--arm", "base"
            ),
            *("--repetition", "0", "--runs", str(tmp_path / "runs")),
            *("--kubeconfig", str(identity.kubeconfig), "--no-report"),
        ],
        env={**failback_environment(), "POD_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "runs" / "lab" / "base-000"
    outcome = json.loads((run / "outcome.json").read_text())
    assert outcome["verdict"] == "Pass"
    proof = outcome["faults"][0]["proof"]
    assert proof.pop("K7").startswith("pid ")
    assert proof.pop("K5") in ("FIN", "RST")
    assert proof == {
        "K1": True,
        "K2": True,
        "K3": "SIGKILL",
        "K4": "no shutdown code ran",
        "K6": True,
        "K8": True,
    }
    recorded = json.loads((run / "run.json").read_text())
    assert recorded["target"]["kind"] == "kubernetes"
