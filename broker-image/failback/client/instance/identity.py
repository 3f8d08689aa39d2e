"""The identity of a client: its address and its client id.

Source: ClientConfig.buildMQClientId, RemotingUtil.getLocalAddress, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import time

from failback.client.remoting.settings import ClientSettings

logger = logging.getLogger(__name__)


def local_address() -> str:
    """getLocalAddress: the first IPv4 address outside 127.0 and 192.168, else the last IPv4,
    else the first IPv6, else localhost."""
    v4: list[str] = []
    v6: list[str] = []
    for family, addr in _interface_addresses():
        (v4 if family == socket.AF_INET else v6).append(addr)
    for addr in v4:
        if not addr.startswith(("127.0", "192.168")):
            return addr
    if v4:
        return v4[-1]
    return v6[0] if v6 else "127.0.0.1"


def _interface_addresses() -> list[tuple[int, str]]:
    """Addresses of this host that are not loopback, as far as the name service knows them, and
    the one that a packet to another network would leave by."""
    found: list[tuple[int, str]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1; a UDP connect sends nothing
            found.append((socket.AF_INET, probe.getsockname()[0]))
        except OSError:
            logger.debug("no route out of this host")
    try:
        infos = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        infos = []
    for family, _, _, _, address in infos:
        text = str(address[0])
        if family not in (socket.AF_INET, socket.AF_INET6):
            continue
        if not ipaddress.ip_address(text.split("%", 1)[0]).is_loopback:
            found.append((family, text))
    return found


def client_id_of(settings: ClientSettings, *, rename: bool) -> str:
    """Build ``clientIP@instanceName[@unitName]``.

    With ``rename`` the name ``DEFAULT`` becomes ``pid#nanotime``, so that every producer and
    every CLUSTERING consumer of a process is an instance of its own.
    """
    name = settings.instance_name
    if rename and name == "DEFAULT":
        name = f"{os.getpid()}#{time.monotonic_ns()}"
    parts = [settings.client_ip or local_address(), name]
    if settings.unit_name:
        parts.append(settings.unit_name)
    return "@".join(parts)


def ip_of(client_id: str) -> str:
    """The address for message ids: the client id's, or loopback if that is a host name."""
    text = client_id.split("@", 1)[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return "127.0.0.1"
