"""``failback tools``: small commands that containers run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failback.cli.shared.errors import guarded
from failback.cli.shared.output import say
from failback.protocol.errors import ConfigError

app = typer.Typer(help="Small commands that containers run.", no_args_is_help=True)


@app.callback()
def tools() -> None:
    """Small commands that containers run."""


@app.command("install-conf")
@guarded
def install_conf(
    source: Annotated[Path, typer.Option("--from", help="The file as mounted.")],
    target: Annotated[Path, typer.Option("--to", help="Where the broker may rewrite it.")],
) -> None:
    """Copy a configuration file, putting in the pod's address and home."""
    from failback.cli.container.install_conf import main

    raise typer.Exit(main(["--from", str(source), "--to", str(target)]))


@app.command("verify-prefix")
@guarded
def verify_prefix(
    conf: Annotated[Path, typer.Option("--conf", help="The broker's configuration file.")],
    seconds: Annotated[float, typer.Option("--seconds", help="Wait so long for the master.")] = 60,
    records: Annotated[int, typer.Option("--records", help="Compare the last so many.")] = 64,
) -> None:
    """Check that a slave's log is the beginning of its master's."""
    from failback.cli.container.verify_prefix import main

    words = ["--conf", str(conf), "--seconds", str(seconds), "--records", str(records)]
    raise typer.Exit(main(words))


@app.command("remove-finalizers")
@guarded
def remove_finalizers(
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", help="Where; may be repeated. None = all.")
    ] = None,
    stop: Annotated[
        str, typer.Option("--stop", help="NAMESPACE/NAME of the operator's Deployment.")
    ] = "",
) -> None:
    """Stop the operator and free its custom resources: before it is uninstalled."""
    from failback.kube.blocking import BlockingKube
    from failback.operator.kubernetes import helm_hooks

    api = BlockingKube.connect()
    if stop:
        helm_hooks.stop_deployment(api, *_namespaced(stop), say)
    count = helm_hooks.remove_finalizers(api, namespace or [], say)
    say(f"{count} finalizers removed")


@app.command("allow-chaos")
@guarded
def allow_chaos(
    namespace: Annotated[list[str], typer.Option("--namespace", help="May be repeated.")],
) -> None:
    """Label namespaces so that experiments may run in them."""
    from failback.kube.blocking import BlockingKube
    from failback.operator.kubernetes import helm_hooks

    helm_hooks.allow_chaos(BlockingKube.connect(), namespace, say)


def _namespaced(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise ConfigError("--stop", f'expected NAMESPACE/NAME, got "{text}"')
    return namespace, name
