"""Bounds of every HTTP port before a request is read, and which requests may change something.

The health and metrics ports are served by ``http_server``; collector and dashboard by uvicorn, with
the same numbers in ``analytics/web/bounded_protocol.py``.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from failback.common.options import option

MAX_HEAD_BYTES: Final = 64 * 1024
HEAD_SECONDS: Final = 10.0
"""How long the head of a request may take to arrive."""


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """How many connections a port has, in all and from one address."""

    connections: int = option(
        256, "N", "Most connections at a time; further ones are closed.", least=1
    )
    per_address: int = option(
        64,
        "N",
        "The same from one address; a proxy is one.",
        name="connections-per-address",
        least=1,
    )


WEB_BOUNDS: Final = HttpBounds(connections=512, per_address=128)
"""A browser has six connections and one more for events; a proxy has those of all its users."""


def why_no_order(headers: Iterable[tuple[str, str]], *, peer: str, own: str) -> str | None:
    """Return why this request may change nothing; ``None`` if it may.

    A browser sends the origin of a page with an order, older browsers only the referrer. These
    ports serve no pages, so a request that names an origin or referrer is refused. So are a host
    name that a third party may have pointed here, and a request from another machine.

    Args:
        headers: Names in small letters, and values.
        peer: The address that asks.
        own: The address that was asked.
    """
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name, []).append(value)
    for name in ("origin", "referer"):
        if name in found:
            return f"orders are not taken from pages: {name.capitalize()} is set"
    if any(site.lower() != "none" for site in found.get("sec-fetch-site", ())):
        return "orders are not taken from pages: Sec-Fetch-Site is set"
    hosts = found.get("host", [])
    if len(hosts) != 1 or not _is_own_name(hosts[0]):
        return "Host must be an address or name of this machine"
    if peer != own and not _is_loopback(peer):
        return "orders are taken from this machine only"
    return None


def host_of(header: str) -> str:
    """Return the host of a Host header or an origin's ``host:port``, without brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    host, colon, port = header.rpartition(":")
    return (host if colon and port.isdigit() else header).lower()


def _is_own_name(header: str) -> bool:
    host = host_of(header)
    if host in ("localhost", _own_name()):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@cache
def _own_name() -> str:
    return socket.gethostname().lower()


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
