"""The address of this host that a broker announces when ``brokerIP1`` is empty."""

from __future__ import annotations

import socket


def first_local_address() -> str:
    """Return the address a packet to elsewhere would leave from; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: routed, never sent to
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
