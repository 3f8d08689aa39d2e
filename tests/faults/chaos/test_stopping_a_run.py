"""A run that is told to stop while a broker is frozen thaws it, closes, and does not pass."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.view import ProcessState
from failback.chaos.errors import ExitCode
from failback.chaos.run.abort_and_heal import abort
from failback.chaos.run_folder.run_folder import FolderState, RunFolder
from tests.support.chaos.chaos_lab import LocalCluster, experiment, run_arm_command
from tests.support.common.polling import wait_until
from tests.support.processes.child_process import failback_environment

FREEZE = {
    "id": "f1",
    "fault": "pause",
    "at": 1,
    "target": {"pair": "demo-0"},
    "with": {"durationSeconds": 300},
}


class Harness:
    """One repetition in a process of its own; its progress lines are read as they come."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **failback_environment()},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.documents: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.documents.append(json.loads(line))

    def said(self, text: str) -> bool:
        return any(text in str(each.get("progress")) for each in self.documents)

    def end(self) -> dict[str, Any]:
        self.process.wait(120)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.documents[-1]


@pytest.mark.few(2, 2)
@pytest.mark.parametrize(
    "how",
    [
        "SIGTERM",
        "SIGUSR2",
        "abort",
        pytest.param("SIGINT", marks=pytest.mark.soak),
        pytest.param("SIGUSR1", marks=pytest.mark.soak),
    ],
)
def test_a_frozen_broker_runs_on_after_the_run_was_stopped(
    cluster: LocalCluster, tmp_path: Path, how: str
) -> None:
    run_dir = tmp_path / "run"
    wanted = experiment([FREEZE], topic=f"freeze-{how}", recoverTimeoutSeconds=100)
    harness = Harness(run_arm_command(cluster, wanted, run_dir))
    try:
        wait_until(lambda: harness.said("waiting for recovery"), "the broker is frozen", 60)
        target = cluster.target()
        frozen = next(each for each in cluster_pods(cluster) if each["pod"] == "demo-0-0-0")
        assert state_of(frozen) is ProcessState.STOPPED
        if how == "abort":
            abort(run_dir, "by the test")
        else:
            harness.process.send_signal(getattr(signal, how))
        last = harness.end()
    finally:
        if harness.process.poll() is None:
            harness.process.kill()
            harness.end()
    outcome = last["outcome"]
    assert state_of(frozen) is ProcessState.RUNNING
    assert outcome["verdict"] == "Inconclusive"
    assert harness.process.returncode == ExitCode.INCONCLUSIVE
    codes = {check["code"] for check in outcome["checks"]}
    assert "ABORTED" in codes
    assert RunFolder(run_dir).state() is FolderState.CLOSED
    journal = json.loads((run_dir / "journal.json").read_text())
    assert journal["status"] == "interrupted"
    assert target.view().conflicts == ()


def cluster_pods(cluster: LocalCluster) -> list[dict[str, Any]]:
    view = cluster.call("view")
    return [pod for pair in view["clusters"][0]["pairs"] for pod in pair["members"]]


def state_of(pod: dict[str, Any]) -> ProcessState:
    from failback.chaos.cluster import processes

    return processes.state_of(pod["pid"], pod["ticks"])


def test_a_broker_that_does_not_come_back_fails_the_run(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    fault = {"id": "f1", "fault": "terminate", "at": 1, "target": {"pair": "demo-0"}}
    wanted = experiment(
        [{**fault, "with": {"restart": False}}], topic="stays-down", recoverTimeoutSeconds=3
    )
    outcome, said = cluster.run(wanted, tmp_path / "run")
    assert outcome.verdict == "Fail", said
    assert outcome.exit_code == ExitCode.FAIL
    failed = next(check for check in outcome.checks if check["verdict"] == "Fail")
    assert failed["name"] == "recovered"
    assert "f1 (pair-0) is not healed" in failed["detail"]
    assert all(pod["state"] == "Ready" for pod in cluster_pods(cluster))
