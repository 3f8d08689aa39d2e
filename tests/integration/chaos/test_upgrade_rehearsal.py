"""The upgrade rehearsal of the library: a gate that a broker with a seeded regression misses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from failback.analytics.report.make_report import report_many
from failback.chaos.faults.catalogue import load_experiment
from failback.cli.shared.bundled import bundled_paths
from tests.support.chaos.chaos_lab import TIME_SCALE, LocalCluster, local_cluster
from tests.support.processes.child_process import failback_environment

LOWERED = 50
REGRESSION = f"""
from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager

load = ConsumerOffsetManager.load


def load_lower(self):
    load(self)
    for queues in self.table.values():
        for queue in list(queues):
            queues[queue] = max(0, queues[queue] - {LOWERED})


ConsumerOffsetManager.load = load_lower
"""
"""What a broker runs that takes less from its file than was in it."""


def _with_path(folder: Path) -> dict[str, str]:
    known = failback_environment()
    return {**known, "PYTHONPATH": os.pathsep.join([str(folder), known["PYTHONPATH"]])}


def rehearsed(cluster: LocalCluster, folder: Path) -> tuple[str, int]:
    """The verdict of the report, and how much was re-consumed."""
    plan = load_experiment(bundled_paths()["upgrade-rehearsal"]).with_time_scale(TIME_SCALE)
    outcome, said = cluster.run(plan, folder / "run", arm="restart")
    assert outcome.passed, (outcome, said)
    (made,) = report_many([folder / "run"], "local")
    report = json.loads(made.json.read_bytes())
    return report["verdict"]["value"], report["totals"]["dup"]


@pytest.mark.soak  # docs/experiments.md has its real runs
def test_a_pair_that_keeps_its_offsets_passes(cluster: LocalCluster, tmp_path: Path) -> None:
    assert rehearsed(cluster, tmp_path) == ("Pass", 0)


def test_a_broker_that_lowers_offsets_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded = tmp_path / "seeded"
    seeded.mkdir()
    (seeded / "sitecustomize.py").write_text(REGRESSION)
    with monkeypatch.context() as patched:
        patched.setattr(
            "tests.support.chaos.chaos_lab.failback_environment",
            lambda: _with_path(seeded),
        )
        with local_cluster(tmp_path / "lowering") as cluster:
            verdict, again = rehearsed(cluster, tmp_path)
    assert verdict == "Fail"
    assert again == 4 * LOWERED
