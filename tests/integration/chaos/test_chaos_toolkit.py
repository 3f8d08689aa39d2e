"""What Chaos Toolkit 1.44 really does, because the package is shaped by it; and discovery."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.toolkit import actions, probes
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


def test_discovery_lists_every_action_and_probe() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "failback.chaos", "discover"],
        env={**os.environ, **failback_environment()},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    discovered = json.loads(done.stdout)
    names = {(each["type"], each["name"]) for each in discovered["activities"]}
    assert {("action", name) for name in actions.__all__} <= names
    assert {("probe", name) for name in probes.__all__} <= names
