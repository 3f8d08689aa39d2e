"""Jars that Maven fetches once, into a cache, where it checks each file's checksum."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Final

_FETCH_SECONDS: Final = 1200.0
_LAST_WORDS: Final = 300


class NoMaven(Exception):
    """There is no ``mvn``."""


def cache_folder() -> Path:
    """Return where downloads are kept across clones and runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "failback"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes out that lock the same file; wait for one that is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch_jars(package: str, pom: str, target: Path, **properties: str) -> str | None:
    """Fill ``target`` with what a pom needs at run time; return why that failed, or ``None``.

    The folder is filled under another name and renamed last.

    Args:
        package: The Python package that the pom lies in.
        pom: Its file name.
        target: Where the jars go; what is there is replaced.
        properties: Values for the pom, by name; ``_`` stands for a dot.

    Raises:
        NoMaven: It is not installed.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise NoMaven
    half = target.with_name(f".{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    # A pom of our own folder may lie where nothing can be written; Maven writes nothing beside it.
    with resources.as_file(resources.files(package).joinpath(pom)) as path:
        command = [maven, "-q", "-B", "--strict-checksums", "-f", str(path)]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += [f"-DoutputDirectory={half}"]
        command += [f"-D{name.replace('_', '.')}={value}" for name, value in properties.items()]
        problem = _run(command)
        if problem is not None:  # it may be one that Maven remembers; -U asks again
            problem = _run([*command, "-U"])
    if problem is None:
        shutil.rmtree(target, ignore_errors=True)
        half.rename(target)
    return problem


def _run(command: list[str]) -> str | None:
    """Run Maven; return what it said last of a failure."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"Maven did not end within {_FETCH_SECONDS:g} s"
    if done.returncode == 0:
        return None
    errors = [line for line in done.stdout.splitlines() if line.startswith("[ERROR] ")]
    said = errors[0].removeprefix("[ERROR] ") if errors else f"exit code {done.returncode}"
    return f"Maven could not fetch it: {said[:_LAST_WORDS]}"
