"""``failback collect``: the collector, and tokens for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failback.cli.shared.commands import Command, Group, as_epilog
from failback.cli.shared.errors import guarded
from failback.cli.shared.options import (
    ConnectionsOption,
    ConnectionsPerAddressOption,
    HostOption,
    MetricsHostOption,
    MetricsPortOption,
    PortOption,
    TlsCertOption,
    TlsKeyOption,
)
from failback.cli.shared.output import note

app = typer.Typer(
    cls=Group,
    help="Take segments of consume logs over HTTP and write them into a lake.",
    invoke_without_command=True,
    epilog=as_epilog(
        (
            "failback collect token --scope 'ingest:*' --name agents > agents.token",
            "failback collect --root /var/lib/failback",
        )
    ),
)
_DAY_SECONDS = 86_400.0
_MIB = 1024 * 1024

TokensOption = Annotated[Path, typer.Option("--tokens", metavar="FILE", help="The token file.")]


_RootOption = Annotated[
    Path,
    typer.Option("--root", metavar="FOLDER", help="Holds lake/, incoming/ and quarantine/."),
]
_LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="LAKE",
        help="Where the lake is: a folder or s3://bucket/prefix (default: in --root).",
    ),
]
_KeepDaysOption = Annotated[
    float | None,
    typer.Option(
        "--keep-days",
        metavar="DAYS",
        help="Delete runs without news for so long (default: never).",
    ),
]
_MaxStoreMibOption = Annotated[
    int | None,
    typer.Option(
        "--max-store-mib",
        metavar="MIB",
        help="Most that the lake may hold (default: all there is).",
    ),
]
_MinFreeMibOption = Annotated[
    int, typer.Option("--min-free-mib", metavar="MIB", help="Take nothing when less is free.")
]
_QueueMibOption = Annotated[
    int, typer.Option("--queue-mib", metavar="MIB", help="Most that may wait in memory.")
]


@app.callback(invoke_without_command=True)
@guarded
def collect(
    context: typer.Context,
    root: _RootOption = Path("collected"),
    lake: _LakeOption = None,
    tokens: TokensOption = Path("tokens"),
    host: HostOption = "127.0.0.1",
    port: PortOption = 8095,
    keep_days: _KeepDaysOption = None,
    max_store_mib: _MaxStoreMibOption = None,
    min_free_mib: _MinFreeMibOption = 256,
    queue_mib: _QueueMibOption = 256,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = "127.0.0.1",
    connections: ConnectionsOption = 1024,
    connections_per_address: ConnectionsPerAddressOption = 256,
) -> None:
    """Run the collector until SIGTERM."""
    if context.invoked_subcommand is not None:
        return
    from failback.analytics.collector.serve import serve
    from failback.analytics.collector.settings import CollectorSettings
    from failback.client.program.log_lines import begin_logging
    from failback.client.remoting.http_limits import HttpBounds

    begin_logging()
    serve(
        CollectorSettings(
            root=root,
            lake=lake,
            tokens=tokens,
            host=host,
            port=port,
            keep_seconds=None if keep_days is None else keep_days * _DAY_SECONDS,
            max_store_bytes=None if max_store_mib is None else max_store_mib * _MIB,
            min_free_bytes=min_free_mib * _MIB,
            queue_bytes=queue_mib * _MIB,
            tls_cert=tls_cert,
            tls_key=tls_key,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
            bounds=HttpBounds(connections, connections_per_address),
        )
    )


@app.command(
    "token",
    cls=Command,
    epilog=as_epilog(["failback collect token --scope 'ingest:*' --name agents > agents.token"]),
)
@guarded
def token(
    scope: Annotated[
        list[str],
        typer.Option("--scope", metavar="SCOPE", help="What it may do: read, operate, ingest:*."),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Whose it is, for readers of the file.")
    ],
    tokens: TokensOption = Path("tokens"),
) -> None:
    """Make a token, add its hash to the token file, and print the token alone.

    It is shown only now.
    """
    from failback.analytics.web.tokens import check_scope, digest_of, new_token
    from failback.common.files import append_line

    scopes = ",".join(check_scope(each) for each in scope)
    made = new_token()
    words = name.split() or ["unnamed"]
    append_line(tokens, f"{digest_of(made)} {scopes} {'-'.join(words)}".encode(), mode=0o600)
    note(f"added to {tokens}; the line on stdout is the token, and it is stored nowhere:")
    print(made)
