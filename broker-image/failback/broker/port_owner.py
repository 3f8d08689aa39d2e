"""Who holds a TCP port, for the error message when it is taken."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_LISTEN = "0A"


def describe_port_owner(port: int, error: OSError) -> str:
    """Explain why ``port`` could not be opened; names the process that listens on it."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno != errno.EADDRINUSE:
        return reason
    owner = port_owner(port)
    return f"{reason}; it is held by {owner}" if owner else f"{reason} by a process of another user"


def port_owner(port: int) -> str | None:
    """Return ``pid 123 (command line)`` of a listener on ``port``; Linux only, else ``None``."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*"):
        if _holds(process, wanted):
            return f"pid {process.name} ({_command(process)})"
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def _holds(process: Path, wanted: set[str]) -> bool:
    try:
        return any(os.readlink(entry) in wanted for entry in (process / "fd").iterdir())
    except OSError:  # another user's, or gone meanwhile
        return False


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return b" ".join(words).decode(errors="replace").strip()[:200] or "?"
