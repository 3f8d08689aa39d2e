"""Fetch the plots' script for pages: ``python tools/setup_plotly.py``.

Reports and dashboard draw with plotly.js. Its basic bundle (lines and bars) is a quarter of the
whole one that the Python package carries. It comes from the registry in ``npm_config_registry``, or
through npm, pinned with its hash, and lands in the tree, from where it goes into the wheel. Without
it pages carry the whole bundle: they work, with 5 MB instead of 1.5. Uses the standard library
only.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "analytics" / "failback" / "analytics" / "report" / "page" / "plotly"
PACKAGE = "plotly.js-basic-dist-min"
VERSION = "4.1.1"
INTEGRITY = (
    "1oNF8PeQx2hv/y7tqEVWKD3JGwn/MGEMQ8mL9HUwsaqG9FGy/OU5FHUHvzqbqxN4mnwZGI9abTiE775C4kkjMQ=="
)
"""SHA-512 of the package's archive, as the registry states it."""
FILES = {"package/plotly-basic.min.js": "plotly-basic.min.js", "package/LICENSE": "LICENSE"}
_SECONDS = 60


class CannotFetch(Exception):
    """Why there is no bundle; the message is one line."""


def fetch(folder: Path = FOLDER, *, npm: str | None = None) -> Path:
    """Put the bundle and its licence into ``folder`` unless they are there; return the bundle.

    The registry in ``npm_config_registry`` is asked, then ``npm``, which knows its own.

    Raises:
        CannotFetch: There is neither, none answered, or the hash differs.
        OSError: The folder cannot be written.
    """
    stamp, bundle = folder / "version", folder / "plotly-basic.min.js"
    wanted = f"{VERSION} {INTEGRITY}\n"
    if stamp.exists() and stamp.read_text() == wanted and bundle.exists():
        return bundle
    archive = _archive(npm)
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != INTEGRITY:
        raise CannotFetch(f"{PACKAGE} {VERSION} has another hash than the one that is pinned")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        for member, name in FILES.items():
            found = opened.extractfile(member)
            if found is None:
                raise CannotFetch(f"{PACKAGE} {VERSION} has no {member}")
            _replace(folder / name, found.read())
    _replace(stamp, wanted.encode())
    return bundle


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def _archive(npm: str | None) -> bytes:
    named = os.environ.get("npm_config_registry")  # noqa: SIM112 - that is how npm calls it
    ways = [partial(_from_registry, named)] if named else []
    if npm is not None:
        ways.append(partial(_from_npm, npm))
    if not ways:
        raise CannotFetch("there is no npm, and npm_config_registry names no registry")
    reasons = []
    for way in ways:
        try:
            return way()
        except CannotFetch as error:
            reasons.append(str(error))
    raise CannotFetch("; ".join(reasons))


def _from_npm(npm: str) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", "--pack-destination", scratch]
        command.append("--fetch-retries=0")
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=scratch)
        found = sorted(Path(scratch).glob("*.tgz"))
        if done.returncode or not found:
            said = (done.stderr.strip().splitlines() or ["no archive"])[-1]
            raise CannotFetch(f"npm pack {PACKAGE}@{VERSION}: {said}")
        return found[0].read_bytes()


def _from_registry(registry: str) -> bytes:
    address = f"{registry.rstrip('/')}/{PACKAGE}/-/{PACKAGE}-{VERSION}.tgz"
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
            content: bytes = answer.read()
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CannotFetch(f"{address}: {reason}") from error
    return content


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="end with 1 where it is missing")
    options = parser.parse_args()
    try:
        fetch(npm=shutil.which("npm"))
    except CannotFetch as error:
        print(
            f"setup: plotly.js: {error}. Reports will have 5 MB instead of 1.5; with a network:"
            " python tools/setup_plotly.py",
            file=sys.stderr,
        )
        return 1 if options.require else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
