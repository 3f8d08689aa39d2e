"""Undoing from the ledger: concrete, repeatable, and open until somebody saw it healed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from failback.chaos.cluster import processes
from failback.chaos.cluster.view import ProcessIdentity, ProcessState, SignalReceipt
from failback.chaos.faults.broker_faults import RELEASE
from failback.chaos.faults.kill_consumer import START_CONSUMERS
from failback.chaos.faults.pause import CONTINUE
from failback.chaos.faults.undo import undo_open
from failback.chaos.run_folder.undo_ledger import (
    STOP_WORKLOAD,
    UndoLedger,
)
from tests.support.chaos.fake_target import FakeTarget
from tests.support.common.polling import wait_until


class HostTarget(FakeTarget):
    """A target whose victims are processes of this host."""

    def process_state(self, victim: ProcessIdentity) -> ProcessState:
        return processes.state_of(victim.pid, victim.ticks)

    def signal(self, victim: ProcessIdentity, signum: int) -> SignalReceipt:
        return processes.send_signal(victim.pid, victim.ticks, signum)


@pytest.fixture
def ledger(tmp_path: Path) -> UndoLedger:
    return UndoLedger(tmp_path)


@pytest.fixture
def child() -> Iterator[tuple[int, int]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        ticks = processes.read_ticks(process.pid)
        assert ticks is not None
        yield process.pid, ticks
        process.kill()


def test_a_held_broker_is_released_and_seen(ledger: UndoLedger) -> None:
    target = FakeTarget()
    target.hold(target.members[0], "u1")
    ledger.add(RELEASE, {"pod": "demo-0-0"}, "f1")
    assert undo_open(ledger, target, seconds=0) == {"undone": ["u0001"], "still_open": []}
    assert ("release", "demo-0-0") in target.calls
    assert ledger.open_entries() == []


def test_a_broker_that_does_not_come_back_stays_open(ledger: UndoLedger) -> None:
    target = FakeTarget()
    target.replace_member(0, running=False, identity=None)
    ledger.add(RELEASE, {"pod": "demo-0-0"}, "f1")
    result = undo_open(ledger, target, seconds=0)
    assert result["still_open"] == [
        "release (pod demo-0-0): undone, but not yet seen healed",
    ]
    assert ledger.open_entries()[0].undone


def test_a_stopped_process_is_continued_twice_without_harm(
    ledger: UndoLedger, child: tuple[int, int]
) -> None:
    pid, ticks = child
    processes.send_signal(pid, ticks, signal.SIGSTOP)
    wait_until(lambda: processes.state_of(pid, ticks) is ProcessState.STOPPED, "stopped")
    for _ in range(2):
        ledger.add(CONTINUE, {"pod": "p", "pid": pid, "ticks": ticks}, "f1")
        assert undo_open(ledger, HostTarget(), seconds=10)["still_open"] == []
    assert processes.state_of(pid, ticks) is not ProcessState.STOPPED


def test_a_stranger_with_the_pid_is_left_alone(ledger: UndoLedger, child: tuple[int, int]) -> None:
    pid, ticks = child
    processes.send_signal(pid, ticks, signal.SIGSTOP)
    wait_until(lambda: processes.state_of(pid, ticks) is ProcessState.STOPPED, "stopped")
    ledger.add(CONTINUE, {"pod": "p", "pid": pid, "ticks": ticks + 1}, "f1")
    assert undo_open(ledger, HostTarget(), seconds=0)["still_open"] == []
    assert processes.state_of(pid, ticks) is ProcessState.STOPPED


def test_newest_first_and_faults_only(ledger: UndoLedger, tmp_path: Path) -> None:
    target = FakeTarget()
    ledger.add(STOP_WORKLOAD, {"plan": str(tmp_path / "p.json"), "socket": str(tmp_path / "s")})
    ledger.add(RELEASE, {"pod": "demo-0-0"}, "f1")
    ledger.add(START_CONSUMERS, {"members": [["g", 0]]}, "f2")
    result = undo_open(ledger, target, seconds=0, faults_only=True)
    assert result["undone"] == ["u0003", "u0002"]
    assert [entry.call for entry in ledger.open_entries()] == [STOP_WORKLOAD]
    assert undo_open(ledger, target, seconds=0)["still_open"] == []


def test_an_unknown_pod_is_named_and_tried_again(ledger: UndoLedger) -> None:
    target = FakeTarget()
    ledger.add(RELEASE, {"pod": "gone-0"}, "f1")
    said: list[str] = []
    result = undo_open(ledger, target, seconds=0.05, tell=said.append)
    assert "gone-0: not part of the cluster" in result["still_open"][0]
    assert said
    target.members = (*target.members, replace(target.members[0], ordinal=2, pod="gone-0"))
    assert undo_open(ledger, target, seconds=0)["still_open"] == []
