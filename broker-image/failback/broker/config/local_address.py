"""Addresses of this machine: which one to announce, and which to listen on."""

from __future__ import annotations

import errno
import socket

EVERYWHERE = "0.0.0.0"


def first_local_address() -> str:
    """Return the address a packet to elsewhere would leave from; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: routed, never sent to
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def is_everywhere(address: str) -> bool:
    """Tell whether an address stands for all of a machine: nobody can be reached by it."""
    return address.strip("[]") in (EVERYWHERE, "::")


def address_to_bind(announced: str) -> str:
    """Return where to listen for whoever is told ``announced``: there, or on all addresses.

    What is announced is often the address of something in front: a host of containers, a router.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(announced, 0, type=socket.SOCK_DGRAM)[0]
    except (OSError, UnicodeError):  # no name, or one that nobody knows; the identity refuses it
        return announced
    with socket.socket(family, kind) as probe:
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                return announced
            return "::" if family == socket.AF_INET6 else EVERYWHERE
    return announced
