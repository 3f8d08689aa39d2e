"""What the process that starts a run may do to a folder, and what it makes of the run's words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from failback.chaos.errors import ExitCode, GuardRefused, NotHealed, RunFolderError, TargetError
from failback.chaos.faults.catalogue import load_experiment
from failback.chaos.run.outcome import RunOutcome, describe_error, outcome_of
from failback.chaos.run.run import run_arm
from failback.chaos.run_folder.run_folder import RunFolder
from failback.chaos.targets.location import Location
from failback.protocol.errors import ConfigError, FailbackError

EXPERIMENT = Path(__file__).parent / "data" / "kill-then-restart.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    found = RunFolder(tmp_path / "run")
    found.create()
    found.write_bytes("experiment.yaml", b"as it was run")
    return found


def start(folder: RunFolder, root: Path) -> None:
    experiment = load_experiment(EXPERIMENT)
    where = Location(root=str(root))
    run_arm(experiment, experiment.arms[0].name, location=where, run_dir=folder.path)


def test_a_finished_run_is_not_written_over(folder: RunFolder, tmp_path: Path) -> None:
    folder.write_json("closed.json", {})
    folder.write_manifest()
    with pytest.raises(ConfigError, match="holds a finished run"):
        start(folder, tmp_path)
    assert (folder.path / "experiment.yaml").read_bytes() == b"as it was run"


def test_a_run_under_way_is_not_written_over(folder: RunFolder, tmp_path: Path) -> None:
    folder.open()
    with pytest.raises(RunFolderError, match="in use by"):
        start(folder, tmp_path)
    assert (folder.path / "experiment.yaml").read_bytes() == b"as it was run"
    folder.release()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("spec.seed", "must be a number"), ExitCode.BAD_INPUT),
        (GuardRefused("ClusterReady", "demo-0-0 is not running"), ExitCode.GUARD_REFUSED),
        (NotHealed(["a held broker"], "failback experiment heal x"), ExitCode.NOT_HEALED),
        (TargetError("view of demo", "nobody answers"), ExitCode.INCONCLUSIVE),
    ],
)
def test_an_error_is_the_same_on_both_sides_of_the_pipe(
    error: FailbackError, code: ExitCode, tmp_path: Path
) -> None:
    document, exit_code = describe_error(error)
    assert exit_code is code
    with pytest.raises(type(error)) as raised:
        outcome_of(json.loads(json.dumps({"error": document})), tmp_path)
    assert str(raised.value) == str(error)


def test_an_outcome_is_the_same_on_both_sides_of_the_pipe(tmp_path: Path) -> None:
    sent = RunOutcome("r", str(tmp_path), "stay", 1, "Pass", 0, faults=[{"fid": "f1"}])
    reply = {"outcome": dataclasses.asdict(sent), "exit_code": 0}
    assert outcome_of(json.loads(json.dumps(reply)), tmp_path) == sent


def test_a_run_that_ends_without_a_word_is_inconclusive(tmp_path: Path) -> None:
    found = outcome_of({"exit_code": -9}, tmp_path)
    assert (found.passed, found.exit_code) == (False, ExitCode.INCONCLUSIVE)
    assert "the harness ended with -9" in found.message
