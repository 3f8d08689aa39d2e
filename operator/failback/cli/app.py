"""The root command: every group is a module of its own; their packages are imported when used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from failback.cli.administer import admin, doctor
from failback.cli.container import tools
from failback.cli.experiment import demo, experiments, faults, runs
from failback.cli.local import cluster
from failback.cli.measure import explain_offset, observe, predict, report, trace
from failback.cli.servers import collect, dashboard, exporter, long_running, operator
from failback.cli.shared.commands import ADMINISTER, SERVERS, Group, as_epilog, run_app
from failback.cli.shared.errors import Debug

app = typer.Typer(
    name="failback",
    cls=Group,
    help="How many messages does a RocketMQ failover make you consume again, and why?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=as_epilog(
        (
            "failback demo --quick                     see it once",
            "failback trace --out t1                   what did my clients consume again?",
            "failback experiment run experiment.yaml   what would a failover cost?",
            "failback doctor                           what is missing on this machine?",
        )
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version as package_version

        print(f"failback {package_version('failback')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Failback: run RocketMQ pairs, break them, and count what is consumed again."""
    Debug.on = debug


for module in (
    *(observe, trace, report, explain_offset, predict),
    *(demo, experiments, runs, faults),
    cluster,
):
    module.register(app)
doctor.register(app)
app.add_typer(admin.app, name="admin", rich_help_panel=ADMINISTER)
for server in (dashboard, exporter, long_running):
    server.register(app)
app.add_typer(collect.app, name="collect", rich_help_panel=SERVERS)
app.add_typer(operator.app, name="operator", rich_help_panel=SERVERS)
app.add_typer(tools.app, name="tools", hidden=True)


def run_command_line(argv: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    return run_app(app, "failback", argv)
