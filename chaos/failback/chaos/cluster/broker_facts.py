"""What brokers and name servers say of themselves, for any target.

Roles and addresses come from here, never from a platform's labels: those are hints.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from failback.chaos.cluster.view import Pair
from failback.chaos.cluster.wire import WireConnection
from failback.common.numbers import whole
from failback.protocol.errors import FailbackError


def ask_broker(address: str) -> tuple[dict[str, str], int | None]:
    """Configuration and boot time as the broker says; empty when it does not answer."""
    try:
        with WireConnection(address) as connection:
            config = connection.broker_config(timeout=1.0)
            return config, boot_time(connection.runtime_info(timeout=1.0))
    except FailbackError:
        return {}, None


def boot_ms_of(address: str) -> int | None:
    try:
        with WireConnection(address) as connection:
            return boot_time(connection.runtime_info(timeout=1.0))
    except FailbackError:
        return None


def boot_time(runtime: Mapping[str, str]) -> int | None:
    """bootTimestamp of a code 28 answer, in milliseconds: the broker's incarnation."""
    return whole(runtime.get("bootTimestamp"))


def ask_nameservers(addresses: Sequence[str]) -> dict[str, dict[str, dict[int, str]] | None]:
    """Tables of every name server; ``None`` for one that does not answer."""
    tables: dict[str, dict[str, dict[int, str]] | None] = {}
    for address in addresses:
        try:
            with WireConnection(address) as connection:
                tables[address] = connection.cluster_addresses()
        except FailbackError:
            tables[address] = None
    return tables


def silence_of(nameserver: str) -> str:
    """Say that a name server does not answer."""
    return f"name server {nameserver} does not answer"


def conflicts(
    pairs: Sequence[Pair], registered: Mapping[str, dict[str, dict[int, str]] | None]
) -> Iterator[str]:
    """Sentences about running masters that a name server does not show, or shows elsewhere."""
    for pair in pairs:
        masters = [member for member in pair.members if member.role == "master" and member.running]
        for master in masters:
            for nameserver, table in registered.items():
                if table is None:
                    yield silence_of(nameserver)
                    continue
                shown = table.get(master.broker_name, {}).get(0)
                if shown != master.address:
                    yield (
                        f"{master.pod} at {master.address} says it is id 0 of "
                        f"{master.broker_name}, name server {nameserver} shows {shown or 'none'}"
                    )
