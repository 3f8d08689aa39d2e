"""The runner of the tiers: what it selects, and its second try, with real runs of pytest."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pytest", "tests", "-q"]
PASSES = "def test_steady():\n    pass\n"
UNSTEADY = """
import pathlib
import pytest

@pytest.mark.parametrize("which", ["a/b.c"])
def test_unsteady(which):
    mark = pathlib.Path(__file__).with_name("seen")
    before = mark.exists()
    mark.touch()
    assert before
"""


@pytest.fixture(scope="module")
def runner() -> ModuleType:
    path = Path(__file__).parents[3] / "tools" / "run_tests.py"
    spec = importlib.util.spec_from_file_location("run_tests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass asks for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of its own, with a test that passes."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (tmp_path / "tests" / "test_steady.py").write_text(PASSES)
    return tmp_path


def test_what_passes_is_not_run_again(runner: ModuleType, folder: Path) -> None:
    result = runner.run_with_second_try("kube", COMMAND, runner.Runner(folder))
    assert (result.passed, result.unsteady) == (True, {})


@pytest.mark.sample
def test_what_fails_once_is_named_with_its_failure(
    runner: ModuleType, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "tests" / "test_unsteady.py").write_text(UNSTEADY)
    named = "tests/test_unsteady.py::test_unsteady[a/b.c]"
    result = runner.run_with_second_try("kube", COMMAND, runner.Runner(folder))
    assert result.passed
    assert list(result.unsteady) == [named]
    assert "1 failed, 1 passed" in (printed := capfd.readouterr().out)
    assert "kube, once more" in printed
    lines = runner.table({"kube": result}).splitlines()
    assert lines[0].split()[:2] == ["kube", "passed"]
    assert lines[1] == f"UNSTEADY: kube: {named} passed when it ran again; first failure:"
    assert any("assert before" in line for line in lines[2:])


def test_what_fails_twice_has_failed(runner: ModuleType, folder: Path) -> None:
    (folder / "tests" / "test_wrong.py").write_text("def test_wrong():\n    assert False\n")
    assert not runner.run_with_second_try("kube", COMMAND, runner.Runner(folder)).passed


def test_many_failures_are_not_tried_again(runner: ModuleType, folder: Path) -> None:
    for number in range(runner.FEW + 1):
        (folder / "tests" / f"test_{number}.py").write_text(
            UNSTEADY.replace('"seen"', f'"seen-{number}"')
        )
    assert not runner.run_with_second_try("kube", COMMAND, runner.Runner(folder)).passed


def test_a_run_that_collects_nothing_has_failed(runner: ModuleType, folder: Path) -> None:
    (folder / "tests" / "test_broken.py").write_text("import nothing_of_this_name\n")
    (folder / "tests" / "test_steady.py").unlink()
    assert not runner.run_with_second_try("kube", COMMAND, runner.Runner(folder)).passed


def test_the_sample_and_the_rest_are_all(runner: ModuleType) -> None:
    """Of one tier, collected for real; the expressions are the same for every tier but unit."""
    found = {part: collected(runner.pytest("images", part)) for part in runner.PARTS}
    assert found["sample"] & found["rest"] == set()
    assert found["sample"] | found["rest"] == found["all"]
    assert found["sample"]
    assert found["rest"]


@pytest.mark.soak
def test_the_sample_and_the_rest_of_unit_share_only_properties(runner: ModuleType) -> None:
    paths = ["tests/unit/store", "tests/unit/collector/test_stream_sizes.py"]
    paths.append("tests/unit/analytics/test_page_sizes.py")
    found = {part: collected(runner.pytest("unit", part, paths)) for part in runner.PARTS}
    sampled = [*COMMAND[:3], *paths, "-q", "-m", "hypothesis and not foreign and not soak"]
    assert found["sample"] & found["rest"] == collected(sampled)
    assert found["sample"] | found["rest"] == found["all"]
    assert found["sample"]
    assert found["rest"]


@pytest.mark.parametrize("is_built", [True, False])
def test_every_tier_runs_wholly_in_the_two_halves(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_built: bool
) -> None:
    """Where the API server is not built before ``make test``, the rest has the whole tier."""
    monkeypatch.setattr(runner.setup_kube, "is_ready", lambda: is_built)
    monkeypatch.setattr(runner, "SAMPLED", tmp_path / "sampled")
    monkeypatch.delenv("FAILBACK_SUMMARY", raising=False)
    passed = runner.Result(True)
    monkeypatch.setattr(runner, "run_tier", lambda *_: passed)
    monkeypatch.setattr(runner.Runner, "run", lambda *_: True)
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--sample"])
    assert runner.main() == 0
    sampled = runner.tiers_of("sample")
    assert set(runner.SAMPLED.read_text().split()) >= set(sampled)
    for name in runner.WHOLE:
        halves = {runner.part_of(name, "rest")} if name in runner.tiers_of("rest") else set()
        if name in sampled:
            halves.add(runner.part_of(name, "sample"))
        assert halves == {"all"} or halves == {"sample", "rest"}, name
    assert runner.part_of("kube", "rest") == ("rest" if is_built else "all")


def test_a_tier_that_computes_runs_beside_the_others_and_prints_as_a_whole(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The tier that waits ends only when the other has begun, and the other when that has."""
    begun, ended = Event(), Event()

    def run_tier(name: str, part: str, arguments: list[str], how: Any) -> object:
        how.run(name, ["echo", f"{name} has begun"])
        if name == "unit":
            begun.set()
            assert ended.wait(20)
            how.run(name, ["echo", "it goes on"])
        if name == "integration":
            assert begun.wait(20)
            assert "=== unit" not in capfd.readouterr().out
            ended.set()
        return runner.Result(name != "unit")

    monkeypatch.setattr(runner, "run_tier", run_tier)
    results = runner.Run("all", []).run(["lint", "unit", "integration"])
    assert {name: result.passed for name, result in results.items()} == {
        "lint": True,
        "integration": True,
        "unit": False,
    }
    shown = capfd.readouterr().out
    assert re.search(r"=== unit: .*unit has begun\n.*=== unit: .*it goes on\n", shown, re.DOTALL)


