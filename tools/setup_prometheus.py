"""Get Prometheus and promtool for the tests: ``python tools/setup_prometheus.py``.

Both are taken out of Debian's package ``prometheus`` into ``~/.cache/failback/prometheus`` and
stay; what is on the path already is used as it is. The package is not installed, because then it
would start a server of its own. Uses the standard library only; tests import the functions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ("prometheus", "promtool")
_HINT = "missing: prometheus. Install it: apt-get install prometheus"

sys.path.insert(0, str(ROOT))
from tools.setup import SetupError  # noqa: E402 - a script sees tools/ only
from tools.setup_kube import cache_folder, locked, run, say  # noqa: E402


def ensure_prometheus() -> Path:
    """Return the folder that has both programs, fetched when they were missing.

    Raises:
        SetupError: They are not there and cannot be fetched; the message says what to install.
    """
    found = [shutil.which(name) for name in PROGRAMS]
    if all(found):
        return Path(found[0] or "").parent
    folder = cache_folder() / "prometheus"
    if _has_all(folder):
        return folder
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SetupError(_HINT)
    with locked("prometheus"):
        if not _has_all(folder):
            say("fetching Prometheus from Debian")
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
                _unpack(_download(Path(scratch)), Path(scratch), folder)
    return folder


def _has_all(folder: Path) -> bool:
    return all((folder / name).exists() for name in PROGRAMS)


def _download(scratch: Path) -> Path:
    """Return the package's file. Lists of packages are fetched only when there are none."""
    scratch.chmod(0o755)  # apt fetches as a user of its own
    try:
        run(["apt-get", "download", "-qq", "prometheus"], folder=scratch)
    except SetupError:
        if os.geteuid() != 0:
            raise SetupError(_HINT) from None
        run(["apt-get", "update", "-qq"], folder=scratch)
        run(["apt-get", "download", "-qq", "prometheus"], folder=scratch)
    return next(scratch.glob("prometheus_*.deb"))


def _unpack(package: Path, scratch: Path, folder: Path) -> None:
    run(["dpkg-deb", "--extract", str(package), str(scratch / "files")], folder=scratch)
    for name in PROGRAMS:
        temporary = folder / f".{name}.new"
        shutil.copy2(scratch / "files" / "usr" / "bin" / name, temporary)
        temporary.replace(folder / name)


def main() -> int:
    try:
        folder = ensure_prometheus()
        shown = [str(folder / "prometheus"), "--version"]
        version = subprocess.run(shown, capture_output=True, text=True, check=False)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    say((version.stdout or version.stderr).splitlines()[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
