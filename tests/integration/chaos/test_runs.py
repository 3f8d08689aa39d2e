"""Whole runs on a real cluster at a tenth of all timers: proved faults, complete evidence."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.errors import GuardRefused
from failback.chaos.experiment.spec import ChaosExperiment
from failback.chaos.faults.catalogue import load_experiment, parse_experiment
from failback.chaos.run.run import run_arm
from failback.chaos.run_folder.run_folder import ClusterLease
from failback.chaos.targets.location import Location
from failback.protocol.errors import ConfigError
from tests.support.chaos.chaos_lab import (
    TIME_SCALE,
    LocalCluster,
    duplicates,
    experiment,
    lost,
    rows,
)

DEMO = Path(__file__).parents[3] / "operator/failback/cli/data/experiment.yaml"
MASTER = {"pair": "demo-0", "role": "Master"}
FULL_PROOF = {
    "K1": True,
    "K2": True,
    "K3": "SIGKILL",
    "K4": "no shutdown code ran",
    "K6": True,
    "K8": True,
}


def demo(topic: str) -> ChaosExperiment:
    """The demo's experiment on a topic of its own, at a tenth."""
    text = DEMO.read_text().replace("orders", topic).replace("billing", f"group-{topic}")
    return parse_experiment(text).with_time_scale(TIME_SCALE)


def kinds(run_dir: Path) -> list[str]:
    return [row["kind"] for row in sorted(rows(run_dir, "fault"), key=lambda row: row["seq"])]


def test_the_demo_file_is_read_as_it_is_shipped() -> None:
    assert [arm.name for arm in load_experiment(DEMO).arms] == ["stay", "handover"]


def test_a_consumer_that_stays_re_consumes_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    outcome, said = cluster.run(demo("stay"), tmp_path / "run", "stay")
    assert outcome.passed, (outcome, said)
    proof = dict(outcome.faults[0]["proof"])
    assert proof.pop("K7").startswith("pid ")
    assert proof.pop("K5") in ("FIN", "RST")  # by what a busy broker had not read yet
    assert proof == FULL_PROOF
    assert duplicates(tmp_path / "run") == 0
    assert lost(tmp_path / "run") == 0
    assert outcome.faults[0]["served_by_slave"]["group-stay"] > 0
    assert {"PEER", "KILL", "RELEASE", "ACCEPT", "REGISTERED", "SEND_OK", "PULL_OK"} <= set(
        kinds(tmp_path / "run")
    )


