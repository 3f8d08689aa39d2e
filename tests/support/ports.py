"""Free addresses for the servers of tests, on this machine's loopback."""

from __future__ import annotations

import itertools
import os
import socket

# Each test process begins elsewhere, below the kernel's ephemeral range, so that neither
# another test process nor an outgoing connection takes a port between probing and use.
_NEXT = itertools.count(12_000 + os.getpid() * 37 % 18_000)


def free_port_block(count: int, host: str = "127.0.0.1") -> int:
    """Return the first of ``count`` consecutive ports that nobody listens on at ``host``."""
    for _ in range(2_000):
        first = 12_000 + (next(_NEXT) - 12_000) % 20_000
        if all(_is_free(host, port) for port in range(first, first + count)):
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
