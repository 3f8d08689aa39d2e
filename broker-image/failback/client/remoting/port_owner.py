"""The error for a port that could not be opened: the process on it, and the setting to change."""

from __future__ import annotations

import errno
import os
import struct
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final

from failback.common.text import why
from failback.protocol.errors import ConfigError

_LISTENING: Final = "0A"  # TCP_LISTEN, include/net/tcp_states.h


def describe_listen_failure(
    host: str, port: int, error: OSError | OverflowError, option: str = ""
) -> str:
    """Say why ``host:port`` could not be opened, and which process uses it.

    ``option`` is the option that sets the port; 0 means any free one.
    """
    if isinstance(error, OverflowError):
        return f"cannot listen on {host}:{port}: a port is from 0 to 65535"
    reason = why(error)
    owner = port_owner(host, port) if error.errno == errno.EADDRINUSE else None
    held = f"; it is held by {owner}" if owner else ""
    other = f"; try {option} 0" if option and error.errno == errno.EADDRINUSE else ""
    return f"cannot listen on {host}:{port}: {reason}{held}{other}"


def bind_error(host: str, port: int, error: OSError, *, port_key: str) -> ConfigError:
    """Explain why ``host:port`` could not be opened.

    Names the process that listens there, and the setting to change: ``port_key`` when the port is
    in use, the address otherwise.
    """
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(host, port) or "a process of another user"
        return ConfigError(port_key, f"cannot listen on {host}:{port}: it is held by {owner}")
    is_known = error.errno is not None and error.errno > 0  # name resolution has numbers below 0
    reason = os.strerror(error.errno) if is_known and error.errno else str(error)
    return ConfigError("failbackBindAddress", f"cannot listen on {host}:{port}: {reason}")


def port_owner(host: str, port: int) -> str | None:
    """Return ``pid 123 (command line)`` of the listener on ``port`` at ``host`` or everywhere.

    ``None`` where /proc does not show it: other systems, other users' processes.
    """
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(host, port)}
    if not wanted:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        if _holds(process, wanted):
            return f"pid {process.name} ({_command(process)})"
    return None


def _listening_inodes(host: str, port: int) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            address, _, hex_port = fields[1].rpartition(":")
            if fields[3] != _LISTENING or int(hex_port, 16) != port:
                continue
            if _overlap(host, _unpack(address)):
                inodes.add(fields[9])
    return inodes


def _unpack(address: str) -> str:
    """Turn the kernel's form, 32-bit words in host order, into the usual one."""
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    parsed = ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


def _overlap(host: str, listening: str) -> bool:
    """Whether one of the two is everywhere, or both are the same; names count as a match."""
    try:
        asked = ip_address(host)
    except ValueError:
        return True
    return asked.is_unspecified or ip_address(listening).is_unspecified or str(asked) == listening


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
