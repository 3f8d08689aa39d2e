"""The loop of surveys, and the HTTP port that answers with the last one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from failback.analytics.exporter.figures import Figures, figures_of
from failback.analytics.exporter.pair_history import History
from failback.analytics.exporter.runs import RunWatch
from failback.analytics.exporter.settings import ExporterSettings
from failback.analytics.exporter.survey import Survey, Surveyor
from failback.analytics.live.facts import OffsetFile
from failback.analytics.live.offset_file import of_broker, read
from failback.analytics.web.web_server import serve_metrics
from failback.client.remoting.connection import RemotingClient, RemotingSettings


class Exporter(Collector):
    """Holds the last survey; a scrape asks no broker."""

    def __init__(self, settings: ExporterSettings) -> None:
        self.settings = settings
        self._history = History()
        self._runs = RunWatch(settings.runs) if settings.runs is not None else None
        self._figures = Figures()
        self._reading = threading.Lock()

    def take(self, survey: Survey) -> None:
        """Take a survey; scrapes show it from now on."""
        self._history.look(survey)
        self._figures = figures_of(
            survey,
            self._history,
            queue_topics=self.settings.queue_topics,
            offset_files=self._read_offset_files(survey),
        )

    def _read_offset_files(self, survey: Survey) -> dict[tuple[str, int], OffsetFile]:
        """Return the offset files that were named, and those of masters on this machine."""
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
                    survey = await surveyor.survey()
                    await asyncio.to_thread(self.take, survey)  # it reads files
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
        ConfigError: The port is in use, or the address is not one of this machine.
    """
    exporter = Exporter(settings)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(exporter)
    server = serve_metrics(settings.host, settings.port, registry, "--port")
    try:
        on_ready(server.port)
        await exporter.run(stop)
    finally:
        await asyncio.to_thread(server.close)
