"""Real clusters of Kafka and Redis: a kill, and a run that adds up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tools.setup_compare import ensure_kafka, ensure_redis

from failback.analytics.report.make_report import report_many
from failback.chaos.compare import redis_cluster
from failback.chaos.compare.run import run_setting
from failback.chaos.compare.settings import KAFKA, REDIS, Load, Setting, settings_of
from failback.common.files import read_object

pytestmark = pytest.mark.long
LIGHT = Load(preload=1200, per_second=40, handler_ms=4, before_kill_seconds=6)


def reported(setting: Setting, folder: Path) -> dict[str, Any]:
    run_setting(setting, folder, print)
    (made,) = report_many([folder], "local", pages=False)
    return read_object(made.json)


def checks(document: Mapping[str, Any], *names: str) -> list[str]:
    found = {check["id"]: check["value"] for check in document["checks"]}
    return [found[name] for name in names]


def test_kafka_with_defaults_repeats_nothing_in_stay_and_handover(tmp_path: Path) -> None:
    ensure_kafka()
    (setting,) = settings_of(KAFKA, "defaults")
    groups = tuple(each for each in setting.groups if each.label in ("stay", "handover"))
    document = reported(replace(setting, groups=groups, load=LIGHT), tmp_path / "run")
    assert document["verdict"]["value"] == "Pass", document["verdict"]
    assert document["totals"]["dup"] == 0
    assert checks(document, "fault_proved", "equation", "drained") == ["Pass"] * 3
    assert len(document["foreign"]["resumed"]) >= 4


@pytest.mark.soak
def test_a_redis_replica_that_was_cut_off_gives_entries_again(tmp_path: Path) -> None:
    ensure_redis()
    (setting,) = settings_of(REDIS, "lagging-replica")
    quick = replace(setting, load=LIGHT, cut_seconds=3, hold_seconds=10, stop_seconds=8)
    document = reported(quick, tmp_path / "run")
    assert document["totals"]["dup"] > 0
    assert all(row["causes"]["GROUP_WENT_BACK"] for row in document["groups"])
    assert not any(row["unattributed"] for row in document["groups"])
    assert checks(document, "fault_proved", "equation", "drained") == ["Pass"] * 3


def test_a_server_that_died_before_its_kill_makes_the_run_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_cluster.Cluster, "before_kill", lambda self, _tell: self.victim.end())
    ensure_redis()
    (setting,) = settings_of(REDIS, "defaults")
    quick = replace(setting, load=replace(LIGHT, before_kill_seconds=2))
    document = reported(quick, tmp_path / "run")
    codes = {reason["code"] for reason in document["verdict"]["reasons"]}
    assert document["verdict"]["value"] == "Inconclusive"
    assert {"FAULT_NOT_PROVED", "ABORTED"} <= codes
