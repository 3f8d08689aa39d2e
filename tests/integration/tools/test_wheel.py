"""The wheel: everything that is needed is in it, with kernels where there is a compiler."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.common.installed import ROOT, Installed, build_wheel

FOLDERS = ("operator", "broker-image", "chaos", "analytics")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, built: tuple[Path, str]) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), built[0])


def test_every_file_of_the_packages_is_in_it(built: tuple[Path, str]) -> None:
    listed = subprocess.run(
        ["git", "ls-files", *(f"{folder}/failback" for folder in FOLDERS)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    wanted = {line.partition("/")[2] for line in listed}
    with zipfile.ZipFile(built[0]) as wheel:
        packed = set(wheel.namelist())
    assert len(wanted) > 500
    assert sorted(wanted - packed) == []


def test_kernels_are_in_it_where_there_is_a_compiler(built: tuple[Path, str]) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    with zipfile.ZipFile(built[0]) as wheel:
        (kernels,) = (name for name in wheel.namelist() if "/_native" in name)
    assert kernels.startswith("failback/broker/_native.")
    assert "none-any" not in built[0].name
    assert "compiled kernels: _native." in built[1]


def test_without_a_compiler_it_fits_every_machine_and_says_so(tmp_path: Path) -> None:
    wheel, said = build_wheel(tmp_path, {"CC": "/bin/false"})
    assert wheel.name.endswith("-py3-none-any.whl")
    assert "the broker runs without compiled kernels: the compiler refused them" in said
    with zipfile.ZipFile(wheel) as opened:
        assert [name for name in opened.namelist() if "_native" in name] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["failback", "--version"], "0.2"),
        (["failback", "--help"], "demo"),
        (["failback", "experiment", "check", "failback-demo"], "handover"),
        (["failback", "predict", "failback-demo"], "EXPECTED"),
        (["failback", "report", "--schema"], "failback.report/1"),
        (["failback", "up", "--help"], "Usage"),
        (["failback-init", "--help"], ""),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_commands_work_outside_of_the_checkout(
    installed: Installed, words: list[str], told: str
) -> None:
    done = installed.run(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert told in done.stdout


def test_what_runs_is_the_wheel_and_not_the_checkout(installed: Installed) -> None:
    program = "import failback.cli, failback.broker.native as n; print(failback.cli.__file__)"
    done = installed.run("python", "-c", program)
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stdout
