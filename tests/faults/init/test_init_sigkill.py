"""SIGKILL of child and init at seeded instants, and the init as PID 1 of a namespace."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.common.polling import wait_until
from tests.support.processes.init_lab import INIT, InitLab, ended, gone, said

SEED = int(os.environ.get("FAILBACK_KILL_SEED", "20"))
KILLS = 12
IN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a PID namespace needs root"
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[InitLab]:
    made = InitLab(tmp_path)
    yield made
    made.end()


def test_every_kill_is_recorded_whenever_it_comes(lab: InitLab) -> None:
    instants = random.Random(SEED)
    killed = []
    for n in range(1, KILLS + 1):
        process = lab.start("sleep", "600")
        child = lab.child()
        time.sleep(instants.uniform(0, 0.05))
        expected = f"{child['pid']}:{child['ticks']}"
        assert lab.call("kill", "9", "--expect", expected, "--by", f"kill {n}").returncode == 0
        assert ended(process) == 137, f"FAILBACK_KILL_SEED={SEED}, kill {n}"
        killed.append((n, child["pid"], child["ticks"], f"kill {n}"))
    found = [
        (death["n"], death["pid"], death["ticks"], death["sent_by"]["by"]) for death in lab.deaths()
    ]
    assert found == killed
    assert {death["signal"] for death in lab.deaths()} == {9}


@pytest.mark.sample
def test_a_killed_init_takes_its_child_along(lab: InitLab) -> None:
    instants = random.Random(SEED)
    for _ in range(KILLS):
        process = lab.start("sleep", "600")
        wait_until((lab.run_dir / "child.json").exists, "the child's record")
        time.sleep(instants.uniform(0, 0.05))
        process.kill()
        ended(process)
        record = json.loads((lab.run_dir / "child.json").read_text())
        wait_until(partial(gone, record["pid"]), "the child dies with its init")
        (lab.run_dir / "child.json").unlink()
    assert lab.deaths() == [], "nobody was there to see these deaths"


def in_namespace_of(process: subprocess.Popen[str], *words: str) -> list[str]:
    """Return a command that runs in the namespaces of the init, as exec in a container does."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
        inside = file.read().split()[0]
    return ["nsenter", "--target", inside, "--pid", "--mount", "--", *INIT, *words]


@needs_root
def test_as_pid_1_it_reaps_kills_and_dies_with_the_childs_code(lab: InitLab) -> None:
    script = "(sh -c 'echo orphan $$' &) ; echo started; exec sleep 600"
    process = lab.start("sh", "-c", script, before=IN_NAMESPACE)
    said(process, "started")

    def inside(*words: str) -> subprocess.CompletedProcess[str]:
        command = in_namespace_of(process, *words)
        return subprocess.run(
            command, env=lab.environment, capture_output=True, text=True, timeout=60, check=False
        )

    child = json.loads(inside("status", "--json").stdout)["child"]
    assert child["init"]["pid"] == 1
    assert child["pid"] != 1
    listing = "ps -o pid=,stat= --ppid 1"
    command = [*in_namespace_of(process)[: -len(INIT)], "sh", "-c", listing]

    def children() -> list[str]:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return [line.split()[0] for line in shown.stdout.splitlines()]

    wait_until(lambda: children() == [str(child["pid"])], "the orphan is reaped by PID 1")

    outside = lab.call("kill", "9")
    assert outside.returncode == 4, "pids of another namespace are other processes"
    assert "another PID namespace" in outside.stderr
    # PID 1 ends with its child, and who asked may end with its namespace before it has said so.
    assert inside("kill", "9", "--by", "exec").returncode in (0, -signal.SIGKILL)
    assert ended(process) == 137
    (death,) = lab.deaths()
    assert (death["pid"], death["signal"], death["sent_by"]["by"]) == (child["pid"], 9, "exec")


@needs_root
def test_pid_1_passes_sigterm_on_and_the_kernel_ends_the_rest(lab: InitLab) -> None:
    script = "setsid sleep 600 & trap 'exit 6' TERM; echo started; while :; do sleep 0.05; done"
    process = lab.start("sh", "-c", script, before=IN_NAMESPACE)
    said(process, "started")
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
        os.kill(int(file.read().split()[0]), signal.SIGTERM)
    assert ended(process) == 6
    assert process.stdout is not None
    assert process.stdout.read() == "", "a process that is left would keep the pipe open"
    (death,) = lab.deaths()
    assert (death["code"], death["sent_by"]["from_pid"]) == (6, 0)
