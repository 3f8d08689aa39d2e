"""What alerts make of real experiments: nothing of one without a fault, and of others what is due.

One cluster of the local runtime, an exporter of it and of the folder of runs, one Prometheus.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from failback.chaos.errors import ExitCode
from failback.chaos.failpoints import VARIABLE
from failback.chaos.faults.catalogue import parse_experiment
from failback.chaos.run.abort_and_heal import heal
from tests.support.chaos.chaos_lab import (
    TIME_SCALE,
    LocalCluster,
    duplicates,
    experiment,
    local_cluster,
    run_arm_command,
    run_failback,
)
from tests.support.common.polling import wait_until
from tests.support.dashboard.prometheus_lab import RULES_FACTOR, Prometheus, exporting, watching
from tests.support.processes.child_process import ROOT, failback_environment

pytestmark = [pytest.mark.soak]

DEMO = ROOT / "operator/failback/cli/data/experiment.yaml"
LATELY_MS = round(5 * 60_000 / RULES_FACTOR)
"""The five minutes in which counters are compared."""


@dataclass(frozen=True)
class Lab:
    cluster: LocalCluster
    runs: Path
    prometheus: Prometheus


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("alerts")
    runs = folder / "runs"
    runs.mkdir()
    with local_cluster(folder / "cluster") as cluster:
        (name_server,) = cluster.target().view().nameservers
        arguments = ("--namesrv", name_server, "--runs", str(runs))
        with (
            exporting(folder / "exporter", *arguments) as port,
            watching(folder / "prometheus", {"exporter": [port]}) as prometheus,
        ):
            yield Lab(cluster, runs, prometheus)


def test_of_a_run_without_a_fault_nothing_is_told(lab: Lab) -> None:
    fault = {"id": "f0", "fault": "none", "with": {"durationSeconds": 60}}
    wanted = experiment([fault], topic="noop", members=4)
    outcome, said = lab.cluster.run(wanted, lab.runs / "noop")
    assert outcome.passed, (outcome, said)
    assert lab.prometheus.query("max_over_time(failback_run_active[10m]) == 1"), "it was seen"
    run_failback("report", str(lab.runs / "noop"), "--engine", "local")
    reported = f'failback_delivered_messages_total{{topic="noop"}} offset {LATELY_MS}ms'
    wait_until(lambda: lab.prometheus.query(reported), "an old sample of the report", 120)
    assert lab.prometheus.fired() == set()


def test_of_a_handover_that_repeats_a_third_the_budget_is_told(lab: Lab) -> None:
    text = DEMO.read_text().replace("orders", "handed").replace("billing", "group-handed")
    wanted = parse_experiment(text).with_time_scale(TIME_SCALE)
    wait_until(
        lambda: lab.prometheus.query(f"up offset {LATELY_MS}ms"), "a Prometheus that is not new"
    )
    outcome, said = lab.cluster.run(wanted, lab.runs / "handed", "handover")
    assert outcome.passed, (outcome, said)
    assert duplicates(lab.runs / "handed") > 0
    run_failback("report", str(lab.runs / "handed"), "--engine", "local")
    wait_until(lambda: "ReconsumeBudgetBurn" in lab.prometheus.fired(), "the alert", 120)
    assert lab.prometheus.fired() == {"ReconsumeBudgetBurn"}, "what it provoked is no alarm"


def test_of_a_harness_that_was_killed_its_fault_is_told_until_it_is_healed(lab: Lab) -> None:
    fault = {"id": "f1", "fault": "pause", "at": 2, "target": {"pair": "demo-0", "role": "Master"}}
    wanted = experiment([{**fault, "with": {"durationSeconds": 200}}], topic="left")
    folder = lab.runs / "left"
    harness = subprocess.run(
        run_arm_command(lab.cluster, wanted, folder),
        env={**os.environ, **failback_environment(), VARIABLE: "effect-proved"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert harness.returncode == -signal.SIGKILL, harness.stderr.decode()[-2000:]
    wait_until(lambda: "FaultLeftActive" in lab.prometheus.firing(), "the alert", 120)
    rows = lab.prometheus.query('ALERTS{alertname="FaultLeftActive"}')
    assert {row["metric"]["fault"] for row in rows} == {"f1"}
    assert heal(folder, progress=lambda _: None, seconds=60) is ExitCode.PASS
    wait_until(lambda: "FaultLeftActive" not in lab.prometheus.firing(), "its end", 120)
