"""A compaction that is killed between any two of its steps loses no row and counts none twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from failback.analytics.lake.catalogue import CLOSED, Catalogue, StoredCatalogue
from failback.analytics.lake.compact import compact_run
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.lake import Lake, open_lake
from failback.analytics.lake.store import open_store
from failback.client.consumelog.upload.sealing import Shipper
from tests.support.analytics.collector_lab import RUN, write_log
from tests.support.common.polling import SCALE
from tests.support.processes.child_process import failback_environment

# Dies by SIGKILL before its n-th change of the lake; with "half" after it wrote, before the rename.
_DYING = """
import os, signal, sys
from failback.analytics.lake import store as lake_store
from failback.cli.measure.lake import main
lake, step, half = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "half"
done = 0
def counted(name):
    changes = getattr(lake_store.LakeStore, name)
    def call(store, *given):
        global done
        done += 1
        if done == step and not (half and name == "write"):
            os.kill(os.getpid(), signal.SIGKILL)
        changes(store, *given)
    setattr(lake_store.LakeStore, name, call)
counted("write"); counted("delete")
place = lake_store.place
def dying(content, hidden, path):
    if done == step:
        hidden.write_bytes(bytes(content)[:-1])
        os.kill(os.getpid(), signal.SIGKILL)
    place(content, hidden, path)
lake_store.place = dying
code = main(["compact", lake])
print(done)
sys.exit(code)
"""


def compact_until(lake: Path, step: int, how: str = "whole") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _DYING, str(lake), str(step), how],
        env={**os.environ, **failback_environment()},
        capture_output=True,
        text=True,
        timeout=120 * SCALE,
        check=False,
    )


def content(lake: Lake) -> dict[str, list[object]]:
    keys = [("proc_no", "ascending"), ("seq", "ascending")]
    return {table: lake.read(table).sort_by(keys).to_pylist() for table in sorted(lake.parts)}


def test_every_row_is_there_once_after_a_kill_at_any_step(tmp_path: Path) -> None:
    write_log(tmp_path / "hot", deliveries=24)
    Shipper(tmp_path / "hot", tmp_path / "lake").seal_all(final=True)
    whole = tmp_path / "lake"
    check_run(open_store(whole), Catalogue(whole), RUN, 1)
    Catalogue(whole).mark(RUN, CLOSED).write_text('{"procs": {}}')
    truth = content(open_lake(whole, RUN))
    ids = {entry.id for entry in Catalogue(whole).entries(RUN)}
    rehearsal = tmp_path / "rehearsal"
    shutil.copytree(whole, rehearsal)
    done = compact_until(rehearsal, 0)
    steps = int(done.stdout.splitlines()[-1])
    assert steps >= 2 + 1 + 4  # two merged files, the catalogue, two old files of each
    for step in range(1, steps + 1):
        for how in ("whole", "half") if step <= 2 else ("whole",):
            lake = tmp_path / f"killed-{step}-{how}"
            shutil.copytree(whole, lake)
            killed = compact_until(lake, step, how)
            assert killed.returncode == -signal.SIGKILL, killed.stderr
            assert content(open_lake(lake, RUN)) == truth, (step, how)
            store = open_store(lake)
            compact_run(store, RUN, 5)
            found = open_lake(store, RUN)
            assert content(found) == truth, (step, how)
            assert {entry.id for entry in StoredCatalogue(store).entries(RUN)} == ids
            files = {str(p.relative_to(lake)) for p in lake.glob("table=*/date=*/run=*/*")}
            assert files == {part.name for parts in found.parts.values() for part in parts}
            shutil.rmtree(lake)
