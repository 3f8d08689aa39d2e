"""``failback collect``: the collector, and tokens for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from failback.cli.shared.errors import guarded
from failback.cli.shared.output import note

app = typer.Typer(
    help="Take segments of consume logs over HTTP and write them into a lake.",
    invoke_without_command=True,
)
_DAY_SECONDS = 86_400.0
_MIB = 1024 * 1024

TokensOption = Annotated[Path, typer.Option("--tokens", help="The token file.")]


@app.callback(invoke_without_command=True)
@guarded
def collect(
    context: typer.Context,
    root: Annotated[
        Path, typer.Option("--root", help="Holds lake/, incoming/ and quarantine/.")
    ] = Path("collected"),
    lake: Annotated[
        str | None,
        typer.Option("--lake", help="Where the lake is if not in --root: s3://bucket/prefix."),
    ] = None,
    tokens: TokensOption = Path("tokens"),
    host: Annotated[str, typer.Option("--host")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port")] = 8095,
    keep_days: Annotated[
        float | None, typer.Option("--keep-days", help="Delete runs without news for so long.")
    ] = None,
    max_store_mib: Annotated[
        int | None, typer.Option("--max-store-mib", help="Most that the lake may hold.")
    ] = None,
    min_free_mib: Annotated[
        int, typer.Option("--min-free-mib", help="Take nothing when less is free.")
    ] = 256,
    queue_mib: Annotated[
        int, typer.Option("--queue-mib", help="Most that may wait in memory.")
    ] = 256,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key")] = None,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", help="Serve /metrics without a token here.")
    ] = None,
    metrics_host: Annotated[str, typer.Option("--metrics-host")] = "127.0.0.1",
) -> None:
    """Run the collector until SIGTERM."""
    if context.invoked_subcommand is not None:
        return
    import logging

    from failback.analytics.collector.serve import serve
    from failback.analytics.collector.settings import CollectorSettings

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
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
        )
    )


@app.command("token")
@guarded
def token(
    scope: Annotated[
        list[str],
        typer.Option("--scope", help="read, operate, ingest:RUN or ingest:*; repeatable."),
    ],
    name: Annotated[str, typer.Option("--name", help="For people reading the file.")],
    tokens: TokensOption = Path("tokens"),
) -> None:
    """Make a token, add its hash to the token file, and print the token alone.

    It is shown only now. For a file: failback collect token ... > agents.token
    """
    from failback.analytics.web.tokens import check_scope, digest_of, new_token

    scopes = ",".join(check_scope(each) for each in scope)
    made = new_token()
    words = name.split() or ["unnamed"]
    fd = os.open(tokens, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "a", encoding="utf-8") as file:
        file.write(f"{digest_of(made)} {scopes} {'-'.join(words)}\n")
    note(f"added to {tokens}; the line on stdout is the token, and it is stored nowhere:")
    print(made)
