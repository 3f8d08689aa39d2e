"""Folders that a command is given: whether one can be written, and which runs one holds."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from failback.common.text import typed, why
from failback.protocol.errors import ConfigError

LATEST: Final = "latest"


def check_folder(option: str, path: Path) -> None:
    """Refuse a path under which no folder can be made or written.

    Raises:
        ConfigError: Names the option and what is in the way.
    """
    for each in (path, *path.absolute().parents):
        try:
            if not each.exists():
                continue
        except OSError as error:
            raise ConfigError(option, f"cannot write to {path}: {why(error)}") from error
        if not each.is_dir():
            raise ConfigError(option, f"cannot write to {path}: {each} is a file")
        if not os.access(each, os.W_OK | os.X_OK) or _is_of_kernel(each):
            raise ConfigError(option, f"cannot write to {path}: no right to write in {each}")
        return


def dated_folder(runs: Path, kind: str) -> Path:
    """Return a folder below ``runs`` that is not there yet: ``KIND-DATE-TIME``, of local time.

    ``runs/latest`` becomes a link to it; a folder of that name stays.

    Raises:
        ConfigError: Nothing can be written there.
    """
    check_folder("--runs", runs)
    base = (runs / time.strftime(f"{kind}-%Y%m%d-%H%M%S")).absolute()
    further = (base.with_name(f"{base.name}-{number}") for number in range(2, 1000))
    folder = next(each for each in (base, *further) if not each.exists())
    runs.mkdir(parents=True, exist_ok=True)
    link, made = runs / LATEST, runs / f".{LATEST}-{os.getpid()}"
    if link.is_symlink() or not link.exists():
        with contextlib.suppress(OSError):  # a file system without links
            made.symlink_to(folder.name)
            made.replace(link)
    return folder


def _is_of_kernel(path: Path) -> bool:
    """Tell whether a folder is one of /proc or /sys: root may write there, and can't."""
    parts = path.resolve().parts
    return parts[1:2] in (("proc",), ("sys",))


def run_id(option: str, text: str) -> str:
    """Return the id of a run that a user named, or a folder's name that becomes one.

    Raises:
        ConfigError: Names the option, and what an id may be.
    """
    import re

    from failback.analytics.lake.segment_ids import RUN_PATTERN

    if not re.fullmatch(RUN_PATTERN, text):
        problem = f'must be letters, digits, "-", "_" and single dots, got "{text}"'
        raise ConfigError(option, problem)
    return text


def run_folders(given: Sequence[Path]) -> list[Path]:
    """Put the closed runs below a folder of runs in its place; what is a run folder stays.

    Raises:
        ConfigError: There is no run, or it is something else.
    """
    found: list[Path] = []
    for each in given:
        if (each / "run.json").exists() or each.is_file():
            found.append(each)
            continue
        below = sorted(path.parent for path in each.rglob("closed.json")) if each.is_dir() else []
        if not below:
            raise ConfigError("RUN", _no_run(each))
        found += below
    return found


def one_run(path: Path) -> Path:
    """Return a run folder: the one named, or the only one below.

    Raises:
        ConfigError: There is none, or more than one.
    """
    if path.is_file():
        raise ConfigError("RUN", f"{path} is a file, not a run folder")
    found = run_folders([path])
    if len(found) > 1:
        names = ", ".join(map(str, found[:8]))
        raise ConfigError("RUN", f"{path} has several runs; name one of {names}")
    return found[0]


def _no_run(path: Path) -> str:
    if not path.exists():
        return f"{path}: no such folder"
    if next(path.glob("*.fblog"), None) is not None:
        command = typed("failback", "ship", "--hot", path, "--to", "lake", "--once")
        return (
            f"{path} is a consume log, not a run; put it into a lake and report from there:"
            f" {command}, then"
            " failback report --lake lake --run ID"
        )
    if next(path.glob("table=*"), None) is not None:
        command = typed("failback", "report", "--lake", path)
        return f"{path} is a lake, not a run: {command} --run ID"
    return f"{path} is no run folder: it has no run.json, and no closed run is below it"
