"""Finding processes that still have to do with a folder, whoever started them."""

from __future__ import annotations

import os
from pathlib import Path


def processes_of(folder: Path) -> list[str]:
    """Return ``pid: command`` of every process that names ``folder``, works in it or has it open.

    Looks at command line, environment, working folder and open files; not at this process.
    """
    needle = os.fsencode(folder)
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    others = [entry for entry in entries if int(entry.name) != os.getpid()]
    return [f"{entry.name}: {_command(entry)}" for entry in others if _names(entry, needle)]


def _command(entry: Path) -> str:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "has ended meanwhile"
    return b" ".join(words).decode(errors="replace")[:300]


def _names(entry: Path, needle: bytes) -> bool:
    try:
        for name in ("cmdline", "environ"):
            if needle in (entry / name).read_bytes():
                return True
        links = [entry / "cwd", *(entry / "fd").iterdir()]
    except OSError:  # it has ended, or is somebody else's
        return False
    return any(needle in _target(link) for link in links)


def _target(link: Path) -> bytes:
    try:
        return os.fsencode(os.readlink(link))
    except OSError:
        return b""
