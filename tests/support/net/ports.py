"""Free addresses for the servers of tests, on this machine's loopback."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, TextIO

# Below the kernel's ephemeral range, so that no outgoing connection takes a port between probing
# and use.
_FIRST: Final = 12_000
_SHARES: Final = 20
_PORTS: Final = 1_000
_NEXT = itertools.count(os.getpid() * 37)
_HELD: Final[list[TextIO]] = []


@cache
def _share() -> int:
    """Return the first of the ports that are this process's own until it ends.

    A broker that a test killed wants its port back: no other worker of any test run may take it.
    """
    folder = Path(tempfile.gettempdir()) / f"failback-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    for number in range(_SHARES):
        file = (folder / str(number)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
        else:
            _HELD.append(file)
            return _FIRST + number * _PORTS
    raise RuntimeError(f"{_SHARES} test processes run on this machine; there is no port for more")


def free_port_block(count: int, host: str = "127.0.0.1") -> int:
    """Return the first of ``count`` consecutive ports that nobody listens on at ``host``."""
    for _ in range(2_000):
        offset = next(_NEXT) % _PORTS
        first = _share() + offset
        if offset + count <= _PORTS and all(
            _is_free(host, port) for port in range(first, first + count)
        ):
            for _ in range(count - 1):
                next(_NEXT)
            return first
    raise RuntimeError(f"no block of {count} free ports at {host}")


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody listens on at ``host``."""
    return free_port_block(1, host)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True
