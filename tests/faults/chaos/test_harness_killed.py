"""The harness is killed with SIGKILL at every step; heal leaves no fault and closes the folder."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.broker_clock import clock_shift_ms
from failback.chaos.cluster.view import ProcessState
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.errors import ExitCode, NotHealed, RunFolderError
from failback.chaos.failpoints import POINTS, VARIABLE
from failback.chaos.faults.limit_memory import memory_group
from failback.chaos.run.abort_and_heal import heal
from failback.chaos.run_folder.run_folder import FolderState, RunFolder
from failback.chaos.run_folder.undo_ledger import read_ledger
from failback.chaos.workload.process import at_work_on
from failback.operator.local import disks
from failback.operator.local.network import missing
from failback.protocol.route import parse_offset_table
from tests.support.chaos.chaos_lab import (
    LocalCluster,
    experiment,
    network_rules,
    run_arm_command,
)
from tests.support.common.polling import wait_until
from tests.support.processes.child_process import failback_environment

BROKER = {"pair": "demo-0"}
KILL = {"id": "f1", "fault": "kill", "at": 2, "target": BROKER, "with": {"downSeconds": 10}}
TERMINATE = {"id": "f1", "fault": "terminate", "at": 2, "target": BROKER}
CONSUMER = {"id": "f1", "fault": "kill-consumer", "at": 2, "with": {"restartAfterSeconds": 3}}
NAMESERVER = {
    "id": "f1",
    "fault": "kill-nameserver",
    "at": 2,
    "with": {"which": "All", "downSeconds": 10},
}


def lasting(fault: str, seconds: float = 60, **parameters: Any) -> dict[str, Any]:
    """A fault of the master that ends by itself after some seconds (unscaled)."""
    given = {**parameters, "durationSeconds": seconds}
    return {"id": "f1", "fault": fault, "at": 2, "target": BROKER, "with": given}


CLOCK = lasting("clock-skew", offsetSeconds=-120)
FULL = lasting("disk-full")
READ_ONLY = lasting("disk-read-only")
MEMORY = lasting("limit-memory")
CUT = lasting("cut-clients", 50)
PAUSE = lasting("pause", 20)
FILE = {
    "id": "f1",
    "fault": "replace-offset-file",
    "at": 2,
    "target": BROKER,
    "with": {"content": "Delete", "downSeconds": 10},
}
HANDLER = {
    "id": "f1",
    "fault": "slow-handler",
    "at": 2,
    "with": {"delayMs": 50, "durationSeconds": 20},
}
UNSUBSCRIBE = {"id": "f1", "fault": "unsubscribe", "at": 2, "with": {"durationSeconds": 20}}
LAG = {"id": "f1", "fault": "lag-slave", "at": 2, "target": BROKER, "with": {"lagSeconds": 20}}
SCALE = {"id": "f1", "fault": "scale-consumers", "at": 2, "with": {"members": 2}}

SOAK = pytest.mark.soak
CASES = [
    ("link-cut", CUT),
    ("before-join", CUT),
    pytest.param("prepared", KILL, marks=SOAK),
    pytest.param("ledger-written", KILL, marks=SOAK),
    ("held", KILL),
    ("signalled", KILL),
    pytest.param("dead", KILL, marks=SOAK),
    pytest.param("effect-proved", KILL, marks=SOAK),
    ("before-release", KILL),
    pytest.param("released", KILL, marks=SOAK),
    pytest.param("drained", KILL, marks=SOAK),
    pytest.param("sealed", KILL, marks=SOAK),
    ("closed-written", KILL),
    pytest.param("signalled", TERMINATE, marks=SOAK),
    ("effect-proved", TERMINATE),
    pytest.param("ledger-written", PAUSE, marks=SOAK),
    ("signalled", PAUSE),
    pytest.param("effect-proved", PAUSE, marks=SOAK),
    ("before-continue", PAUSE),
    ("consumers-ended", CONSUMER),
    ("signalled", NAMESERVER),
    ("fault-set", CLOCK),
    ("fault-set", READ_ONLY),
    ("fault-set", MEMORY),
    ("before-end", FULL),
    pytest.param("before-end", MEMORY, marks=SOAK),
    pytest.param("ledger-written", CLOCK, marks=SOAK),
    pytest.param("before-end", CLOCK, marks=SOAK),
    pytest.param("before-end", READ_ONLY, marks=SOAK),
    pytest.param("fault-set", FULL, marks=SOAK),
    pytest.param("effect-proved", FULL, marks=SOAK),
    pytest.param("held", NAMESERVER, marks=SOAK),
    pytest.param("before-release", NAMESERVER, marks=SOAK),
    pytest.param("before-consumers-start", CONSUMER, marks=SOAK),
    pytest.param("files-saved", FILE, marks=SOAK),
    pytest.param("files-replaced", FILE, marks=SOAK),
    pytest.param("handlers-set", HANDLER, marks=SOAK),
    pytest.param("unsubscribed", UNSUBSCRIBE, marks=SOAK),
    pytest.param("ledger-written", CUT, marks=SOAK),
    ("held", LAG),
    pytest.param("dead", LAG, marks=SOAK),
    ("scaled", SCALE),
]


@pytest.mark.sample
def test_every_fail_point_is_tried() -> None:
    tried = [getattr(case, "values", case)[0] for case in CASES]
    assert set(tried) == set(POINTS)


@pytest.mark.few(19, 21)
@pytest.mark.parametrize(
    ("point", "fault"), CASES, ids=lambda value: value if isinstance(value, str) else value["fault"]
)
def test_heal_after_the_harness_was_killed(
    request: pytest.FixtureRequest, tmp_path: Path, point: str, fault: dict[str, Any]
) -> None:
    if fault is CUT and missing():
        pytest.skip(missing())
    cluster: LocalCluster = request.getfixturevalue("isolated" if fault is CUT else "cluster")
    topic = f"{fault['fault']}-{point}"
    if fault in (CONSUMER, HANDLER, UNSUBSCRIBE, SCALE):
        fault = {**fault, "target": {"group": f"group-{topic}"}}
    run_dir = tmp_path / "run"
    wanted = experiment([fault], topic=topic)
    harness = subprocess.run(
        run_arm_command(cluster, wanted, run_dir),
        env={**os.environ, **failback_environment(), VARIABLE: point},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert harness.returncode == -signal.SIGKILL, harness.stderr.decode()[-2000:]
    folder = RunFolder(run_dir)
    assert folder.state() is FolderState.ORPHANED
    with pytest.raises(NotHealed, match=f"failback experiment heal {run_dir}"):
        cluster.run(wanted, tmp_path / "next")
    assert_heal_restores(cluster, run_dir, fault, topic)


FAMILIES = (KILL, PAUSE, CUT, CLOCK, FULL, READ_ONLY, MEMORY, NAMESERVER, CONSUMER)


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAMILIES, ids=lambda fault: fault["fault"])
def test_heal_after_kills_at_seeded_instants(
    request: pytest.FixtureRequest, tmp_path: Path, fault: dict[str, Any]
) -> None:
    """Three a family, between the begin of a run and its end; the name of the folder has each."""
    if fault is CUT and missing():
        pytest.skip(missing())
    cluster: LocalCluster = request.getfixturevalue("isolated" if fault is CUT else "cluster")
    rng = random.Random(fault["fault"])
    for number in range(3):
        topic = f"{fault['fault']}-{number}"
        if fault is CONSUMER:
            fault["target"] = {"group": f"group-{topic}"}
        instant = rng.uniform(0.5, 4.0)
        run_dir = tmp_path / f"{number}-after-{instant:.3f}-s"
        harness = subprocess.Popen(
            run_arm_command(cluster, experiment([fault], topic=topic), run_dir),
            env={**os.environ, **failback_environment()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until((run_dir / "experiment.json").exists, "the run has begun")
        try:
            harness.wait(instant)
        except subprocess.TimeoutExpired:
            harness.kill()
        assert harness.wait() == -signal.SIGKILL
        assert_heal_restores(cluster, run_dir, fault, topic)


def assert_heal_restores(
    cluster: LocalCluster, run_dir: Path, fault: dict[str, Any], topic: str
) -> None:
    """Nothing stays of a fault or of its run, and a second heal changes nothing."""
    folder = RunFolder(run_dir)
    said: list[str] = []
    assert heal(run_dir, progress=said.append, seconds=60) is ExitCode.PASS, said
    assert folder.state() is FolderState.CLOSED
    assert folder.read_json("closed.json")["not_healed"] == []
    assert all(entry.healed is not None for entry in read_ledger(run_dir / "undo.jsonl"))
    assert_no_fault_is_left(cluster, run_dir)
    if fault["fault"] == "cut-clients":
        assert network_rules(cluster) == ""
    if fault["fault"] == "replace-offset-file":
        assert_the_offset_file_is_back(cluster, run_dir, f"{topic}@group-{topic}")

    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    assert heal(run_dir, progress=said.append) is ExitCode.PASS
    assert said[-1] == "nothing to heal"
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before


def assert_no_fault_is_left(cluster: LocalCluster, run_dir: Path) -> None:
    target = cluster.target()
    view = target.view()
    assert view.conflicts == ()
    for member in view.members:
        assert member.identity is not None, f"{member.pod} does not run"
        assert target.process_state(member.identity) is ProcessState.RUNNING
        assert not list(cluster.root.rglob(f"{member.pod}/**/hold"))
        assert abs(clock_shift_ms(member.address)) < 1_000  # a step is two minutes
        assert not (Path(member.store) / disks.FILLER).exists()
        group = memory_group(member.identity.pid)
        assert group is not None
        assert group.limit is None
        if "disk-full" in target.possible_faults(member):
            assert not disks.has_failed(Path(member.store).resolve())
    for plan in (run_dir / "plans").glob("*.json"):
        assert not at_work_on(plan), f"{plan.stem} still runs"
    assert not list((run_dir / "hot").glob("*.fblog"))


def assert_the_offset_file_is_back(cluster: LocalCluster, run_dir: Path, key: str) -> None:
    """The broker began with the saved file: it knows at least what that one held."""
    saved = parse_offset_table((run_dir / "snap/f1-saved/consumerOffset.json").read_bytes())
    (master,) = [each for each in cluster.target().view().members if each.role == "master"]
    with WireConnection(master.address) as connection:
        table = connection.all_offsets()
    assert saved[key]
    assert all(table[key][queue] >= value for queue, value in saved[key].items())


def test_there_is_nothing_to_heal_in_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no run folder"):
        heal(tmp_path)
