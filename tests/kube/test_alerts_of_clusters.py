"""The operator's alerts fire in a real Prometheus because of what a real cluster goes through.

One pair, one operator, one Prometheus. Every test leaves the pair as it was.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from failback.client.model import Message
from failback.client.producer.producer import Producer
from tests.kube.test_diverged import LAST, replicated, write_another
from tests.kube.test_experiment_life import state_of
from tests.kube.test_two_masters import operation_is_blocked, stranger
from tests.support.chaos.kube_cluster import CHAOS_ACCOUNT, allow, chaos_account, experiment_text
from tests.support.common.polling import wait_until
from tests.support.dashboard.prometheus_lab import RULES_FACTOR, Prometheus, watching
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import OperatorProcess, condition_of
from tests.support.operator.quick_pair import QuickPair, hasty_operator
from tests.support.operator.resources import resource

WATCHED_MS = round(2 * 60_000 / RULES_FACTOR)
"""Two of the minutes at which a rule looks back."""
TOPIC, MASTER, SLAVE = "PAID", 0, 1
LAG_BYTES, PART_BYTES = 1 << 20, 64 << 10
THRESHOLDS = {
    "FailbackOperatorStalled": ("> 300", "> 30"),
    "FailbackLagFallenBehind": ("> 268435456", f"> {LAG_BYTES}"),
}
"""For an operator that looks every 5 s instead of every minute, and logs of 4 MiB files."""


@dataclass(frozen=True)
class Lab:
    pair: QuickPair
    running: OperatorProcess
    prometheus: Prometheus

    def fires(self, alert: str, seconds: float = 180) -> None:
        """Wait until an alert fires."""
        wait_until(lambda: alert in self.prometheus.firing(), f"alert {alert}", seconds)

    def ends(self, alert: str, seconds: float = 180) -> None:
        """Wait until an alert does not fire any more."""
        wait_until(lambda: alert not in self.prometheus.firing(), f"end of {alert}", seconds)


@pytest.fixture(scope="module")
def cluster(
    control_plane: ControlPlane, node: NodeProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    namespace = Namespace(control_plane)
    try:
        with hasty_operator(namespace) as running:
            pair = QuickPair(namespace)
            pair.create()
            pair.create_topic(TOPIC)
            folder = tmp_path_factory.mktemp("prometheus") / "server"
            with watching(folder, {"operator": [running.port]}, THRESHOLDS) as prometheus:
                yield Lab(pair, running, prometheus)
    finally:
        namespace.clean_up()


@pytest.fixture
def lab(cluster: Lab) -> Lab:
    """The cluster at rest, no alert firing."""
    cluster.pair.wait_settled()
    wait_until(lambda: not cluster.prometheus.firing(), "no alert", 120)
    return cluster


async def send(pair: QuickPair, *bodies: bytes) -> None:
    patient = replace(pair.settings(), time_scale=1.0)
    async with Producer("shop", patient) as producer:
        for body in bodies:
            await producer.send(Message(TOPIC, body))


async def test_of_a_cluster_at_work_nothing_is_told_and_of_a_lost_master_that(lab: Lab) -> None:
    await send(lab.pair, *(b"%d" % number for number in range(100)))
    assert lab.prometheus.query("failback_operator_pair_writable == 1")
    assert lab.prometheus.fired() == set()
    lab.pair.kill_and_hold(MASTER)
    lab.fires("FailbackPairNotWritable")
    lab.pair.release(MASTER)
    lab.ends("FailbackPairNotWritable")


@pytest.mark.soak
def test_two_masters_and_the_operation_that_waits_for_one_are_told(lab: Lab) -> None:
    with stranger(lab.pair, broker_id=0):
        lab.fires("FailbackTwoMasters")
        lab.pair.api.patch("BrokerCluster", "orders", {"spec": {"slaveReadEnable": True}})
        operation_is_blocked(lab.pair)
        lab.fires("FailbackOperationStuck")
    lab.ends("FailbackTwoMasters", 300)
    lab.ends("FailbackOperationStuck")


@pytest.mark.soak
def test_a_forced_switch_that_waits_is_told(lab: Lab) -> None:
    api = lab.pair.api
    api.patch("BrokerCluster", "orders", {"spec": {"failover": {"mode": "Manual"}}})
    where = {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": SLAVE}
    api.create(resource("RoleSwitch", "early", mode="Forced", **where))
    lab.fires("FailbackForcedSwitchWaits")
    assert "OldMasterDown" in lab.pair.wait_event("RoleSwitchBlocked", "early")
    api.delete("RoleSwitch", "early")
    lab.ends("FailbackForcedSwitchWaits")


@pytest.mark.soak
def test_a_configuration_that_waits_for_a_restart_is_told(lab: Lab) -> None:
    by_hand = {
        "updateStrategy": {"type": "OnDelete"},
        "config": {"flushConsumerOffsetInterval": "4000"},
    }
    lab.pair.api.patch("BrokerCluster", "orders", {"spec": by_hand})
    lab.fires("FailbackConfigNotApplied")
    lab.pair.api.patch(
        "BrokerCluster", "orders", {"spec": {"updateStrategy": {"type": "RollingUpdate"}}}
    )
    lab.ends("FailbackConfigNotApplied")


@pytest.mark.soak
async def test_a_slave_that_is_away_while_much_is_written_is_told(lab: Lab) -> None:
    lab.pair.kill_and_hold(SLAVE)
    parts = (os.urandom(PART_BYTES) for _ in range(2 * LAG_BYTES // PART_BYTES))
    await send(lab.pair, *parts)  # what can be compressed is little when it is stored
    lab.fires("FailbackLagFallenBehind")
    lab.pair.release(SLAVE)
    lab.ends("FailbackLagFallenBehind")


@pytest.mark.soak
async def test_a_slave_with_another_log_is_told(lab: Lab, node: NodeProcess) -> None:
    name, claim = lab.pair.namespace.name, f"data-{lab.pair.pod(SLAVE)}"
    await send(lab.pair, LAST)
    write_another(await replicated(node.claim_folder(name, claim) / "commitlog"))
    lab.pair.api.delete("Pod", lab.pair.pod(SLAVE))
    lab.fires("FailbackSlaveDiverged")
    uid = lab.pair.api.get("PersistentVolumeClaim", claim)["metadata"]["uid"]
    lab.pair.annotate(force_resync_member=f"{uid}:{1024 * 1024}")
    lab.ends("FailbackSlaveDiverged")


@pytest.mark.soak
def test_an_operator_that_hangs_is_told(lab: Lab) -> None:
    age = "failback_operator_pass_age_seconds"
    wait_until(lambda: lab.prometheus.query(f"{age} offset {WATCHED_MS}ms"), "what it did before")
    os.kill(lab.running.process.pid, signal.SIGSTOP)
    try:
        lab.fires("FailbackOperatorStalled")
    finally:
        os.kill(lab.running.process.pid, signal.SIGCONT)
    lab.ends("FailbackOperatorStalled")


@pytest.mark.soak
def test_an_experiment_that_could_not_be_healed_is_told(lab: Lab, node: NodeProcess) -> None:
    """Its account loses its rights while a broker is paused."""
    api, name = lab.pair.api, lab.pair.namespace.name
    allow(lab.pair.namespace)
    chaos_account(lab.pair.namespace)
    fault = {
        "id": "f1",
        "fault": "pause",
        "at": 10,
        "target": {"pair": "orders-0", "role": "Slave"},
        "with": {"durationSeconds": 500},
    }
    manifest = json.loads(experiment_text([fault], lab.pair.namespace))
    manifest["metadata"]["name"] = "left"
    manifest["spec"]["clusterRef"] = {"name": "orders"}
    victim = node.pids(name, lab.pair.pod(SLAVE))[1]
    with continued(victim):
        api.create(manifest)
        wait_until(lambda: state_of(victim) == "T", "the broker is paused", 180)
        api.delete("RoleBinding", CHAOS_ACCOUNT)
        api.patch("ChaosExperiment", "left", {"spec": {"abort": True}})
        ended = api.wait(
            "ChaosExperiment",
            "left",
            lambda item: condition_of(item, "Recovered").get("reason") == "HealFailed",
            seconds=300,
        )
        assert condition_of(ended, "Recovered")["status"] == "False"
        lab.fires("FailbackExperimentNotHealed")


@contextmanager
def continued(pid: int) -> Iterator[None]:
    """Let a process go on afterwards, whatever has stopped it."""
    try:
        yield
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)
