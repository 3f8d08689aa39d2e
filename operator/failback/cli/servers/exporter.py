"""``failback exporter``: metrics of clusters by the admin protocol, and of run folders."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from failback.cli.shared.errors import guarded
from failback.cli.shared.output import say


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("exporter")(exporter)


@guarded
def exporter(
    namesrv: Annotated[
        str,
        typer.Option("--namesrv", "-n", help="host:port;host:port (default: $NAMESRV_ADDR)."),
    ] = "",
    host: Annotated[str, typer.Option("--host", help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port of /metrics; 0: any free one.")] = 5557,
    interval: Annotated[
        float, typer.Option("--interval", help="Seconds between two rounds of questions.")
    ] = 10.0,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for one answer.")
    ] = 3.0,
    clients: Annotated[
        bool, typer.Option(help="Ask consumers for their rates, through their brokers.")
    ] = True,
    queue_metrics: Annotated[
        list[str] | None,
        typer.Option("--queue-metrics", metavar="TOPIC", help="Show each queue; repeatable."),
    ] = None,
    offset_file: Annotated[
        list[str] | None,
        typer.Option(
            "--offset-file",
            metavar="BROKER-ID=PATH",
            help="A broker's consumerOffset.json, whose age is shown; repeatable.",
        ),
    ] = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Folder of run folders to show too.")
    ] = None,
) -> None:
    """Show a cluster to Prometheus, of Apache's brokers or ours, until SIGTERM."""
    import logging

    from failback.analytics.exporter.server import ExporterSettings, serve
    from failback.analytics.exporter.server import offset_file as parsed

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    addresses = (namesrv or os.environ.get("NAMESRV_ADDR", "")).split(";")
    settings = ExporterSettings(
        name_servers=tuple(filter(None, map(str.strip, addresses))),
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
