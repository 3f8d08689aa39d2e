"""The loop that asks, and the HTTP port that answers with what was asked last."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from failback.analytics.exporter.figures import Figures, figures_of
from failback.analytics.exporter.pair_history import History
from failback.analytics.exporter.runs import RunWatch
from failback.analytics.exporter.survey import Survey, Surveyor
from failback.analytics.live.facts import OffsetFile
from failback.analytics.live.offset_file import of_broker, read
from failback.analytics.web.web_server import metrics_endpoints
from failback.client.remoting.addresses import addresses_of
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.http_server import HttpThread
from failback.client.remoting.port_owner import describe_listen_failure
from failback.common.numbers import whole
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)

DEFAULT_PORT: Final = 5557
"""The one that rocketmq-exporter has, so that scrape configurations go on working."""


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """What the command line says."""

    name_servers: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    interval_seconds: float = 10.0
    timeout_seconds: float = 3.0
    clients: bool = True
    """Ask consumers for their own rates through their brokers."""
    queue_topics: frozenset[str] = frozenset()
    offset_files: Mapping[tuple[str, int], Path] = field(default_factory=dict)
    """Broker name and id to its consumerOffset.json, where that is mounted."""
    runs: Path | None = None
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


class Exporter(Collector):
    """Holds the last survey; a scrape asks no broker."""

    def __init__(self, settings: ExporterSettings) -> None:
        self.settings = settings
        self._history = History()
        self._runs = RunWatch(settings.runs) if settings.runs is not None else None
        self._figures = Figures()
        self._reading = threading.Lock()
        self.rounds = 0

    def take(self, survey: Survey) -> None:
        """Take a survey; scrapes show it from now on."""
        self._history.look(survey)
        self._figures = figures_of(
            survey,
            self._history,
            queue_topics=self.settings.queue_topics,
            offset_files=self._read_offset_files(survey),
        )
        self.rounds += 1

    def _read_offset_files(self, survey: Survey) -> dict[tuple[str, int], OffsetFile]:
        """Those that were named, and those of masters that run on this machine."""
        named = self.settings.offset_files
        found = {member: read(path) for member, path in named.items()}
        for each in survey.brokers:
            if each.up and each.is_master and (each.broker, each.broker_id) not in named:
                found[each.broker, each.broker_id] = of_broker(each.address, each.config)
        return {member: file for member, file in found.items() if file is not None}

    def collect(self) -> Iterator[Metric]:
        yield from self._figures.families()
        if self._runs is not None:
            with self._reading:  # two scrapes at a time read folders one after the other
                yield from list(self._runs.collect())

    def describe(self) -> Iterable[Metric]:
        """Nothing: what there is depends on the cluster."""
        return ()

    async def run(self, stop: asyncio.Event) -> None:
        """Survey once per period until ``stop`` is set."""
        settings = self.settings
        client = RemotingClient(settings=RemotingSettings(access=settings.access))
        surveyor = Surveyor(
            settings.name_servers,
            client=client,
            timeout_ms=settings.timeout_seconds * 1000,
            clients=settings.clients,
        )
        try:
            while not stop.is_set():
                began = time.monotonic()
                if settings.name_servers:
                    self.take(await surveyor.survey())
                left = settings.interval_seconds - (time.monotonic() - began)
                try:
                    async with asyncio.timeout(max(0.0, left)):
                        await stop.wait()
                except TimeoutError:
                    continue
        finally:
            await client.close()


async def serve(
    settings: ExporterSettings,
    stop: asyncio.Event,
    on_ready: Callable[[int], None] = lambda _port: None,
) -> None:
    """Serve /metrics until ``stop`` is set; ``on_ready`` gets the port.

    Raises:
        ConfigError: The port is taken, or the address is not ours.
    """
    exporter = Exporter(settings)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)
    try:
        server = HttpThread(metrics_endpoints(registry), settings.host, settings.port)
    except (OSError, OverflowError) as error:
        problem = describe_listen_failure(settings.host, settings.port, error, "--port")
        raise ConfigError("--port", problem) from error
    try:
        on_ready(server.port)
        await exporter.run(stop)
    finally:
        await asyncio.to_thread(server.close)
