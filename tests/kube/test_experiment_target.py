"""The chaos harness against real brokers behind their init, through the real API server."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.chaos.cluster.target import Deadline, Injection
from failback.chaos.cluster.view import Member, ProcessState
from failback.chaos.errors import GuardRefused, NotHealed, TargetError
from failback.chaos.targets.kube.lease import KubeLease
from failback.chaos.targets.kube.target import KubernetesTarget
from tests.support.chaos.kube_cluster import (
    allow,
    experiment_text,
    is_ready,
    say_conditions,
    set_up_cluster,
    target_of,
)
from tests.support.chaos.restarts import await_another
from tests.support.common.polling import wait_until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.processes.child_process import failback_command, failback_environment

POD = "demo-0-0-0"


@pytest.fixture
def target(namespace: Namespace, node: NodeProcess) -> Iterator[KubernetesTarget]:
    set_up_cluster(namespace)
    allow(namespace)
    found = target_of(namespace)
    yield found
    found.close()


def master(target: KubernetesTarget) -> Member:
    found = target.view().pairs[0].member("master")
    assert found is not None
    return found


@pytest.mark.sample
def test_a_kill_is_proved_a_hold_keeps_the_broker_down_and_a_release_brings_it_back(
    target: KubernetesTarget, namespace: Namespace
) -> None:
    view = target.view()
    assert view.conflicts == ()
    suffix = f"demo-brokers.{namespace.name}.svc.cluster.local:10911"
    assert [each.address for each in view.members] == [f"{POD}.{suffix}", f"demo-0-1-0.{suffix}"]
    assert [each.role for each in view.members] == ["master", "slave"]

    member = master(target)
    victim = target.identity(member)
    assert member.identity is not None
    assert victim.same(member.identity)
    assert victim.boot_ms is not None
    earlier = len(target.deaths(0))

    target.hold(member, "u0001")
    receipt = target.signal(victim, signal.SIGKILL)
    death = target.await_gone(victim, Deadline.after(60))
    assert (death.signal, death.code, death.doubt) == (9, None, "")
    assert (death.pid, death.ticks) == (victim.pid, victim.ticks)
    assert death.seen.mono_ns >= receipt.issued.mono_ns
    wait_until(lambda: target.pod_state(POD) == "Held", "the held container")
    assert target.process_state(victim) is ProcessState.GONE
    assert target.stat_store(member, "abort") is not None, "shutdown code ran"
    with pytest.raises(TargetError, match="no broker runs in it, it is Held"):
        target.identity(member)
    assert not master_runs(target)
    heard = target.deaths(earlier)
    assert [(pod, each.signal) for _, pod, each in heard] == [(POD, 9)]

    target.release(member)
    after = await_another(target, member, victim, Deadline.after(120))
    assert after.uid == victim.uid
    assert after.container != victim.container
    assert after.boot_ms is not None
    assert after.boot_ms > victim.boot_ms
    with pytest.raises(TargetError, match="REPLACED"):
        target.signal(victim, signal.SIGKILL)
    assert target.process_state(after) is ProcessState.RUNNING


def master_runs(target: KubernetesTarget) -> bool:
    return next(each for each in target.view().members if each.pod == POD).running


def test_a_pause_is_seen_by_the_kernel_and_files_are_read_whole(
    target: KubernetesTarget,
) -> None:
    member = master(target)
    victim = target.identity(member)
    target.signal(victim, signal.SIGSTOP)
    wait_until(lambda: target.process_state(victim) is ProcessState.STOPPED, "a stopped broker")
    target.signal(victim, signal.SIGCONT)
    wait_until(lambda: target.process_state(victim) is ProcessState.RUNNING, "a running broker")

    data = target.read_store(member, "abort")
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    assert data.strip() == boot_id.strip()
    found = target.stat_store(member, "abort")
    assert found is not None
    assert (found.bytes, found.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert found.mtime_ns % 1_000_000_000, "the fraction of the second is lost"
    assert target.stat_store(member, "config/nothing.json") is None
    with pytest.raises(FileNotFoundError):
        target.read_store(member, "config/nothing.json")


def test_a_pod_that_was_deleted_is_another_one(
    target: KubernetesTarget, namespace: Namespace
) -> None:
    member = master(target)
    victim = target.identity(member)
    namespace.api.delete("Pod", POD)
    after = await_another(target, member, victim, Deadline.after(120))
    assert after.uid != victim.uid
    with pytest.raises(TargetError, match="its pod was replaced"):
        target.await_gone(victim, Deadline.after(1))


def test_guards_refuse_what_the_objects_forbid(
    target: KubernetesTarget, namespace: Namespace
) -> None:
    target.refuse_unsafe(Injection("kill"))
    with pytest.raises(GuardRefused, match="longer than the liveness window of 60 s"):
        target.refuse_unsafe(Injection("pause", seconds=61))
    target.refuse_unsafe(Injection("pause", seconds=59))
    with pytest.raises(GuardRefused, match=r"swap-roles needs guard.consent: \[role-swap\]"):
        target.refuse_unsafe(Injection("swap-roles"))
    say_conditions(namespace, Ready="False", RolesConsistent="True")
    with pytest.raises(GuardRefused, match="cluster demo: Ready is False"):
        target.refuse_unsafe(Injection("kill"))
    target.refuse_unsafe(Injection("kill", others_in_effect=True))
    labels = {"metadata": {"labels": {"failback.dev/chaos-allowed": None}}}
    namespace.control_plane.api.patch("Namespace", namespace.name, labels)
    wanted = f"namespace {namespace.name} has no label failback.dev/chaos-allowed=true"
    with pytest.raises(GuardRefused, match=wanted):
        target.refuse_unsafe(Injection("kill"))


def test_one_experiment_at_a_time_and_none_beside_what_is_not_healed(
    target: KubernetesTarget, tmp_path: Path
) -> None:
    first, second = (KubeLease(target.api, "demo", name) for name in ("one", "two"))
    first.take(tmp_path / "one")
    with pytest.raises(GuardRefused, match="demo is in use by one"):
        second.take(tmp_path / "two")
    first.require()
    first.give_back(healed=True)
    second.take(tmp_path / "two")
    second.give_back(healed=False)
    expire(target)
    third = KubeLease(target.api, "demo", "three")
    with pytest.raises(NotHealed, match="cannot be seen from here"):
        third.take(tmp_path / "three")
    third.take(tmp_path / "two", healing=True)
    third.give_back(healed=True)
    found = target.api.lease("failback-demo-chaos")
    assert found is not None
    assert not found["spec"].get("holderIdentity")
    assert "failback.dev/run-dir" not in (found["metadata"].get("annotations") or {})


def expire(target: KubernetesTarget) -> None:
    """Let the lease's time be over, as it is a while after its holder died."""
    found = target.api.lease("failback-demo-chaos")
    assert found is not None
    found["spec"]["renewTime"] = "2020-01-01T00:00:00.000000Z"
    assert target.api.replace_lease(found)


