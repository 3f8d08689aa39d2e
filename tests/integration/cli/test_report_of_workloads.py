"""``failback report FOLDER`` on what ``failback workload`` leaves behind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import SCALE, wait_until
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)


def workload(cluster: ClusterProcesses, folder: Path, kind: str, *more: str) -> TestProcess:
    command = failback_command(
        "cli", "workload", kind, "-n", cluster.namesrv_addr, "--topic", "orders",
        "--hot", str(folder), *more,
    )  # fmt: skip
    return TestProcess(folder.name, command, folder.parent, environment=failback_environment())


def reported(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*failback_command("cli", "report", str(path), "--json")],
        capture_output=True,
        text=True,
        env=failback_environment(),
        timeout=120 * SCALE,
        check=False,
    )


def rows_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"orders") for path in folder.glob("*.fblog"))


@pytest.mark.soak
def test_a_member_that_is_killed_and_replaced(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        producer = workload(cluster, logs / "producer", "produce", "--rate", "200")
        first = workload(
            cluster, logs / "first", "consume", "--group", "billing",
            "--switch", "persist_offset_interval_ms=60000",
        )  # fmt: skip
        second = workload(cluster, logs / "second", "consume", "--group", "billing")
        processes = [producer, first, second]
        try:
            producer.start()
            first.start()
            wait_until(lambda: rows_in(logs / "first") > 200, "deliveries", 90)
            first.kill()
            second.start()
            # It gets the queues when the broker has missed the first, or a rebalance later.
            wait_until(lambda: rows_in(logs / "second") > 200, "deliveries", 90)
            assert producer.stop() == 0
            assert second.stop() == 0
        finally:
            for process in processes:
                process.dispose()
    before = {path: path.read_bytes() for path in logs.rglob("*.fblog")}
    done = reported(logs)
    assert done.returncode == 0, done.stderr
    assert "files of consume logs: all their processes are one run" in done.stderr
    (row,) = json.loads(done.stdout)
    assert row["verdict"] == "Observed"
    assert row["duplicates"] > 0
    assert set(row["causes"]) <= {"TAIL_CRASH", "OVERLAP"}
    report: dict[str, Any] = json.loads((logs / "report" / "report.json").read_text())
    assert report["source"]["deliver"] == "workload"
    assert {check["id"] for check in report["checks"]} <= {
        "recorder_complete", "evidence", "no_client_bug", "clock", "rows",
    }  # fmt: skip
    assert {path: path.read_bytes() for path in logs.rglob("*.fblog")} == before


def test_two_processes_of_one_number_are_told(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        for name in ("a", "b"):
            one = workload(
                cluster, logs / name, "produce", "--rate", "50", "--seconds", "1", "--proc-no", "7"
            )
            one.start()
            wait_until(lambda each=one: not each.alive, "its end")  # type: ignore[misc]
            one.dispose()
    done = reported(logs)
    assert done.returncode == 2
    assert "both have number 7: start each with its own --proc-no" in done.stderr


def test_a_folder_of_damaged_logs(tmp_path: Path) -> None:
    (tmp_path / "hot").mkdir()
    (tmp_path / "hot" / "a.fblog").write_bytes(b"no log")
    done = reported(tmp_path / "hot")
    assert done.returncode == 2
    assert "has no consume log with rows: consume log" in done.stderr
