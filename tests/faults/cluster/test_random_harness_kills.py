"""SIGKILL of the harness at seeded random instants of a run, then ``failback experiment heal``.

Wherever it died: no fault is left, no process of the run lives on, nothing acknowledged is lost,
and the logs that killed nobody are whole. A failure names the seed; ``FAILBACK_KILL_SEED`` plays
one again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from failback.chaos.cluster.wire import WireConnection
from tests.faults.cluster.kill_evidence import scan
from tests.support.chaos.chaos_lab import (
    LocalCluster,
    experiment,
    local_cluster,
    rows,
    run_arm_command,
    run_failback,
)
from tests.support.clients.consumelog import processes_in_lake
from tests.support.processes.child_process import failback_environment
from tests.support.processes.leftovers import processes_of

FAULTS = [
    {
        "id": "f1",
        "fault": "kill",
        "at": 10,
        "target": {"pair": "demo-0"},
        "with": {"downSeconds": 20},
    },
]
LONGEST_SECONDS = 14.0


def kill_harness(cluster: LocalCluster, folder: Path, number: int, after_seconds: float) -> str:
    """Kill the harness of one run; return the run's topic, or nothing if it had not begun."""
    run_dir = folder / f"run-{number}"
    topic = f"orders-{number}"
    consumer = {
        "id": "f2",
        "fault": "kill-consumer",
        "at": 25,
        "target": {"group": f"group-{topic}"},
        "with": {"restartAfterSeconds": 3},
    }
    wanted = experiment([*FAULTS, consumer], topic=topic)
    with (folder / f"harness-{number}.log").open("wb") as log:
        harness = subprocess.Popen(
            run_arm_command(cluster, wanted, run_dir),
            env={**os.environ, **failback_environment()},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        harness.wait(after_seconds)
    except subprocess.TimeoutExpired:
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    if not (run_dir / "experiment.json").exists():
        return ""
    said = run_failback("experiment", "heal", str(run_dir))
    assert "still open" not in said
    assert run_failback("experiment", "heal", str(run_dir)).strip() == "nothing to heal"
    assert processes_of(run_dir) == []
    return topic


def check_run(cluster: LocalCluster, run_dir: Path, topic: str) -> int:
    """Nothing acknowledged is lost and no row is missing; return how many were acknowledged."""
    view = cluster.target().view()
    assert view.conflicts == ()
    assert [member.running for member in view.members] == [True, True]
    (master,) = (member for member in view.members if member.role == "master")
    with WireConnection(master.address) as connection:
        stored = set(scan(connection, topic).values())
    acknowledged = {
        (row["lane"], row["lseq"]) for row in rows(run_dir, "produce") if row["res"] == "OK"
    }
    assert acknowledged <= stored
    closed = json.loads((run_dir / "closed.json").read_text())
    assert closed["gaps"] == []
    if not (run_dir / "run.json").exists():
        assert not acknowledged, "there was a workload before run.json"
        return 0  # the harness was killed before its run had begun
    run = json.loads((run_dir / "run.json").read_text())["run"]
    for number, process in processes_in_lake(run_dir / "lake", run).items():
        assert process.records == process.last_seq, f"process {number} has a hole"
    return len(acknowledged)


def kill_harness_at_random(folder: Path, seed: int, times: int) -> None:
    rng = random.Random(seed)
    with local_cluster(folder / "cluster") as cluster:
        topics = {}
        began = time.monotonic()
        for number in range(times):
            # One in each part of a run, so that no part is left out.
            part = LONGEST_SECONDS / times
            instant = 1.0 + part * (number + rng.random())
            print(f"harness {number} is killed {instant:.2f} s after its start")
            if topic := kill_harness(cluster, folder, number, instant):
                topics[number] = topic
        counts = [check_run(cluster, folder / f"run-{each}", topics[each]) for each in topics]
        assert max(counts) > 0, f"nothing was acknowledged in {time.monotonic() - began:.0f} s"
    assert processes_of(folder) == []


@pytest.mark.soak
def test_nothing_is_lost_or_left_when_the_harness_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("FAILBACK_KILL_SEED", "4"))
    print(f"seed {seed}")
    kill_harness_at_random(tmp_path, seed, times=4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_left_over_many_killed_harnesses(tmp_path: Path, seed: int) -> None:
    seed = int(os.environ.get("FAILBACK_KILL_SEED", str(seed)))
    print(f"seed {seed}")
    kill_harness_at_random(tmp_path, seed, times=20)
