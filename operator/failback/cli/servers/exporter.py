"""``failback exporter``: metrics of clusters by the admin protocol, and of run folders."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from failback.analytics.exporter.settings import ExporterSettings
from failback.cli.shared.clusters import NO_CLUSTER, ClusterOptions, cluster_options
from failback.cli.shared.commands import command
from failback.cli.shared.output import say
from failback.cli.shared.settings_options import Typed, settings_options
from failback.client.remoting.guarded.cluster import Cluster
from failback.protocol.errors import ConfigError


@command("exporter", "failback exporter -n 10.0.0.1:9876", "curl -s http://127.0.0.1:5557/metrics")
@cluster_options()
@settings_options(ExporterSettings)
def exporter(settings: Typed[ExporterSettings], cluster: ClusterOptions = NO_CLUSTER) -> None:
    """Show a cluster to Prometheus, of Apache's brokers or ours, until SIGTERM."""
    from failback.analytics.exporter.server import serve
    from failback.client.program import begin_logging

    begin_logging()
    asked = _cluster(cluster, settings.values["runs"])
    made = settings.make(name_servers=asked.name_servers, access=asked.access)

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(made, stop, lambda at: say(f"exporter on http://{made.host}:{at}/metrics"))

    asyncio.run(run())


def _cluster(options: ClusterOptions, runs: Path | None) -> Cluster:
    """Return the cluster; one without name servers where only run folders are shown."""
    try:
        return options.found()
    except ConfigError:
        named = options.named()
        if runs is None or named.name_servers or options.root is not None:
            raise
        return named
