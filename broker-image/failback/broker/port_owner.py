"""Who holds a TCP port, for the error message when it is taken."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from failback.protocol.errors import ConfigError

_LISTEN = "0A"


def bind_error(host: str, port: int, error: OSError, *, port_key: str) -> ConfigError:
    """Explain why ``host:port`` could not be opened.

    Names the process that listens there, and the setting to change: ``port_key`` when the port
    is taken, the address otherwise.
    """
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(host, port) or "a process of another user"
        return ConfigError(port_key, f"cannot listen on {host}:{port}: it is held by {owner}")
    is_known = error.errno is not None and error.errno > 0  # name resolution has numbers below 0
    reason = os.strerror(error.errno) if is_known and error.errno else str(error)
    return ConfigError("failbackBindAddress", f"cannot listen on {host}:{port}: {reason}")


def port_owner(host: str, port: int) -> str | None:
    """Return ``pid 123 (command line)`` of who listens on ``host:port`` or on every address.

    Linux only; ``None`` elsewhere, and for what another user's process holds.
    """
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(host, port)}
    if not wanted:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        if _holds(process, wanted):
            return f"pid {process.name} ({_command(process)})"
    return None


def _listening_inodes(host: str, port: int) -> set[str]:
    ours = _kernel_addresses(host)
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, port_digits = fields[1].partition(":")
            if fields[3] != _LISTEN or int(port_digits, 16) != port:
                continue
            is_any = not address.strip("0")
            if is_any or ours is None or address in ours:
                inodes.add(fields[9])
    return inodes


def _kernel_addresses(host: str) -> set[str] | None:
    """Return how /proc/net writes ``host``'s IPv4 addresses; ``None`` when every one matters."""
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return None
    packed = {socket.inet_aton(str(entry[4][0])) for entry in found}
    if bytes(4) in packed:
        return None
    return {bytes(reversed(address)).hex().upper() for address in packed}


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
