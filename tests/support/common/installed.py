"""The wheel of this checkout, built and installed into an environment of its own, offline."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def build_wheel(folder: Path, environment: Mapping[str, str] | None = None) -> tuple[Path, str]:
    """Build the wheel; return it, and what pip says with ``--verbose``."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-build-isolation"]
    command += ["--no-index", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
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


class Installed:
    """An environment with the wheel, and with everything else that this one has."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self._folder = folder
        self._bin = folder / "venv" / "bin"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
        )
        # A path in a .pth file is not searched for further .pth files, so not for our checkout.
        site = next((folder / "venv" / "lib").glob("python*/site-packages"))
        (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", str(self._bin / "python")]
        options = ["--quiet", "--no-index", "--no-deps", "--ignore-installed"]
        subprocess.run([*pip, "install", *options, str(wheel)], check=True)

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
