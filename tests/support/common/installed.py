"""The wheel of this checkout, built and installed into an environment of its own, offline."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools.setup import requirements

ROOT = Path(__file__).parents[3]


def build_wheel(
    folder: Path, environment: Mapping[str, str] | None = None, root: Path = ROOT
) -> tuple[Path, str]:
    """Build the wheel of a checkout; return it, and what pip says with ``--verbose``."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-build-isolation"]
    command += ["--no-index", "--no-deps", "--wheel-dir", str(folder), str(root)]
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made, done.stdout + done.stderr


def needed_by(extra: str) -> Iterator[Distribution]:
    """The distributions that an extra of ours brings along, as they are installed here."""
    open_ = [Requirement(each) for each in requirements(extra)]
    seen: set[str] = set()
    while open_:
        wanted = open_.pop()
        if wanted.name in seen or (wanted.marker is not None and not wanted.marker.evaluate()):
            continue
        seen.add(wanted.name)
        found = distribution(wanted.name)
        yield found
        for text in found.requires or ():
            each = Requirement(text)
            extras = [{"extra": name} for name in (*wanted.extras, "")]
            if each.marker is None or any(each.marker.evaluate(name) for name in extras):
                each.marker = None
                open_.append(each)


class Installed:
    """An environment with the wheel and what one of its extras needs, and nothing else."""

    def __init__(self, folder: Path, wheel: Path, extra: str = "demo") -> None:
        self._folder = folder
        self._bin = folder / "venv" / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
        )
        site = next((folder / "venv" / "lib").glob("python*/site-packages"))
        for each in needed_by(extra):
            self._link(each, site)
        pip = [sys.executable, "-m", "pip", "--python", str(self._bin / "python")]
        options = ["--quiet", "--no-index", "--no-deps"]
        subprocess.run([*pip, "install", *options, str(wheel)], check=True)

    @staticmethod
    def _link(found: Distribution, site: Path) -> None:
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(found.locate_file(name))))

    def run(self, *words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, outside of the checkout."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        return subprocess.run(
            [str(self._bin / words[0]), *words[1:]],
            cwd=self._folder,
            env={**kept, "PATH": f"{self._bin}:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
