"""Faults made of several steps, and those of handlers, on a real cluster at a tenth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failback.chaos.errors import TargetError
from tests.support.chaos.chaos_lab import LocalCluster, duplicates, evidence, experiment, lost, rows

MASTER = {"pair": "demo-0", "role": "Master"}


def test_a_slow_handler_is_seen_slow_and_seen_back(cluster: LocalCluster, tmp_path: Path) -> None:
    fault = {
        "id": "f1",
        "fault": "slow-handler",
        "at": 5,
        "target": {"group": "group-slow"},
        "with": {"delayMs": 200, "failRatio": 0.2, "throwRatio": 0.1, "durationSeconds": 30},
    }
    wanted = experiment([fault], topic="slow", group={"maxReconsumeTimes": 1})
    outcome, said = cluster.run(wanted, tmp_path / "run")
    assert outcome.passed, (outcome, said)
    effect = evidence(tmp_path / "run", "effect")["f1"]
    assert min(effect["proof"]["HANDLED"].values()) > 0
    assert evidence(tmp_path / "run", "heal")["f1"]["proof"]["K8"] is True
    statuses = {row["status"] for row in rows(tmp_path / "run", "deliver")}
    assert {"SUCCESS", "LATER", "EXC"} <= statuses
    steps = {row["kind"]: row for row in rows(tmp_path / "run", "fault")}
    knobs = {"delay_ms": 200.0, "fail_ratio": 0.2, "throw_ratio": 0.1}
    assert json.loads(steps["SET_HANDLER"]["detail"])["knobs"] == knobs
    after = {
        row["status"]
        for row in rows(tmp_path / "run", "deliver")
        if row["bt"] > steps["HEALED"]["observed"]
    }
    assert "SUCCESS" in after
    assert not after & {"LATER", "EXC"}  # one may be ABANDONED: the run ends under it


def test_a_broker_is_killed_again_when_it_has_just_returned(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    fault = {
        "id": "f1",
        "fault": "double-kill",
        "at": 5,
        "target": MASTER,
        "with": {"gapSeconds": 8, "downSeconds": 10},
    }
    outcome, said = cluster.run(experiment([fault], topic="again"), tmp_path / "run")
    assert outcome.passed, (outcome, said)
    healed = evidence(tmp_path / "run", "heal")
    assert set(healed) == {"f1", "f1-again-1"}
    for each in healed.values():
        assert (each["proved"], each["proof"]["K3"]) == (True, "SIGKILL")
    first, second = healed["f1"], healed["f1-again-1"]
    assert first["victims"][0]["pid"] != second["victims"][0]["pid"]
    gap = second["issued_ns"][0] - first["observed"]["accept_ns"]
    assert gap >= 0.8e9
    assert lost(tmp_path / "run") == 0


def test_name_servers_return_empty_and_brokers_register(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    fault = {
        "id": "f1",
        "fault": "kill-nameserver",
        "at": 2,
        "with": {"which": "All", "downSeconds": 30},
    }
    (before,) = cluster.target().nameserver_pods()
    pid = cluster.target().identity(before).pid
    outcome, said = cluster.run(experiment([fault], topic="nameless"), tmp_path / "run")
    assert outcome.passed, (outcome, said)
    healed = evidence(tmp_path / "run", "heal")["f1"]
    assert (healed["proof"]["K3"], healed["proof"]["K6"]) == ("SIGKILL", True)
    assert cluster.target().identity(before).pid != pid
    assert duplicates(tmp_path / "run") == 0


def test_a_pair_is_restarted_slave_first(cluster: LocalCluster, tmp_path: Path) -> None:
    fault = {
        "id": "f1",
        "fault": "roll-pair",
        "at": 5,
        "target": {"pair": "demo-0"},
        "with": {"downSeconds": 5, "gapSeconds": 20},
    }
    outcome, said = cluster.run(experiment([fault], topic="rolled"), tmp_path / "run")
    assert outcome.passed, (outcome, said)
    healed = evidence(tmp_path / "run", "heal")
    slave, master = healed["f1"], healed["f1-master"]
    assert [each["victims"][0]["broker_id"] for each in (slave, master)] == [1, 0]
    assert master["issued_ns"][0] > slave["observed"]["registered_ns"]
    assert lost(tmp_path / "run") == 0


def test_a_master_dies_while_its_slave_is_behind(cluster: LocalCluster, tmp_path: Path) -> None:
    fault = {
        "id": "f1",
        "fault": "lag-slave",
        "at": 5,
        "target": {"pair": "demo-0"},
        "with": {"lagSeconds": 60, "downSeconds": 60},
    }
    load = {"bodyBytes": 65536, "ratePerSecond": 200}
    wanted = experiment([fault], topic="lagging", load=load)
    outcome, said = cluster.run(wanted, tmp_path / "run")
    assert outcome.passed, (outcome, said)
    healed = evidence(tmp_path / "run", "heal")
    assert healed["f1"]["proof"]["LAG"] > 0
    assert healed["f1-slave"]["proof"]["K3"] == "SIGSTOP"
    assert healed["f1"]["issued_ns"][0] < healed["f1-slave"]["observed"]["accept_ns"]
    assert lost(tmp_path / "run") == 0


def test_a_group_is_scaled_there_and_back(cluster: LocalCluster, tmp_path: Path) -> None:
    fault = {
        "id": "f1",
        "fault": "scale-consumers",
        "at": 5,
        "target": {"group": "group-scaled"},
        "with": {"members": 3, "everySeconds": 20, "times": 2},
    }
    outcome, said = cluster.run(experiment([fault], topic="scaled"), tmp_path / "run")
    assert outcome.passed, (outcome, said)
    healed = evidence(tmp_path / "run", "heal")["f1"]
    assert healed["proof"]["LISTED"] == [3, 1, 3]
    assert healed["proof"]["K8"] is True
    kinds = [row["kind"] for row in rows(tmp_path / "run", "fault")]
    assert (kinds.count("CLIENT_START"), kinds.count("CLIENT_TERM")) == (4, 4)
    assert lost(tmp_path / "run") == 0


def test_the_store_of_a_broker_that_runs_is_not_written(cluster: LocalCluster) -> None:
    target = cluster.target()
    master = target.view().members[0]
    before = target.stat_store(master, "abort")
    with pytest.raises(TargetError, match=r"write abort of .*: it is "):
        target.write_store(master, "abort", None)
    assert target.stat_store(master, "abort") == before


@pytest.mark.soak
def test_what_was_done_on_the_slave_comes_again(cluster: LocalCluster, tmp_path: Path) -> None:
    fault = {
        "id": "f1",
        "fault": "long-outage",
        "at": 5,
        "target": {"pair": "demo-0", "group": "group-outage"},
        "with": {"downSeconds": 120, "startOwnersSeconds": 20, "minServed": 3000},
    }
    wanted = experiment(
        [fault],
        topic="outage",
        load={"ratePerSecond": 40, "preloadMessages": 40_000},
        group={"threads": 1, "pullThresholdForQueue": 64, "handler": {"meanMs": 5}},
        drain={"timeoutSeconds": 900, "quietSeconds": 5},
        recoverTimeoutSeconds=600,
    )
    run_dir = tmp_path / "run"
    outcome, said = cluster.run(wanted, run_dir)
    assert outcome.passed, (outcome, said)
    healed = evidence(run_dir, "heal")
    assert set(healed) == {"f1", "f1-consumers"}
    seen = healed["f1"]["observed"]
    started = [row for row in rows(run_dir, "fault") if row["kind"] == "CLIENT_START"]
    assert seen["accept_ns"] < seen["slave_sync_ns"]
    zero = json.loads((run_dir / "run.json").read_text())["zero"]["mono_ns"]
    assert started[0]["observed"] - zero > seen["slave_sync_ns"]
    served = healed["f1"]["served_by_slave"]["group-outage"]
    assert served >= 300
    assert duplicates(run_dir) >= served
