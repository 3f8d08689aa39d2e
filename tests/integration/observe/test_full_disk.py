"""An observer whose disk takes no more: it says so, goes on looking, and keeps what it had."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
from pathlib import Path

from tests.integration.observe.test_observing import commit, looks, observer, prepared
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import SCALE, wait_until
from tests.support.processes.child_process import failback_command, failback_environment

FULL = 4096
"""Bytes of a file, as a limit of the process: what a full disk refuses, this one does as well."""


async def test_looks_that_a_full_disk_refuses_are_a_gap(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        await prepared(cluster)
        await commit(cluster, 100)
        run = tmp_path / "run"
        watching = observer(cluster, run)
        try:
            watching.start()
            watching.wait_for("observing broker-a-0")
            before = resource.prlimit(watching.pid, resource.RLIMIT_FSIZE, (FULL, -1))
            watching.wait_for("looks go on and are not kept until it can be written again")
            known = looks(run)
            assert len(b"\n".join(known)) <= FULL
            await commit(cluster, 900)
            await asyncio.sleep(3)  # more than a few looks: fewer are no gap
            resource.prlimit(watching.pid, resource.RLIMIT_FSIZE, before)
            watching.wait_for("looks are kept again; those between are a gap")
            wait_until(lambda: len(looks(run)) > len(known) + 2, "further looks")
            assert watching.stop() == 0
        finally:
            watching.dispose()
    said = "\n".join(watching.lines())
    assert f"{run}: file too large: looks go on" in said
    assert looks(run)[: len(known)] == known
    assert b'"0":900' in looks(run)[len(known)]  # tables are whole again
    observation = json.loads((run / "report" / "report.json").read_text())["observation"]
    assert [each["what"] for each in observation["gaps"]] == ["the observer did not look"]


def test_a_run_that_can_not_begin_names_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "run-%F"
    done = subprocess.run(
        ["prlimit", "--fsize=0", *failback_command(
            "cli", "observe", "-n", "127.0.0.1:1", "--out", str(out)
        )],
        capture_output=True, text=True, env=failback_environment(),
        timeout=60 * SCALE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / "run-2") in line
    assert "file too large" in line.lower()
