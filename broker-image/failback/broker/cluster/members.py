"""Which addresses are members of this broker's pair: those that ``failbackMembers`` names.

A name server lists whoever registered under a broker's name. What a slave says of offsets, or a
master of topics, is taken only from a member.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)


class Members:
    """The pair as broker.conf names it. ``named`` is read at each question."""

    def __init__(self, named: Callable[[], tuple[str, ...]]) -> None:
        self._named = named
        self.refused = 0
        """How often somebody who registered was no member, or said what cannot be."""

    @property
    def is_named(self) -> bool:
        """Whether broker.conf says who the members are."""
        return bool(self._named())

    async def known(self, addresses: Iterable[str]) -> list[str]:
        """Return those of ``addresses`` that are members; the others are counted and told."""
        named = self._named()
        resolved: set[str] | None = None
        found = []
        for address in sorted(addresses):
            if address not in named and resolved is None:
                resolved = await _resolved(named)
            if address in named or address in (resolved or ()):
                found.append(address)
            else:
                self.refuse(address, "it is not in failbackMembers of broker.conf")
        return found

    def refuse(self, address: str, why: str) -> None:
        """Count and tell something that is not taken from a registered broker."""
        self.refused += 1
        logger.warning("broker %s is not believed: %s", address, why)


async def _resolved(named: Iterable[str]) -> set[str]:
    """Return ``ip:port`` of every named member whose host has an address now."""
    loop = asyncio.get_running_loop()
    found = set()
    for member in named:
        host, _, port = member.rpartition(":")
        try:
            answers = await loop.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError:
            continue  # it is not there, so nobody has registered at its address
        for family, *_, place in answers:
            ip = str(place[0])
            found.add(f"[{ip}]:{port}" if family == socket.AF_INET6 else f"{ip}:{port}")
    return found
