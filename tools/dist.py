"""Make what is given to others, in dist/: ``python tools/dist.py``, which is ``make dist``.

    failback-VERSION-py3-none-any.whl      for every machine, without compiled kernels
    failback-VERSION-cp311-...-linux.whl   the same with kernels for this Python and machine
    failback-VERSION.tgz                   the chart, as ``helm package`` makes it
    failback-carry.pyz                     `failback carry` in one file, for hosts of brokers
    failback-VERSION.cdx.json              SBOM (CycloneDX) of the wheel with its extra `demo`
    SHA256SUMS                             for ``sha256sum --check``

The second is missing where there is no C compiler, and that is said. What else is in dist/ stays.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipapp
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.build_images import source_date, version  # noqa: E402 - a script sees tools/ only
from tools.build_native import CannotBuild, build  # noqa: E402

DIST = ROOT / "dist"
CHART = ROOT / "charts" / "failback"
SUMS = "SHA256SUMS"
CARRY_PARTS = ("carry", "client", "protocol", "common")
CARRY_START = """import sys

try:
    from failback.carry.command import main
except ModuleNotFoundError as error:
    sys.exit(f"error: {error.name} is missing: pip install msgspec javaproperties")
sys.exit(main())
"""


def make_wheel(folder: Path, *, kernels: bool) -> Path:
    """Build a wheel into ``folder``."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": source_date()}
    environment["FAILBACK_KERNELS"] = "on" if kernels else "off"
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        command += ["--constraint", str(ROOT / "constraints.txt")]
        command += ["--no-deps", "--wheel-dir", scratch, str(ROOT)]
        subprocess.run(command, env=environment, check=True)
        (made,) = Path(scratch).glob("*.whl")
        target = folder / made.name
        target.write_bytes(made.read_bytes())
    return target


def make_chart(folder: Path) -> Path:
    """Pack the chart; equal files give equal bytes."""
    target = folder / f"failback-{version()}.tgz"
    ignored = (CHART / ".helmignore").read_text(encoding="utf-8").split()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(CHART.rglob("*")):
            if path.is_file() and not any(path.match(pattern) for pattern in ignored):
                entry = tarfile.TarInfo(f"{CHART.name}/{path.relative_to(CHART).as_posix()}")
                content = path.read_bytes()
                entry.size, entry.mtime, entry.mode = len(content), int(source_date()), 0o644
                archive.addfile(entry, io.BytesIO(content))
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return target


def make_carry(folder: Path) -> Path:
    """Pack ``failback carry`` as one file. Its Python must have msgspec and javaproperties."""
    target = folder / "failback-carry.pyz"
    with tempfile.TemporaryDirectory() as scratch:
        for name in CARRY_PARTS:
            shutil.copytree(
                ROOT / "broker-image" / "failback" / name,
                Path(scratch) / "failback" / name,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        Path(scratch, "__main__.py").write_text(CARRY_START, encoding="utf-8")
        zipapp.create_archive(scratch, target, "/usr/bin/env python3", compressed=True)
    return target


def make_environment(folder: Path, wheel: Path) -> Path:
    """Install the wheel and what the demo needs, by hashes; return the environment's Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-compile"]
    needs = ROOT / "requirements" / "demo.txt"
    subprocess.run([*pip, "--require-hashes", "--requirement", str(needs)], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    return python


def make_sbom(folder: Path, python: Path) -> Path:
    """List what is installed for a Python, with licences and what needs what."""
    target = folder / f"failback-{version()}.cdx.json"
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
    command += ["--output-file", str(target), str(python)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": source_date()}
    subprocess.run(command, env=environment, check=True)
    return target


def write_sums(folder: Path, files: list[Path]) -> Path:
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)
    ]
    target = folder / SUMS
    target.write_text("".join(lines), encoding="ascii")
    return target


def main() -> int:
    DIST.mkdir(exist_ok=True)
    files = [make_wheel(DIST, kernels=False), make_chart(DIST), make_carry(DIST)]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            build(Path(scratch))
        except CannotBuild as reason:
            print(f"dist: no wheel with compiled kernels: {reason}", file=sys.stderr)
        else:
            files.append(make_wheel(DIST, kernels=True))
        files.append(make_sbom(DIST, make_environment(Path(scratch) / "demo", files[0])))
    for made in (*sorted(files), write_sums(DIST, files)):
        print(f"dist: {made.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