@pytest.mark.soak  # test_experiment_mission has the same run from resources
@pytest.mark.alone  # a witness that is late beside other tests makes the run Inconclusive
def test_a_whole_run_of_a_kill_is_proved_and_leaves_its_summary(
    target: KubernetesTarget, namespace: Namespace, tmp_path: Path
) -> None:
    fault = {
        "id": "f1",
        "fault": "kill",
        "at": 10,
        "target": {"pair": "demo-0", "role": "Master"},
        "with": {"downSeconds": 30},
    }
    file = tmp_path / "experiment.yaml"
    file.write_text(experiment_text([fault], namespace))
    message = tmp_path / "termination-log"
    identity = namespace.identity_of("failback-chaos")
    done = subprocess.run(
        [
            *failback_command(
                "cli", "experiment", "run", str(file), "--target", "kube", "--arm", "base"
            ),
            *("--repetition", "0", "--runs", str(tmp_path / "runs")),
            *("--kubeconfig", str(identity.kubeconfig)),
        ],
        env={
            **failback_environment(),
            "FAILBACK_TERMINATION_LOG": str(message),
            "POD_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "runs" / "lab" / "base-000"
    outcome = json.loads((run / "outcome.json").read_text())
    proof = outcome["faults"][0]["proof"]
    assert proof.pop("K7").startswith("pid ")
    # A busy broker has requests unread when it is killed: the kernel resets the connection then.
    assert proof.pop("K5") in ("FIN", "RST")
    assert proof == {
        "K1": True,
        "K2": True,
        "K3": "SIGKILL",
        "K4": "no shutdown code ran",
        "K6": True,
        "K8": True,
    }
    summary = json.loads(message.read_text())
    report = json.loads((run / "report" / "report.json").read_text())
    assert (summary["exit"], summary["verdict"]) == (0, "Pass") == (0, report["verdict"]["value"])
    assert summary["runSha256"] == report["evidence"]["run_sha256"]
    assert [each["pod"] for each in summary["targets"]] == [POD]
    fault_said = summary["faults"][0]
    assert fault_said["proved"] is True
    assert fault_said["issued"] < fault_said["effect"] < fault_said["heal"]
    recorded = json.loads((run / "run.json").read_text())
    assert recorded["target"]["kind"] == "kubernetes"
    assert recorded["versions"][POD].startswith("V4_9")
    (ran,) = namespace.api.get("Pod", POD)["status"]["containerStatuses"]
    assert recorded["image_digests"][POD] == ran["imageID"] != ""
    lease = namespace.api.get("Lease", "failback-demo-chaos")
    assert not lease["spec"].get("holderIdentity")
    assert is_ready(namespace.api.wait("Pod", POD, is_ready, seconds=60))
