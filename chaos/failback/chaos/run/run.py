"""Run one repetition of one arm, in a process of its own.

Chaos Toolkit keeps module-level state and signal handlers, and arms may run side by side. This
module starts that process and passes on what it says; :mod:`failback.chaos.run.repetition` is what
the process does.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from failback.chaos.experiment.generate import run_folder_name
from failback.chaos.experiment.spec import ChaosExperiment
from failback.chaos.run.outcome import RunOutcome, outcome_of
from failback.chaos.run_folder.run_folder import RunFolder
from failback.chaos.session import Progress
from failback.chaos.targets.location import Location


def run_arm(
    experiment: ChaosExperiment,
    arm: str,
    repetition: int = 0,
    *,
    location: Location,
    run_dir: Path | None = None,
    runs: Path | None = None,
    progress_address: str = "",
    progress: Progress = lambda _: None,
) -> RunOutcome:
    """Run one repetition in a process of its own and wait for it.

    Args:
        experiment: From ``load_experiment``.
        arm: Name of the arm.
        repetition: From 0.
        location: Where the cluster is.
        run_dir: The run folder; made if absent. Default: ``runs/<experiment>/<arm>-<repetition>``.
        runs: Folder of all runs, when ``run_dir`` is not given; ``runs`` by default.
        progress_address: ``host:port`` at which the run answers ``GET /run``; empty for nowhere.
        progress: Called with one line of text at a time.

    Raises:
        ConfigError: The experiment does not fit this cluster; nothing was injected.
        GuardRefused: A guard said no; nothing was injected.
        NotHealed: An earlier run must be healed first.
        RunFolderError: Another run uses the folder.
    """
    resolved = experiment.arm(arm)
    folder = (
        run_dir or default_run_dir(runs or Path("runs"), experiment, arm, repetition)
    ).absolute()
    RunFolder(folder).require_free()
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "experiment.yaml"
    source.write_text(experiment.source, encoding="utf-8")
    command = [
        *(sys.executable, "-m", "failback.chaos", "run-arm", str(source)),
        *("--arm", resolved.name, "--repetition", str(repetition)),
        *("--seed", str(experiment.seed)),
        *("--time-scale", repr(experiment.spec.time_scale)),
        *("--run-dir", str(folder), "--location", location.to_json()),
    ]
    if progress_address:
        command += ["--progress-address", progress_address]
    reply = _supervise(command, folder, progress)
    return outcome_of(reply, folder)


def _supervise(command: Sequence[str], folder: Path, progress: Progress) -> dict[str, Any]:
    """Start the run's process, pass its lines on, forward Ctrl-C as SIGTERM."""
    (folder / "logs").mkdir(exist_ok=True)
    with (folder / "logs" / "harness.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    reply: dict[str, Any] = {}
    assert process.stdout is not None
    with process.stdout as lines, _terminated_as_interrupted():
        while True:
            try:
                for line in lines:
                    document = _json_line(line)
                    if "progress" in document:
                        progress(str(document["progress"]))
                    elif document:
                        reply = document
                break
            except KeyboardInterrupt:
                progress("stopping: undoing what was done")
                process.send_signal(signal.SIGTERM)
    reply.setdefault("exit_code", process.wait())
    return reply


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM like Ctrl-C: a container's stop is passed on to the run, which undoes and ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _json_line(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def default_run_dir(runs: Path, experiment: ChaosExperiment, arm: str, repetition: int) -> Path:
    return runs / experiment.name / run_folder_name(arm, repetition)
