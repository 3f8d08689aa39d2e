"""The root command: every group is a module of its own; their packages are imported when used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version as package_version
from typing import Annotated

import typer

from failback.cli.administer import admin
from failback.cli.container import tools
from failback.cli.experiment import demo, run
from failback.cli.local import cluster
from failback.cli.measure import explain_offset, predict, report, trace
from failback.cli.servers import collect, dashboard, exporter, long_running, operator
from failback.cli.shared.errors import Debug

app = typer.Typer(
    name="failback",
    help="How many messages does a RocketMQ failover make you consume again, and why?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"failback {package_version('failback')}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Failback: run RocketMQ pairs, break them, and count what is consumed again."""
    Debug.on = debug


demo.register(app)
cluster.register(app)
run.register(app)
report.register(app)
trace.register(app)
predict.register(app)
dashboard.register(app)
explain_offset.register(app)
exporter.register(app)
long_running.register(app)
app.add_typer(admin.app, name="admin")
app.add_typer(collect.app, name="collect")
app.add_typer(operator.app, name="operator")
app.add_typer(tools.app, name="tools")


def run_command_line(argv: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    try:
        app(args=list(argv), prog_name="failback")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0
