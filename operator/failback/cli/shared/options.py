"""Options that several commands have, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from failback.cli.shared import names

if TYPE_CHECKING:
    from failback.operator.local.root import Root

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
TraceTopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trace-topic",
        metavar="TOPIC",
        callback=names.topics,
        help="Where the clients' trace is (default: RMQ_SYS_TRACE_TOPIC and those of regions).",
    ),
]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="FOLDER",
        help="Folder of the local cluster (default: $XDG_STATE_HOME/failback/local).",
    ),
]
RunsOption = Annotated[
    Path, typer.Option("--runs", metavar="FOLDER", help="Folder that holds the run folders.")
]
KubeconfigOption = Annotated[
    str,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="How to reach Kubernetes (default: $KUBECONFIG, else ~/.kube/config).",
    ),
]
TlsCertOption = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="Certificate to serve HTTPS with, PEM."),
]
TlsKeyOption = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of --tls-cert, PEM.")
]
HostOption = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")]
PortOption = Annotated[
    int,
    typer.Option(
        "--port", metavar="PORT", min=0, max=65_535, help="Port to listen on; 0: any that is free."
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65_535,
        help="Serve /metrics without a token on this port, too.",
    ),
]
MetricsHostOption = Annotated[
    str,
    typer.Option("--metrics-host", metavar="ADDRESS", help="Address to listen on for /metrics."),
]
ConnectionsOption = Annotated[
    int,
    typer.Option(
        "--connections",
        metavar="N",
        min=1,
        help="Most connections at a time; further ones are closed.",
    ),
]
ConnectionsPerAddressOption = Annotated[
    int,
    typer.Option(
        "--connections-per-address",
        metavar="N",
        min=1,
        help="The same from one address; a proxy is one.",
    ),
]
RUNS: Final = Path("runs")


def open_root(path: Path | None) -> Root:
    """Return the folder of the local cluster: the one named, else the default."""
    from failback.operator.local.root import Root, default_root

    return Root(path if path is not None else default_root())
