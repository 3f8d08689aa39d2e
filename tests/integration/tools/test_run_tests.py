"""The second try of a test tier, with real pytest runs over folders of their own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "pytest", "tests", "-q"]
PASSES = "def test_steady():\n    pass\n"
UNSTEADY = """
import pathlib

def test_unsteady():
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
    assert runner.run_with_second_try("kube", COMMAND, folder) == (True, [])


def test_what_fails_once_is_named(
    runner: ModuleType, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "tests" / "test_unsteady.py").write_text(UNSTEADY)
    named = ["tests/test_unsteady.py::test_unsteady"]
    assert runner.run_with_second_try("kube", COMMAND, folder) == (True, named)
    assert "1 failed, 1 passed" in (printed := capfd.readouterr().out)
    assert "kube, once more" in printed


def test_what_fails_twice_has_failed(runner: ModuleType, folder: Path) -> None:
    (folder / "tests" / "test_wrong.py").write_text("def test_wrong():\n    assert False\n")
    assert runner.run_with_second_try("kube", COMMAND, folder) == (False, [])


def test_many_failures_are_not_tried_again(runner: ModuleType, folder: Path) -> None:
    for number in range(runner.FEW + 1):
        (folder / "tests" / f"test_{number}.py").write_text(
            UNSTEADY.replace('"seen"', f'"seen-{number}"')
        )
    assert runner.run_with_second_try("kube", COMMAND, folder) == (False, [])


def test_a_run_that_collects_nothing_has_failed(runner: ModuleType, folder: Path) -> None:
    (folder / "tests" / "test_broken.py").write_text("import nothing_of_this_name\n")
    (folder / "tests" / "test_steady.py").unlink()
    assert runner.run_with_second_try("kube", COMMAND, folder) == (False, [])