def test_the_lane_that_waits_helps_the_one_that_computes(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unit ends only when spark has begun, so the lane of kube must have taken it."""
    begun = Event()

    def run_tier(name: str, part: str, arguments: list[str], how: Any) -> object:
        if name == "unit":
            assert begun.wait(20)
        if name == "spark":
            begun.set()
        return runner.Result(True)

    monkeypatch.setattr(runner, "run_tier", run_tier)
    monkeypatch.setattr(runner.Runner, "run", lambda *_: True)
    results = runner.Run("all", []).run(["lint", "unit", "spark", "kube"])
    assert set(results) - {"setup_kube.py"} == {"lint", "unit", "spark", "kube"}
    assert all(result.passed for result in results.values())


def test_every_folder_with_tests_is_a_tier(runner: ModuleType) -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    together = runner.TIERS["processes"].folders
    assert folders == set(runner.TIERS) - {"processes"}
    assert sorted(folders) == sorted([*together, *runner.WHOLE[1:]])


def test_tiers_of_processes_share_their_workers(runner: ModuleType) -> None:
    command = runner.pytest("processes", "sample")
    assert command[3:6] == ["tests/java", "tests/faults", "tests/integration"]
    assert command.count("-n") == 1


@pytest.mark.parametrize("part", ["sample", "rest", "all", ""])
def test_minutes_stand_beside_their_budget(runner: ModuleType, part: str) -> None:
    line = runner.together(part, 426.0)
    assert line.split()[:5] == ["together", "426", "s", "7.1", "min"]
    assert ("budget" in line) == bool(part)


def test_the_server_is_not_selected_where_it_is_not_built(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner.setup_kube, "is_ready", lambda: False)
    assert set(runner.tiers_of("all")) - set(runner.tiers_of("sample")) == {"kube"}


def test_arguments_go_to_pytest_and_a_path_takes_the_folders_place(runner: ModuleType) -> None:
    assert "tests/kube" in runner.pytest("kube", "all", ["-k", "crds"])
    command = runner.pytest("kube", "all", ["tests/kube/test_crds.py"])
    assert "tests/kube" not in command
    assert command[-1] == "tests/kube/test_crds.py"


def test_pure_modules_exist(runner: ModuleType) -> None:
    assert [path for path in runner.PURE if not (TESTS.parent / path).exists()] == []


def collected(command: list[str]) -> set[str]:
    """Return the names of the tests that a command selects."""
    done = subprocess.run(
        [*command, "--collect-only"], cwd=TESTS.parent, capture_output=True, text=True, check=True
    )
    return {line for line in done.stdout.splitlines() if "::" in line}
