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
RUNS: Final = Path("runs")


def open_root(path: Path | None) -> Root:
    """Return the folder of the local cluster: the one named, else the default."""
    from failback.operator.local.root import Root, default_root

    return Root(path if path is not None else default_root())
