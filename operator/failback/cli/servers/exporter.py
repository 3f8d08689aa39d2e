"""``failback exporter``: metrics of clusters by the admin protocol, and of run folders."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from failback.cli.shared import names
from failback.cli.shared.clusters import NO_CLUSTER, ClusterOptions, cluster_options
from failback.cli.shared.commands import SERVERS, add
from failback.cli.shared.errors import guarded
from failback.cli.shared.options import HostOption, PortOption
from failback.cli.shared.output import say
from failback.client.remoting.guarded.cluster import Cluster
from failback.protocol.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    add(
        app,
        exporter,
        "exporter",
        panel=SERVERS,
        examples=("failback exporter -n 10.0.0.1:9876", "curl -s http://127.0.0.1:5557/metrics"),
    )


_IntervalOption = Annotated[
    float,
    typer.Option("--interval", metavar="SECONDS", help="Time between two rounds of questions."),
]
_TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for one answer.")
]
_ClientsOption = Annotated[
    bool, typer.Option(help="Ask consumers for their rates, through their brokers.")
]
_QueueMetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--queue-metrics", metavar="TOPIC", callback=names.topics, help="Show each queue of it."
    ),
]
_OffsetFileOption = Annotated[
    list[str] | None,
    typer.Option(
        "--offset-file",
        metavar="BROKER-ID=PATH",
        help="A broker's consumerOffset.json, whose age is shown.",
    ),
]
_RunsOption = Annotated[
    Path | None,
    typer.Option(
        "--runs", metavar="FOLDER", help="Folder of run folders to show too (default: none)."
    ),
]


@cluster_options()
@guarded
def exporter(
    cluster: ClusterOptions = NO_CLUSTER,
    host: HostOption = "127.0.0.1",
    port: PortOption = 5557,
    interval: _IntervalOption = 10.0,
    timeout: _TimeoutOption = 3.0,
    clients: _ClientsOption = True,
    queue_metrics: _QueueMetricsOption = None,
    offset_file: _OffsetFileOption = None,
    runs: _RunsOption = None,
) -> None:
    """Show a cluster to Prometheus, of Apache's brokers or ours, until SIGTERM."""
    from failback.analytics.exporter.server import ExporterSettings, serve
    from failback.analytics.exporter.server import offset_file as parsed
    from failback.client.program.log_lines import begin_logging

    begin_logging()
    asked = _cluster(cluster, runs)
    settings = ExporterSettings(
        name_servers=asked.name_servers,
        access=asked.access,
        host=host,
        port=port,
        interval_seconds=interval,
        timeout_seconds=timeout,
        clients=clients,
        queue_topics=frozenset(queue_metrics or ()),
        offset_files=dict(map(parsed, offset_file or ())),
        runs=runs,
    )

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(settings, stop, lambda at: say(f"exporter on http://{host}:{at}/metrics"))

    asyncio.run(run())


def _cluster(options: ClusterOptions, runs: Path | None) -> Cluster:
    """The cluster; none is needed where only run folders are to be shown."""
    try:
        return options.found()
    except ConfigError:
        named = options.named()
        if runs is None or named.name_servers or options.root is not None:
            raise
        return named
