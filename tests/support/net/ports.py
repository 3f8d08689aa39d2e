"""Free addresses for the servers of tests, on this machine's loopback."""

from __future__ import annotations

import itertools
import os
import socket

# Below the kernel's ephemeral range, so that no outgoing connection takes a port between probing
# and use. Each worker has ports of its own: another one's killed broker wants its port back.
_WORKERS = 4
_PORTS = 20_000 // _WORKERS
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw3").removeprefix("gw"))
_FIRST = 12_000 + _WORKER % _WORKERS * _PORTS
_NEXT = itertools.count(os.getpid() * 37)


def free_port_block(count: int, host: str = "127.0.0.1") -> int:
    """Return the first of ``count`` consecutive ports that nobody listens on at ``host``."""
    for _ in range(2_000):
        offset = next(_NEXT) % _PORTS
        first = _FIRST + offset
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
