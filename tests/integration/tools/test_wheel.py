"""The wheel: everything that is needed is in it, with kernels where there is a compiler."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tools import setup_plotly

from failback.analytics.report.page import plotly_bundle
from tests.support.common.installed import ROOT, Installed, build_wheel

DISCOVER = """
from chaoslib.discovery.discover import discover
found = discover("failback.chaos", download_and_install=False)
print([each["name"] for each in found["activities"]])
"""
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


def test_a_fresh_checkout_packs_the_small_script_of_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pip install .`` where nothing was set up fetches it, as npm does with its settings."""
    if not (setup_plotly.FOLDER / plotly_bundle.NAME).exists():
        pytest.skip("tools/setup_plotly.py could not fetch the script")
    with registry(tmp_path / "registry") as (url, digest):
        checkout = fresh_checkout(tmp_path / "checkout")
        script = checkout / "tools" / "setup_plotly.py"
        script.write_text(script.read_text().replace(setup_plotly.INTEGRITY, digest))
        settings = tmp_path / "npmrc"
        settings.write_text(f"registry={url}\n")
        environment = {"FAILBACK_KERNELS": "off", "npm_config_userconfig": str(settings)}
        if shutil.which("npm"):
            monkeypatch.delenv("npm_config_registry", raising=False)
        else:
            environment["npm_config_registry"] = url
        wheel, said = build_wheel(tmp_path, environment, checkout)
    assert "pages carry the whole of plotly.js" not in said
    with zipfile.ZipFile(wheel) as opened:
        packed = opened.getinfo(f"failback/analytics/report/page/plotly/{plotly_bundle.NAME}")
    assert 500_000 < packed.file_size < 1_300_000


@contextmanager
def registry(folder: Path) -> Iterator[tuple[str, str]]:
    """A registry of npm on loopback that has the script that is here: its URL, and the hash."""
    name, version = setup_plotly.PACKAGE, setup_plotly.VERSION
    archive = folder / name / "-" / f"{name}-{version}.tgz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as packed:
        for member, file in setup_plotly.FILES.items():
            packed.add(setup_plotly.FOLDER / file, member)
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        about = {
            "name": name,
            "version": version,
            "dist": {"tarball": f"{url}/{name}/-/{archive.name}", "integrity": f"sha512-{digest}"},
        }
        document = {"name": name, "dist-tags": {"latest": version}, "versions": {version: about}}
        (folder / name / "index.html").write_text(json.dumps(document))
        Thread(target=server.serve_forever, daemon=True).start()
        yield url, digest
        server.shutdown()


def fresh_checkout(folder: Path) -> Path:
    """A copy of the files that the repository has, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


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
        (["python", "-c", DISCOVER], "kill_broker"),
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
