"""Addresses: lists of ``host:port;host:port`` as people write them, and those of this machine."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket
from pathlib import Path
from typing import Final

from failback.protocol.errors import ConfigError

_WIDE: Final = {"；": ";", "，": ",", "：": ":", "。": ".", "\u3000": " ", "\u00a0": " "}
"""What an input method or a web page puts in the place of the plain characters."""
_HOST: Final = re.compile(r"[A-Za-z0-9._\-]+|\[?[0-9A-Fa-f:.]+(%[A-Za-z0-9._\-]+)?\]?", re.ASCII)
_EXAMPLE: Final = "127.0.0.1:9876"
EVERYWHERE = "0.0.0.0"
_RESOLVE_SECONDS: Final = 3


def addresses_of(
    field: str, text: str, *, file: Path | None = None, typed: bool = False
) -> tuple[str, ...]:
    """Return the addresses of a list, joined by ``;`` or ``,``, without blanks or repeats.

    Args:
        field: The setting or option that has it, for messages. file: Where it stands. typed: A
        person typed it for a command: an IPv6 host must be in brackets, for ``::1:9876`` may be a
        host without its port. A broker takes what Apache's takes.

    Raises:
        ConfigError: One is no ``host:port``: says which, and what is wrong with it.
    """
    parts = [part.strip() for part in re.split(r"[;,]", text)]
    found = tuple(dict.fromkeys(part for part in parts if part))
    for part in found:
        if problem := _problem(part) or (_ambiguous(part) if typed else ""):
            raise ConfigError(field, f"has {part!r}: {problem}", file=file)
    if text.strip() and not found:
        problem = f"names no address, is {text!r}: write HOST:PORT;HOST:PORT, or leave it out"
        raise ConfigError(field, problem, file=file)
    return found


def _problem(address: str) -> str:
    """Return what is wrong with one address; empty for none."""
    for wide, plain in _WIDE.items():
        if wide in address:
            return f"{wide!r} is not the character {plain!r}: addresses are joined by a plain ;"
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]*://", address):
        return f"an address is HOST:PORT, such as {_EXAMPLE}, and no URL"
    if re.search(r"\s", address):
        return "a blank stands in an address: addresses are joined by ;"
    host, colon, port = address.rpartition(":")
    if not colon or not port:
        return f"the port is missing: write HOST:PORT, such as {_EXAMPLE}"
    if not host:
        return f"the host is missing: write HOST:PORT, such as {_EXAMPLE}"
    if not re.fullmatch(r"\d+", port, re.ASCII):
        return f"the port is no number: write HOST:PORT, such as {_EXAMPLE}"
    if len(port) > 5 or not 0 < int(port) < 65_536:
        return "a port is from 1 to 65535"
    if not _HOST.fullmatch(host):
        return f"{host!r} is no name or address of a host"
    if ":" in host and not _is_ipv6(host.removeprefix("[").removesuffix("]")):
        return "an IPv6 address with its port is written [::1]:9876"
    return ""


def _ambiguous(address: str) -> str:
    """Return what is wrong with an IPv6 address whose port may be a part of it."""
    host, _, port = address.rpartition(":")
    if ":" not in host or host.startswith("["):
        return ""
    return f"where its port begins is not said: write [{host}]:{port}, or [{address}]:PORT"


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def first_local_address() -> str:
    """Return the address a packet to elsewhere would leave from; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: routed, never sent to
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def addresses_now(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses that the name of a host has now, sorted; none for an address.

    Of IPv4 and IPv6, which are mostly the same machines, those of the kind with more come first.
    Without an answer of the resolver in three seconds there are none.
    """
    if re.fullmatch(r"[\d.]+|.*:.*", host):
        return ()
    try:
        async with asyncio.timeout(_RESOLVE_SECONDS):
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return ()
    kinds: dict[int, set[str]] = {}
    for family, _, _, _, place in found:
        kinds.setdefault(family, set()).add(str(place[0]))
    most = sorted(kinds.values(), key=len, reverse=True)
    return tuple(address for kind in most for address in sorted(kind))


def is_everywhere(address: str) -> bool:
    """Tell whether an address means all addresses of a machine; no peer can connect to it."""
    return address.strip("[]") in (EVERYWHERE, "::")


def address_to_bind(announced: str) -> str:
    """Return where to listen when ``announced`` is announced: there, or on all addresses.

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


def canonical(address: str) -> str | None:
    """An IP address as it is always written, IPv4 in IPv6 as IPv4; ``None`` for anything else."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
