"""Run folder and lease: one owner, whole files, a manifest that binds them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from failback.chaos.errors import GuardRefused, NotHealed, RunFolderError
from failback.chaos.faults.broker_faults import RELEASE
from failback.chaos.run_folder.run_folder import ClusterLease, FolderState, RunFolder
from failback.chaos.run_folder.undo_ledger import UndoLedger


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return folder


def close(folder: RunFolder) -> None:
    folder.write_json("closed.json", {"drained": True})
    folder.write_manifest()


def test_a_folder_is_open_then_closed(folder: RunFolder) -> None:
    folder.open()
    assert folder.state() is FolderState.OPEN
    assert RunFolder(folder.path).state() is FolderState.OPEN
    with pytest.raises(RunFolderError, match="in use by"):
        RunFolder(folder.path).open()
    close(folder)
    folder.release()
    assert folder.state() is FolderState.CLOSED
    assert not (folder.path / "lock").exists()


def test_a_killed_owner_leaves_an_orphan(folder: RunFolder) -> None:
    code = (
        "import sys, time; from pathlib import Path; "
        "from failback.chaos.run_folder.run_folder import *; "
        "f = RunFolder(Path(sys.argv[1])); f.open(); print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder.path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        assert folder.state() is FolderState.OPEN
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert folder.state() is FolderState.ORPHANED
    folder.open()
    folder.release()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="cannot be created"):
        RunFolder(tmp_path / "file" / "run").create()


def test_the_manifest_covers_all_but_itself_and_the_report(folder: RunFolder) -> None:
    folder.open()
    folder.write_bytes("lake/table=x/part.parquet", b"rows")
    folder.write_bytes("report/report.json", b"{}")
    digest = folder.write_manifest({"lake/table=x/part.parquet": 7})
    manifest = folder.read_json("manifest.json")
    assert set(manifest["files"]) == {"lake/table=x/part.parquet"}
    entry = manifest["files"]["lake/table=x/part.parquet"]
    sha256 = hashlib.sha256(b"rows").hexdigest()
    assert entry == {"bytes": 4, "sha256": sha256, "rows": 7}
    line = f"{sha256}  lake/table=x/part.parquet\n"
    assert digest == manifest["run_sha256"] == hashlib.sha256(line.encode()).hexdigest()
    folder.release()


def test_files_appear_whole(folder: RunFolder) -> None:
    folder.write_json("run.json", {"run": "r"})
    folder.write_json("run.json", {"run": "s"})
    assert json.loads((folder.path / "run.json").read_text()) == {"run": "s"}
    assert [each.name for each in folder.path.iterdir() if each.is_file()] == ["run.json"]


def test_an_abort_is_seen_by_its_reason(folder: RunFolder) -> None:
    assert folder.abort_reason() == ""
    folder.ask_to_abort("by the operator")
    assert folder.abort_reason() == "by the operator"


def test_a_second_experiment_on_a_cluster_is_refused(tmp_path: Path) -> None:
    first, second = ClusterLease(tmp_path, "demo"), ClusterLease(tmp_path, "demo")
    first.take(tmp_path / "one")
    with pytest.raises(GuardRefused, match=r"OneExperiment: demo is in use by .*/one"):
        second.take(tmp_path / "two")
    ClusterLease(tmp_path, "other").take(tmp_path / "three")
    first.give_back(healed=True)
    second.take(tmp_path / "two")
    second.give_back(healed=True)


def test_the_lease_stays_with_a_run_that_is_not_healed(tmp_path: Path) -> None:
    broken = RunFolder(tmp_path / "broken")
    broken.create()
    UndoLedger(broken.path).add(RELEASE, {"pod": "a"}, "f1")
    lease = ClusterLease(tmp_path, "demo")
    lease.take(broken.path)
    lease.give_back(healed=False)
    with pytest.raises(
        NotHealed, match=r"release .*'pod': 'a'.*failback experiment heal .*/broken"
    ):
        ClusterLease(tmp_path, "demo").take(tmp_path / "next")
    healing = ClusterLease(tmp_path, "demo")
    healing.take(broken.path, healing=True)
    healing.give_back(healed=True)
    after = ClusterLease(tmp_path, "demo")
    after.take(tmp_path / "next")
    after.give_back(healed=True)