@pytest.mark.sample
def test_a_handover_re_consumes_exactly_what_the_master_never_heard_of(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    outcome, said = cluster.run(demo("handover"), run_dir, "handover")
    assert outcome.passed, (outcome, said)
    found = rows(run_dir, "deliver")
    stop = next(row for row in rows(run_dir, "fault") if row["kind"] == "CLIENT_TERM")
    consumed: dict[int, int] = {}
    for row in found:
        if row["bt"] <= stop["observed"]:
            consumed[row["qid"]] = max(consumed.get(row["qid"], 0), row["qoff"] + 1)
    loaded_file = next((run_dir / "snap/f1-accept").rglob("code43.json"))
    loaded = json.loads(loaded_file.read_text())["handover@group-handover"]
    expected = sum(consumed[queue] - loaded[str(queue)] for queue in consumed)
    assert expected > 100
    assert duplicates(run_dir) == expected
    assert lost(run_dir) == 0
    kept = next((run_dir / "snap/f1-gone").rglob("consumerOffset.json")).read_text()
    assert all(f"{queue}:{value}" in kept for queue, value in loaded.items())


@pytest.mark.soak
def test_four_members_and_no_fault_prove_the_instrument(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    fault = {"id": "f0", "fault": "none", "with": {"durationSeconds": 60}}
    run_dir = tmp_path / "run"
    outcome, said = cluster.run(experiment([fault], topic="noop", members=4), run_dir)
    assert outcome.passed, (outcome, said)
    assert duplicates(run_dir) == 0  # members that join in the warm-up hand queues over
    assert lost(run_dir) == 0
    closed = json.loads((run_dir / "closed.json").read_text())
    assert closed["gaps"] == closed["recorder_gaps"] == []
    assert sorted(closed["procs"]) == ["0", "1", "2", "3", "4", "5"]
    assert max(closed["sampling_seconds"].values()) < 1


def test_a_terminated_broker_ran_its_shutdown_code(cluster: LocalCluster, tmp_path: Path) -> None:
    fault = {"id": "f1", "fault": "terminate", "at": 2, "target": MASTER}
    outcome, said = cluster.run(experiment([fault], topic="terminate"), tmp_path / "run")
    assert outcome.passed, (outcome, said)
    assert outcome.faults[0]["proof"]["K3"] in ("exit 0", "SIGTERM", "exit 143")
    assert outcome.faults[0]["proof"]["K4"] == "shutdown code ran"
    assert "TERM" in kinds(tmp_path / "run")


def test_a_paused_broker_is_silent_and_comes_back_as_itself(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    before = cluster.target().view().members[0].identity
    fault = {"id": "f1", "fault": "pause", "at": 2, "target": MASTER}
    wanted = experiment([{**fault, "with": {"durationSeconds": 30}}], topic="pause")
    outcome, said = cluster.run(wanted, tmp_path / "run")
    assert outcome.passed, (outcome, said)
    proof = outcome.faults[0]["proof"]
    assert (proof["K3"], proof["K5"], proof["K6"]) == ("SIGSTOP", "SILENCE", True)
    assert cluster.target().view().members[0].identity == before


@pytest.mark.few(1, 1)
@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_a_consumer_ends_and_starts_again(
    cluster: LocalCluster, tmp_path: Path, signal: str
) -> None:
    topic = f"consumer-{signal}"
    fault = {
        "id": "f1",
        "fault": "kill-consumer",
        "at": 2,
        "target": {"group": f"group-{topic}"},
        "with": {"signal": signal, "restartAfterSeconds": 5},
    }
    outcome, said = cluster.run(experiment([fault], topic=topic), tmp_path / "run")
    assert outcome.passed, (outcome, said)
    assert kinds(tmp_path / "run") == [f"CLIENT_{signal}", "CLIENT_START", "HEALED"]
    run = json.loads((tmp_path / "run/run.json").read_text())
    consumers = [each for each in run["procs"] if each["role"] == "consumer"]
    assert len(consumers) == 2
    assert len({each["client_id"] for each in consumers}) == 2
    assert lost(tmp_path / "run") == 0


def test_the_folder_says_everything_and_the_manifest_binds_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    fault = {"id": "f1", "fault": "kill", "at": 1, "target": MASTER, "with": {"downSeconds": 10}}
    run_dir = tmp_path / "run"
    outcome, said = cluster.run(experiment([fault], topic="folder"), run_dir)
    assert outcome.passed, (outcome, said)
    run = json.loads((run_dir / "run.json").read_text())
    assert run["schema"] == "failback.run/1"
    assert run["rule_set"] == "4.9.8"
    assert run["system"]["slave_read_enable"] is True
    assert run["topology"]["pairs"][0]["members"][1]["broker_id"] == 1
    assert run["warmup_end_ns"] < 0
    assert run["warmup_seconds"] >= 0
    assert set(run["steady_state"]) == {"hold_seconds", "timeout_seconds"}
    closed = json.loads((run_dir / "closed.json").read_text())
    phases = closed["phases"]
    assert phases["warmup_end_ns"] < phases["first_fault_ns"] < phases["last_heal_ns"]
    assert phases["last_heal_ns"] < phases["drain_end_ns"] < phases["end_ns"]
    assert closed["counts"]["deliver"] == len(rows(run_dir, "deliver"))
    assert closed["drained"]
    assert closed["scan"]
    assert len(rows(run_dir, "scan")) == closed["counts"]["scan"] > 0
    manifest = json.loads((run_dir / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        assert hashlib.sha256((run_dir / name).read_bytes()).hexdigest() == entry["sha256"], name
    listed = {name for name in manifest["files"] if name.endswith(".parquet")}
    on_disk = {str(path.relative_to(run_dir)) for path in run_dir.rglob("*.parquet")}
    assert listed == on_disk
    journal = json.loads((run_dir / "journal.json").read_text())
    assert journal["status"] == "completed"
    assert journal["deviated"] is False
    assert journal["x-failback"]["run"] == run["run"]
    assert [each["status"] for each in journal["run"]] == ["succeeded"] * len(journal["run"])
    for when in ("start", "end"):
        assert (run_dir / f"snap/{when}/demo-0-0-0/code43.json").exists()
        assert (run_dir / f"snap/{when}/demo-0-1-0/code26.json").exists()


def test_a_second_experiment_on_the_cluster_is_refused(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    fault = {"id": "f0", "fault": "none", "with": {"durationSeconds": 30}}
    said: list[str] = []
    begun = threading.Event()

    def progress(line: str) -> None:
        said.append(line)
        if line == "run zero":
            begun.set()

    first: list[Any] = []
    thread = threading.Thread(
        target=lambda: first.append(
            run_arm(
                experiment([fault], topic="first"),
                "base",
                location=Location(root=str(cluster.root)),
                run_dir=tmp_path / "first",
                progress=progress,
            )
        )
    )
    thread.start()
    assert begun.wait(60)
    with pytest.raises(GuardRefused, match=r"OneExperiment: demo is in use by .*/first"):
        cluster.run(experiment([fault], topic="second"), tmp_path / "second")
    thread.join(60)
    assert first[0].passed


REFUSED = [
    ({"time_scale": 0.5}, GuardRefused, "TimeScale: demo-0-0-0 runs at failbackTimeScale 0.1"),
    ({"clusterRef": {"name": "other"}}, GuardRefused, 'cluster "other": not running here'),
    (
        {"faults": [{"id": "f1", "fault": "kill", "at": 1, "target": {"pair": "demo-7"}}]},
        GuardRefused,
        "TargetMatches: f1: no pair demo-7, there is demo-0",
    ),
]


@pytest.mark.parametrize(("change", "error", "message"), REFUSED)
def test_a_refused_run_touches_nothing_and_leaves_the_cluster_free(
    cluster: LocalCluster,
    tmp_path: Path,
    change: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    before = [member.identity for member in cluster.target().view().members]
    with pytest.raises(error, match=message):
        cluster.run(experiment(**{"faults": [], "topic": "refused", **change}), tmp_path / "run")
    assert [member.identity for member in cluster.target().view().members] == before
    lease = ClusterLease(cluster.root, "demo")
    lease.take(tmp_path / "next")
    lease.give_back(healed=True)


def test_an_unknown_client_switch_is_bad_input(cluster: LocalCluster, tmp_path: Path) -> None:
    wanted = experiment([], topic="switch", arms=[{"name": "base", "clientSwitches": {"drain": 1}}])
    with pytest.raises(ConfigError, match=r'switches\.drain: unknown "drain"'):
        cluster.run(wanted, tmp_path / "run")
