"""Faults of the network on a cluster whose pods have namespaces of their own, at a tenth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.link import Cut
from failback.chaos.errors import GuardRefused
from failback.chaos.faults.cut_clients import FAULT as CLIENTS
from failback.chaos.faults.network_faults import late_ms, silent, what_is_cut
from failback.chaos.faults.undo import undo_open
from failback.chaos.run_folder.undo_ledger import UndoLedger
from failback.chaos.targets import local_network
from failback.operator.local.network import missing
from tests.support.chaos.chaos_lab import (
    LocalCluster,
    experiment,
    local_cluster,
    lost,
    network_rules,
    rows,
)
from tests.support.common.polling import wait_until
from tests.support.processes.child_process import failback_environment

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("isolated"), "--isolate-network") as cluster:
        yield cluster


def fault(name: str, at: float = 2, **parameters: Any) -> dict[str, Any]:
    fid = f"f{at:g}"
    return {"id": fid, "fault": name, "at": at, "target": {"pair": "demo-0"}, "with": parameters}


def evidence(run_dir: Path, phase: str) -> list[dict[str, Any]]:
    """The last evidence of every fault in a phase, in their order."""
    lines = map(json.loads, (run_dir / "evidence.jsonl").read_text().splitlines())
    return list({each["fid"]: each for each in lines if each["phase"] == phase}.values())


@pytest.mark.sample
def test_a_slave_that_is_cut_off_stands_still_and_catches_up(
    isolated: LocalCluster, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    wanted = experiment([fault("cut-replication", durationSeconds=50)], topic="replication")
    outcome, said = isolated.run(wanted, run_dir)
    assert outcome.passed, (outcome, said)
    (effect,), (heal,) = evidence(run_dir, "effect"), evidence(run_dir, "heal")
    assert "its slaves' stood still" in effect["proof"]["LINK"]
    assert (heal["proved"], heal["proof"]["K8"]) == (True, True)
    kinds = [row["kind"] for row in rows(run_dir, "fault")]
    assert [each for each in kinds if each in ("CUT", "JOIN", "RESUMED", "HEALED")] == [
        "CUT",
        "JOIN",
        "RESUMED",
        "HEALED",
    ]
    assert lost(run_dir) == 0
    assert network_rules(isolated) == ""


def test_each_side_of_a_broker_is_cut_by_itself(isolated: LocalCluster, tmp_path: Path) -> None:
    """The others go on: a broker without clients stays listed, one that is dropped answers."""
    faults = [
        fault("cut-clients", 2, durationSeconds=50),
        fault("cut-clients", 62, durationSeconds=50, mode="Reject", direction="In"),
        fault("cut-nameserver", 122, durationSeconds=50, side="Clients", direction="Out"),
        fault("cut-nameserver", 182, durationSeconds=160, direction="Out"),
    ]
    run_dir = tmp_path / "run"
    outcome, said = isolated.run(experiment(faults, topic="sides"), run_dir)
    assert outcome.passed, (outcome, said)
    assert [each["proof"]["LINK"] for each in evidence(run_dir, "effect")] == [
        "a client gets no answer, and every name server lists the broker",
        "a client gets no answer, and every name server lists the broker",
        "the broker answers a client, and no name server does",
        "the broker answers, and no name server lists it",
    ]
    healed = evidence(run_dir, "heal")
    assert [(each["proved"], each["proof"]["K8"]) for each in healed] == [(True, True)] * 4
    assert healed[0]["proof"]["K5"] == "SILENCE"
    assert healed[1]["proof"]["K5"] == "RST"
    assert lost(run_dir) == 0
    assert network_rules(isolated) == ""


def test_packets_are_lost_throttled_and_held_back(isolated: LocalCluster, tmp_path: Path) -> None:
    faults = [
        fault("cut-clients", 2, durationSeconds=80, lossRatio=0.3),
        fault("cut-replication", 102, durationSeconds=80, bytesPerSecond=4000),
        fault("cut-replication", 202, durationSeconds=90, delayMs=300),
        fault("cut-clients", 302, durationSeconds=90, delayMs=300),
    ]
    run_dir = tmp_path / "run"
    outcome, said = isolated.run(experiment(faults, topic="loss"), run_dir)
    assert outcome.passed, (outcome, said)
    links = [each["proof"]["LINK"] for each in evidence(run_dir, "effect")]
    assert all("were sent again" in each for each in links[:2])
    assert all("what was due at once came" in each for each in links[2:])
    assert [each["proved"] for each in evidence(run_dir, "heal")] == [True] * 4
    assert network_rules(isolated) == ""


@pytest.mark.soak
def test_an_nft_that_lies_is_found_out(
    isolated: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that the rules are in force, and does nothing: no fault is proved."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("nft", "iptables"):
        (programs / name).write_text("#!/bin/sh\ncat > /dev/null\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ.get('PATH', os.defpath)}")
    faults = [
        fault("cut-replication", 2, durationSeconds=40),
        fault("cut-clients", 52, durationSeconds=40),
        fault("cut-nameserver", 102, durationSeconds=40),
        fault("cut-nameserver", 152, durationSeconds=40, side="Clients"),
        fault("cut-clients", 202, durationSeconds=40, lossRatio=0.5),
        fault("cut-replication", 252, durationSeconds=40, delayMs=300),
        fault("cut-clients", 302, durationSeconds=40, delayMs=300),
    ]
    run_dir = tmp_path / "run"
    wanted = experiment(faults, topic="liar", onNotHonest="Continue")
    outcome, said = isolated.run(wanted, run_dir)
    assert outcome.verdict == "Inconclusive", (outcome, said)
    effects = evidence(run_dir, "effect")
    assert [(each["proved"], each["proof"]["LINK"]) for each in effects] == [(False, False)] * 7
    assert "the cut of demo-0-0-0 was not seen" in effects[0]["why"]


def test_a_cut_ends_by_itself_when_nobody_renews_it(
    isolated: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_network, "LIMIT_SECONDS", 2)
    target = isolated.target()
    address = target.view().members[0].address
    target.network.cut(address, Cut("clients"))
    assert silent(address)
    wait_until(lambda: not silent(address), "the end of the cut")
    assert network_rules(isolated) != ""  # the rules are there, and match nothing

    ledger = UndoLedger(tmp_path)
    assert CLIENTS.undo is not None
    args = {"pod": "demo-0-0-0", "link": "clients", "at": [address]}
    for _ in range(2):
        ledger.add(CLIENTS.undo.call, args, "f1")
        assert undo_open(ledger, target, seconds=20)["still_open"] == []
        assert network_rules(isolated) == ""
    assert what_is_cut(target.view(), target.view().members[0]) == ""
    target.close()


def test_a_delay_ends_with_its_harness(isolated: LocalCluster) -> None:
    """Even if that is killed: packets wait in a process that lives as long as it."""
    target = isolated.target()
    view = target.view()
    member, delay = view.members[0], Cut("clients", delay_ms=600)
    harness = (
        "import os, sys; from pathlib import Path;"
        "from failback.chaos.cluster.link import Cut;"
        "from failback.chaos.targets.local import ControlSocket, LocalTarget;"
        "target = LocalTarget(ControlSocket.of_root(Path(sys.argv[1])), 'demo');"
        "target.network.cut(sys.argv[2], Cut('clients', delay_ms=600)); sys.stdin.read(1);"
        "os.kill(os.getpid(), 9)"
    )
    words = [sys.executable, "-c", harness, str(isolated.root), member.address]
    environment = {**os.environ, **failback_environment()}
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment) as process:
        wait_until(lambda: late_ms(delay, view, member, (member.address,)) >= 600, "the delay")
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.close()
        process.wait()
    wait_until(lambda: late_ms(delay, view, member, (member.address,)) < 600, "its end")
    target.network.join(member.address, "clients")
    assert network_rules(isolated) == ""
    target.close()


def test_pods_of_one_network_are_not_cut(cluster: LocalCluster, tmp_path: Path) -> None:
    wanted = experiment([fault("cut-clients", durationSeconds=50)], topic="shared")
    with pytest.raises(GuardRefused, match="failback up FILE --isolate-network"):
        cluster.run(wanted, tmp_path / "run")
    assert not (tmp_path / "run" / "undo.jsonl").exists()
