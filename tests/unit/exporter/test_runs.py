"""Run folders as metrics, written as the harness and the reports write them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.core import Metric

from failback.analytics.exporter.runs import RunWatch, open_faults
from failback.chaos.cluster.processes import read_ticks
from failback.chaos.run_folder.run_folder import RunFolder
from failback.chaos.run_folder.undo_ledger import STOP_WORKLOAD, UndoLedger


def shown(root: Path, watch: RunWatch | None = None) -> dict[str, list[dict[str, str]]]:
    metrics: list[Metric] = list((watch or RunWatch(root)).collect())
    return {
        sample.name: [each.labels for each in metric.samples if each.name == sample.name]
        for metric in metrics
        for sample in metric.samples
    }


def values(watch: RunWatch, name: str) -> dict[str, float]:
    return {
        sample.labels["cause"]: sample.value
        for metric in watch.collect()
        for sample in metric.samples
        if sample.name == name
    }


def run_folder(root: Path, name: str = "r1") -> Path:
    folder = root / name
    RunFolder(folder).create()
    run = {"schema": "failback.run/1", "run": name, "experiment": "kill", "arm": "stay"}
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "target.json").write_text(json.dumps({"cluster": "demo"}))
    return folder


def report(folder: Path, **changes: Any) -> None:
    document = {
        "run": folder.name,
        "experiment": "kill",
        "arm": "stay",
        "engine": "local",
        "system": {"cluster": "demo"},
        "verdict": {"value": "Pass"},
        "queues": [{"group": "g", "topic": "T", "broker": "b"}],
        "groups": [
            {
                "group": "g",
                "topic": "T",
                "delivered": 100,
                "wasted_seconds": 1.5,
                "report_groups": {"rollback": 7, "retry": 2},
            }
        ],
        "rto": [
            {"broker": "b", "phases": {"kill": 10**9, "accept": 4 * 10**9, "registered": None}}
        ],
        "timings": {"total": 0.4},
        **changes,
    }
    (folder / "report").mkdir(exist_ok=True)
    (folder / "report" / "report.json").write_text(json.dumps(document))


def test_a_run_is_active_while_its_process_holds_the_lock(tmp_path: Path) -> None:
    folder = RunFolder(run_folder(tmp_path))
    folder.open()
    assert shown(tmp_path)["failback_run_active"] == [
        {"run": "r1", "experiment": "kill", "cluster": "demo"}
    ]
    note = {"pid": os.getpid(), "ticks": (read_ticks(os.getpid()) or 0) + 1}
    (tmp_path / "r1" / "lock").write_text(json.dumps(note))
    assert "failback_run_active" not in shown(tmp_path), "another process has that pid now"
    folder.release()


def test_a_run_of_another_machine_is_active_while_its_files_change(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    (folder / "lock").write_text(json.dumps({"pid": 1, "ticks": 1, "space": "another/pid:[1]"}))
    assert "failback_run_active" in shown(tmp_path)
    for path in folder.rglob("*"):
        os.utime(path, (5, 5))
    assert "failback_run_active" not in shown(tmp_path)


@pytest.mark.parametrize("line", ["5", "[]", "{}", '{"call": "release"}', '{"healed": 1}'])
def test_a_line_that_is_no_entry_of_a_ledger_is_passed_over(line: str, tmp_path: Path) -> None:
    ledger = UndoLedger(run_folder(tmp_path))
    ledger.add("release", {"pod": "demo-0-0"}, fid="f1")
    with (tmp_path / "r1" / "undo.jsonl").open("a") as file:
        file.write(f"{line}\n")
    assert [each["fault"] for each in shown(tmp_path)["failback_fault_active"]] == ["f1"]


@pytest.mark.parametrize(
    "change",
    [{"verdict": "Pass"}, {"queues": [{"group": "g"}]}, {"groups": [{}]}, {"rto": [1]},
     {"timings": [1]}, {"groups": 3}],
)  # fmt: skip
def test_a_report_of_another_shape_hides_no_other(change: dict[str, Any], tmp_path: Path) -> None:
    report(run_folder(tmp_path))
    report(run_folder(tmp_path, "r2"), **change)
    watch = RunWatch(tmp_path)
    name = "rocketmq_reconsumed_messages_total"
    assert values(watch, name) == {"rollback": 7, "retry": 2}, "all of a report or nothing"
    assert values(watch, name) == {"rollback": 7, "retry": 2}
    report(tmp_path / "r2")
    os.utime(tmp_path / "r2" / "report" / "report.json", ns=(5, 5))
    assert values(watch, name) == {"rollback": 14, "retry": 4}, "made again it counts"


def test_a_fault_is_active_until_it_was_seen_healed(tmp_path: Path) -> None:
    ledger = UndoLedger(run_folder(tmp_path))
    ledger.add(STOP_WORKLOAD, {"pid": 1})
    entry = ledger.add("release", {"pod": "demo-0-0"}, fid="f1")
    assert shown(tmp_path)["failback_fault_active"] == [
        {"fault": "f1", "target": "demo-0-0", "run": "r1"}
    ]
    ledger.mark_undone(entry)
    assert "failback_fault_active" in shown(tmp_path), "undone is not healed"
    ledger.mark_healed(entry, {"seen": True})
    assert "failback_fault_active" not in shown(tmp_path)


def test_a_torn_ledger_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "undo.jsonl"
    path.write_text('{"id":"u1","call":"release","args":{"pid":7},"fid":"f"}\n{"id":"u1","hea')
    assert open_faults(path) == {("f", "7")}


def test_reports_are_counted_once_each(tmp_path: Path) -> None:
    watch = RunWatch(tmp_path)
    report(run_folder(tmp_path))
    name = "rocketmq_reconsumed_messages_total"
    assert values(watch, name) == {"rollback": 7, "retry": 2}
    report(tmp_path / "r1")
    os.utime(tmp_path / "r1" / "report" / "report.json", ns=(5, 5))
    assert values(watch, name) == {"rollback": 7, "retry": 2}, "the same run reported again"
    report(run_folder(tmp_path, "r2"), verdict={"value": "Fail"})
    assert values(watch, name) == {"rollback": 14, "retry": 4}
    found = shown(tmp_path, watch)
    assert [labels["verdict"] for labels in found["failback_run_verdict"]] == ["Pass", "Fail"]
    assert found["rocketmq_failover_phase_seconds_sum"] == [
        {"cluster": "demo", "broker": "b", "phase": "accept"}
    ]
    assert found["failback_report_seconds_count"] == [{"engine": "local", "stage": "total"}]


def test_nonsense_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    (folder / "report").mkdir()
    (folder / "report" / "report.json").write_text("[1")
    (folder / "lock").write_text("no json")
    assert "failback_run_active" not in shown(tmp_path)
