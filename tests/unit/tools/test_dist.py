"""What `make dist` gives to others beside the wheel: chart, SBOM, checksums."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from tools import dist

from tests.support.carry.stopped_master import StoppedMaster


def test_the_archive_holds_the_chart_and_is_the_same_each_time(tmp_path: Path) -> None:
    made = dist.make_chart(tmp_path)
    before = made.read_bytes()
    with tarfile.open(made) as archive:
        packed = {
            entry.name: archive.extractfile(entry).read()  # type: ignore[union-attr]
            for entry in archive.getmembers()
        }
    listed = subprocess.run(
        ["git", "ls-files", "charts/failback"],
        cwd=dist.ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert packed == {
        file.removeprefix("charts/"): (dist.ROOT / file).read_bytes() for file in listed
    }
    assert dist.make_chart(tmp_path).read_bytes() == before


def test_what_helm_ignores_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chart = tmp_path / "failback"
    (chart / "templates").mkdir(parents=True)
    for name in (".helmignore", "Chart.yaml", "templates/a.yaml", "templates/a.yaml.orig"):
        (chart / name).write_text("*.orig\n*.swp\n")
    monkeypatch.setattr(dist, "CHART", chart)
    with tarfile.open(dist.make_chart(tmp_path)) as archive:
        assert archive.getnames() == [
            "failback/.helmignore",
            "failback/Chart.yaml",
            "failback/templates/a.yaml",
        ]


@pytest.mark.full
def test_the_sbom_names_what_is_installed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    installed = [distribution(name) for name in ("msgspec", "typer", "javaproperties")]
    for each in installed:
        folder = Path(str(each.locate_file(f"{each.name}-{each.version}.dist-info")))
        shutil.copytree(folder, site / folder.name)
    made = dist.make_sbom(tmp_path, tmp_path / "venv" / "bin" / "python")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made.read_text()) is None
    found = json.loads(made.read_text())["components"]
    listed = {(each["name"], each["version"], each["purl"]) for each in found}
    assert listed == {
        (each.name, each.version, f"pkg:pypi/{each.name}@{each.version}") for each in installed
    }


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    files = [tmp_path / "b.whl", tmp_path / "a.tgz"]
    for file in files:
        file.write_bytes(file.name.encode())
    dist.write_sums(tmp_path, files)
    done = subprocess.run(
        ["sha256sum", "--check", dist.SUMS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "a.tgz: OK\nb.whl: OK\n"


def test_the_carry_in_one_file_runs_by_itself(tmp_path: Path) -> None:
    master = StoppedMaster(tmp_path / "master", brokerRole="SLAVE")
    command = [sys.executable, "-I", str(dist.make_carry(tmp_path)), "--conf", str(master.conf)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "carry: nothing to carry: this broker is a slave\n"
    bare = subprocess.run(
        [command[0], "-S", *command[1:]], capture_output=True, text=True, check=False
    )
    assert "is missing: pip install msgspec javaproperties" in bare.stderr
