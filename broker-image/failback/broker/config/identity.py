"""The identity of a broker from start to stop: names, ids and the addresses that it announces."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from failback.broker.config.config import BrokerConfig
from failback.protocol.errors import ConfigError
from failback.protocol.message import pack_host


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What stays the same from start to stop, even when code 25 changes the file."""

    cluster_name: str
    broker_name: str
    broker_id: int
    is_slave: bool
    address: str
    """``brokerIP1:listenPort``, announced to clients."""
    ha_address: str
    """``brokerIP2:listenPort+1``, announced to slaves."""
    store_host: bytes
    """The resolved address as stored in every record: 8 bytes for IPv4, 20 for IPv6."""

    @classmethod
    def of(cls, config: BrokerConfig) -> BrokerIdentity:
        """Resolve the addresses once.

        Raises:
            ConfigError: ``brokerIP1`` has no address.
        """
        try:
            ip = resolve(config.broker_ip1)
        except (OSError, UnicodeError) as error:
            problem = f"{config.broker_ip1} has no address: {error}"
            refusal = ConfigError("brokerIP1", problem, file=config.file)
            refusal.line = config.lines.get("brokerIP1")
            raise refusal from error
        return cls(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            is_slave=config.is_slave,
            address=f"{config.broker_ip1}:{config.listen_port}",
            ha_address=f"{config.broker_ip2}:{config.listen_port + 1}",
            store_host=pack_host(ip, config.listen_port),
        )


def resolve(host: str) -> str:
    """Return the first IP address of ``host``, IPv4 before IPv6."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])
