"""``failback collect``: the collector, and tokens for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failback.analytics.collector.settings import CollectorSettings
from failback.cli.shared.commands import Group, add, as_epilog, command
from failback.cli.shared.errors import guarded
from failback.cli.shared.options import option
from failback.cli.shared.output import note
from failback.cli.shared.settings_options import Typed, settings_options

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


@app.callback(invoke_without_command=True)
@guarded
@settings_options(CollectorSettings)
def collect(context: typer.Context, settings: Typed[CollectorSettings]) -> None:
    """Run the collector until SIGTERM."""
    if context.invoked_subcommand is not None:
        return
    from failback.analytics.collector.serve import serve
    from failback.client.program import begin_logging

    begin_logging()
    serve(settings.make())


@command("token", "failback collect token --scope 'ingest:*' --name agents > agents.token")
def token(
    scope: Annotated[
        list[str], option("--scope", "SCOPE", "What it may do: read, operate, ingest:*.")
    ],
    name: Annotated[str, option("--name", "NAME", "Whose it is, for readers of the file.")],
    tokens: Annotated[Path, option("--tokens", "FILE", "The token file.")] = Path("tokens"),
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


add(app, token)
