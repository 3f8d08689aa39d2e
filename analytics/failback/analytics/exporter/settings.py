"""The settings of an exporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.client.remoting.addresses import addresses_of
from failback.client.remoting.guarded.access import ClusterAccess
from failback.common.numbers import whole
from failback.common.options import HOST, PORT, option
from failback.protocol.errors import ConfigError
from failback.protocol.names import NameRefused, check_topic

DEFAULT_PORT: Final = 5557
"""The port of rocketmq-exporter, so that scrape configurations keep working."""


def offset_file(text: str) -> tuple[tuple[str, int], Path]:
    """Read ``BROKER-ID=PATH``.

    Raises:
        ConfigError: It is something else.
    """
    member, equals, path = text.partition("=")
    broker, dash, number = member.rpartition("-")
    broker_id = whole(number)
    if not equals or not path or not dash or not broker or broker_id is None:
        raise ConfigError("--offset-file", f'must be BROKER-ID=PATH, got "{text}"')
    return (broker, broker_id), Path(path)


def _topics(names: Sequence[str] | None) -> frozenset[str]:
    for each in names or ():
        try:
            check_topic(each)
        except NameRefused as error:
            raise ConfigError("--queue-metrics", str(error)) from None
    return frozenset(names or ())


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """What the command line says."""

    name_servers: tuple[str, ...] = ()
    host: str = option("127.0.0.1", HOST)
    port: int = option(DEFAULT_PORT, PORT)
    interval_seconds: float = option(
        10.0, "SECONDS", "Time between two rounds of questions.", name="interval"
    )
    timeout_seconds: float = option(
        3.0, "SECONDS", "How long to wait for one answer.", name="timeout"
    )
    clients: bool = option(True, "", "Ask consumers for their rates, through their brokers.")
    queue_topics: frozenset[str] = option(
        frozenset(), "TOPIC", "Show each queue of it.", name="queue-metrics", read=_topics
    )
    offset_files: Mapping[tuple[str, int], Path] = option(
        dict,
        "BROKER-ID=PATH",
        "A broker's consumerOffset.json, whose age is shown.",
        name="offset-file",
        read=lambda texts: dict(map(offset_file, texts or ())),
    )
    """Broker name and id → where its consumerOffset.json is mounted."""
    runs: Path | None = option(None, "FOLDER", "Folder of run folders to show too (default: none).")
    access: ClusterAccess | None = None
    """Of a guarded cluster."""

    def __post_init__(self) -> None:
        if not self.name_servers and self.runs is None:
            raise ConfigError("--namesrv", "name at least one name server, or a folder by --runs")
        for address in self.name_servers:
            addresses_of("--namesrv", address, typed=True)
        if not 0.1 <= self.interval_seconds <= 3600:
            raise ConfigError("--interval", f"must be 0.1 to 3600 s, got {self.interval_seconds:g}")
        if not 0.1 <= self.timeout_seconds <= 600:
            raise ConfigError("--timeout", f"must be 0.1 to 600 s, got {self.timeout_seconds:g}")
        if not 0 <= self.port < 65536:
            raise ConfigError("--port", f"must be 0 to 65535, got {self.port}")
        if self.runs is not None and not self.runs.is_dir():
            raise ConfigError("--runs", f"{self.runs}: no such folder")
