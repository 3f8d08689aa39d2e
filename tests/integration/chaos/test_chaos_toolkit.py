"""What Chaos Toolkit 1.44 really does, because the package is shaped by it; and discovery."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from failback.chaos import __version__
from failback.chaos.run_folder.run_folder import FolderState, RunFolder
from failback.chaos.toolkit import actions, probes
from tests.support.chaos.chaos_lab import LocalCluster, evidence, experiment, lost
from tests.support.processes.child_process import failback_environment

LAB = """
import os, signal, sys, time
from chaoslib.exceptions import ActivityFailed, InterruptExecution

calls = []

def fail():
    raise ActivityFailed("no")

def interrupt():
    raise InterruptExecution("from inside an action")

def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)

def sigusr2():
    os.kill(os.getpid(), signal.SIGUSR2)

def note(name):
    calls.append(name)

def before_experiment_control(context, **kwargs):
    if "--fail-open" in sys.argv:
        raise ValueError("cannot open")
    if "--interrupt-open" in sys.argv:
        raise InterruptExecution("cannot open")

def after_activity_control(context, state, **kwargs):
    if "--stopping" in sys.argv and state["status"] == "failed":
        raise InterruptExecution("stop")
"""

MAIN = """
import json, sys
import lab
from chaoslib.experiment import run_experiment

def action(func, **arguments):
    provider = {"type": "python", "module": "lab", "func": func, "arguments": arguments}
    return {"type": "action", "name": func, "provider": provider}

journal = run_experiment(
    {
        "title": "t",
        "description": "d",
        "controls": [{"name": "c", "provider": {"type": "python", "module": "lab"}}],
        "method": [
            action(sys.argv[1], **({"name": "first"} if sys.argv[1] == "note" else {})),
            action("note", name="next"),
        ],
        "rollbacks": [action("note", name="rollback")],
    },
    settings={"runtime": {"rollbacks": {"strategy": "always"}}},
)
print(json.dumps([journal["status"], journal["deviated"], lab.calls]))
"""

Run = Callable[..., list[Any]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run an experiment of one action and a next one; returns status, deviated, notes."""
    (tmp_path / "lab.py").write_text(LAB)
    (tmp_path / "main.py").write_text(MAIN)

    def run_it(*arguments: str) -> list[Any]:
        done = subprocess.run(
            [sys.executable, str(tmp_path / "main.py"), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer: list[Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    return run_it


@pytest.mark.sample
def test_a_failed_action_alone_stops_nothing(run: Run) -> None:
    assert run("fail") == ["completed", False, ["next", "rollback"]]


def test_an_interruption_inside_an_action_is_only_a_failure(run: Run) -> None:
    assert run("interrupt") == ["completed", False, ["next", "rollback"]]


def test_a_sigterm_only_fails_the_action_under_way(run: Run) -> None:
    assert run("sigterm") == ["completed", False, ["next", "rollback"]]


@pytest.mark.parametrize("how", ["fail", "interrupt", "sigterm"])
def test_a_control_that_interrupts_stops_the_method_and_rolls_back(run: Run, how: str) -> None:
    assert run(how, "--stopping") == ["interrupted", False, ["rollback"]]


def test_sigusr2_skips_the_rollbacks(run: Run) -> None:
    assert run("sigusr2") == ["interrupted", False, []]


def test_only_an_interruption_in_the_first_control_stops_the_run(run: Run) -> None:
    assert run("note", "--fail-open")[0] != "interrupted"
    assert run("note", "--interrupt-open")[0] == "interrupted"


def test_discovery_lists_every_action_and_probe(tmp_path: Path) -> None:
    assert "CRITICAL" not in chaos(tmp_path, "discover", "--no-install", "failback.chaos")
    assert version("failback.chaos") == __version__ == version("failback")
    discovered = json.loads((tmp_path / "discovery.json").read_text())
    names = {(each["type"], each["name"]) for each in discovered["activities"]}
    assert {("action", name) for name in actions.__all__} <= names
    assert {("probe", name) for name in probes.__all__} <= names


def test_chaos_run_repeats_an_earlier_run(cluster: LocalCluster, tmp_path: Path) -> None:
    """Its experiment.json, changed by hand: the run is a new one, with folder and lease."""
    kill = {"id": "f1", "fault": "kill", "at": 2, "target": {"pair": "demo-0"}}
    kill |= {"with": {"downSeconds": 20}}
    outcome, said = cluster.run(experiment([kill], topic="twice"), tmp_path / "run")
    assert outcome.passed, said
    document = json.loads((tmp_path / "run/experiment.json").read_text())
    (action,) = (each for each in document["method"] if each["name"] == "f1-kill")
    action["provider"]["arguments"]["down_seconds"] = 40
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    assert "semantic look valid" in chaos(tmp_path, "validate", changed)
    before = (tmp_path / "run/outcome.json").read_bytes()
    told = chaos(tmp_path, "run", changed)
    again = tmp_path / "run-again-1"
    assert f"{again} Pass" in told, told
    assert (tmp_path / "run/outcome.json").read_bytes() == before
    assert json.loads((tmp_path / "journal.json").read_text())["status"] == "completed"
    assert evidence(again, "heal")["f1"]["down_seconds"] > 3.9
    assert RunFolder(again).state() is FolderState.CLOSED
    assert lost(again) == 0
    shutil.rmtree(tmp_path / "run")
    told = chaos(tmp_path, "run", changed, code=1)
    assert "is no folder of an earlier run: use failback experiment run" in told


def chaos(folder: Path, *words: str | Path, code: int = 0) -> str:
    done = subprocess.run(
        [Path(sys.executable).parent / "chaos", *words],
        cwd=folder,
        env={**os.environ, **failback_environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout
