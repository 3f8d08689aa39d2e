"""Faults of the clock, the files and the disk of a real broker: seen by it, and gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster import probe
from failback.chaos.cluster.broker_clock import clock_shift_ms
from failback.chaos.cluster.view import Member
from failback.chaos.faults.limit_memory import memory_group
from failback.operator.local import disks
from tests.support.chaos.chaos_lab import (
    RESOURCES,
    TIME_SCALE,
    LocalCluster,
    duplicates,
    evidence,
    experiment,
    lost,
    running_cluster,
)
from tests.support.common.polling import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")

MASTER = {"pair": "demo-0", "role": "Master"}
SYNC = "slaveReadEnable: true\n  flushDiskType: SYNC_FLUSH"
SOAK = pytest.mark.soak
CASES = [
    ("clock-skew", {"offsetSeconds": -120}),
    pytest.param("clock-skew", {"offsetSeconds": 0, "driftRatio": 0.2}, marks=SOAK),
    ("disk-full", {}),
    ("slow-disk", {}),
    ("file-errors", {"operation": "Rename", "error": "EIO"}),
    pytest.param("file-errors", {"operation": "Open", "error": "ENOSPC"}, marks=SOAK),
    pytest.param("file-errors", {"operation": "Sync"}, marks=SOAK),
    ("disk-read-only", {}),
    ("throttle-disk", {}),
    ("limit-memory", {}),
]


@pytest.fixture(scope="module")
def changeable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A pair whose master syncs before it answers, and what is around it can be changed."""
    resources = RESOURCES.replace("SCALE", str(TIME_SCALE)).replace("slaveReadEnable: true", SYNC)
    folder = tmp_path_factory.mktemp("changeable")
    with running_cluster(folder, resources, "--faults", "clock,files,disk,memory") as cluster:
        yield cluster
    assert str(folder) not in Path("/proc/self/mounts").read_text()


def master(cluster: LocalCluster) -> Member:
    return next(each for each in cluster.target().view().members if each.role == "master")


def assert_nothing_is_left(cluster: LocalCluster) -> None:
    member = master(cluster)
    store = Path(member.store).resolve()
    assert abs(clock_shift_ms(member.address)) < 1_000  # a step is two minutes
    assert not (store / disks.FILLER).exists()
    assert not disks.has_failed(store)
    assert probe.send(member.address) >= 0
    assert not list(cluster.root.rglob(f"{member.pod}/**/hold"))
    group = memory_group(cluster.target().identity(member).pid)
    assert group is not None
    assert group.limit is None


@pytest.mark.parametrize(("fault", "parameters"), CASES)
def test_the_broker_shows_the_fault_and_its_end(
    changeable: LocalCluster, tmp_path: Path, fault: str, parameters: dict[str, Any]
) -> None:
    plan = {
        "id": "f1",
        "fault": fault,
        "at": 2,
        "target": MASTER,
        "with": {**parameters, "durationSeconds": 20},
    }
    topic = "-".join([fault, *(str(each) for each in parameters.values())]).replace(".", "")
    outcome, said = changeable.run(experiment([plan], topic=topic), tmp_path / "run")
    assert outcome.passed, (outcome, said)
    effect = evidence(tmp_path / "run", "effect")["f1"]
    assert effect["proved"] is True
    assert effect["proof"]["EFFECT"]
    assert evidence(tmp_path / "run", "heal")["f1"]["proof"]["K8"] is True
    assert lost(tmp_path / "run") == 0
    if fault in ("clock-skew", "disk-full"):
        assert duplicates(tmp_path / "run") == 0
    assert_nothing_is_left(changeable)


def test_a_fault_ends_by_itself_when_nobody_renews_it(changeable: LocalCluster) -> None:
    """As the harness dies: its target sets a fault and never asks again."""
    pod = master(changeable).pod
    store = Path(master(changeable).store).resolve()
    changeable.call("fault", pod=pod, fault="disk-full", value={"ratio": 0.95})
    changeable.call("fault", pod=pod, fault="clock", value={"seconds": 60})
    assert (store / disks.FILLER).exists()
    assert clock_shift_ms(master(changeable).address) > 59_000
    changeable.call("limit", pod=pod, seconds=0.5)
    wait_until(lambda: not (store / disks.FILLER).exists(), "the room is free")
    assert abs(clock_shift_ms(master(changeable).address)) < 1_000
    changeable.call("fault", pod=pod, fault="read-only")
    assert disks.has_failed(store)
    changeable.call("limit", pod=pod, seconds=0.5)
    wait_until(lambda: not disks.has_failed(store), "the disk is mounted again")
    wait_until(lambda: changeable.state(pod) == "Ready", "the broker runs again")
    assert_nothing_is_left(changeable)
