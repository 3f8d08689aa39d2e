"""The root command: every group is a module of its own; their packages are imported when used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from failback.cli.administer import admin, doctor
from failback.cli.container import tools
from failback.cli.experiment import compare, demo, experiments, faults, runs
from failback.cli.light_commands import light_command
from failback.cli.local import cluster
from failback.cli.measure import explain_offset, observe, predict, report, trace
from failback.cli.servers import collect, dashboard, exporter, long_running, operator
from failback.cli.shared.commands import Group, add, as_epilog, command, is_of_connection, run_app
from failback.cli.shared.errors import Debug
from failback.cli.shared.options import argument, flag
from failback.cli.shared.output import print_table, say
from failback.client.remoting.guarded.cluster import config_file

FIRST: Final = (*("observe", "offsets", "carry", "explain-offset", "dashboard", "demo", "doctor"),)
"""The commands of an incident, in the order of the help; all others stand below them."""
UNLISTED: Final = ("broker", "namesrv", "ship", "operator")
"""What images, charts and tools of the project start: it works, and help leaves it out."""
UNLISTED_PANEL: Final = "Not in the help"


class _Root(Group):
    """The root, with the commands of an incident first."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        order = dict.fromkeys((*FIRST, *self.commands))
        self.commands = {name: self.commands[name] for name in order if name in self.commands}
        for name, each in self.commands.items():
            panel = "First" if name in FIRST else "More"
            each.rich_help_panel = UNLISTED_PANEL if name in UNLISTED else panel  # type: ignore[attr-defined]
            each.hidden = each.hidden or name in UNLISTED


app = typer.Typer(
    name="failback",
    cls=_Root,
    help="How many messages does a RocketMQ failover make you re-consume, and why?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=as_epilog(
        (
            "failback demo --quick                     see it once",
            "failback observe -n 10.0.0.1:9876         what does my cluster re-consume?",
            "failback trace --out t1                   what did my clients re-consume?",
            "failback experiment run experiment.yaml   what would a failover cost?",
            "failback doctor                           what is missing on this machine?",
        )
    ),
)


@command("version", "failback version")
def version() -> None:
    """Show the version."""
    from importlib.metadata import version as package_version

    print(f"failback {package_version('failback')}")


def _show_version(wanted: bool) -> None:
    if wanted:
        version.run()
        raise typer.Exit


@command("help", "failback help observe", "failback help connection")
def show_help(
    words: Annotated[
        list[str] | None, argument("COMMAND", "A command, or connection: how a cluster is named.")
    ] = None,
) -> None:
    """Show the help of a command, or of the options that say which cluster is asked."""
    if words != ["connection"]:
        asked = [*(words or ()), "--help"]
        light = light_command(asked)
        raise typer.Exit(light[0](light[1]) if light else run_command_line(asked))
    of_observe: Any = typer.main.get_command(app)
    shown = filter(is_of_connection, of_observe.commands["observe"].params)
    rows = [(f"{', '.join(each.opts)} {each.metavar or ''}".strip(), each.help) for each in shown]
    say("Which cluster a command asks, and how:")
    print_table(("OPTION", "MEANING"), rows)
    say(
        f"An option counts first, then $FAILBACK_NAMESRV and its like, then {config_file()},"
        " then the local cluster of `failback up`."
    )


@app.callback()
def root(
    debug: Annotated[bool, flag("--debug", "Show tracebacks.")] = False,
    version: Annotated[
        bool, flag("--version, -V, -v", "Show the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Failback: run RocketMQ pairs, break them, and count what is re-consumed."""
    Debug.on = debug


add(
    app,
    *(observe.observe, trace.trace, report.report, explain_offset.explain_offset, predict.predict),
    *(
        demo.demo,
        compare.compare,
        faults.faults,
        cluster.up,
        cluster.down,
        cluster.ps,
        cluster.logs,
    ),
    *(doctor.doctor, dashboard.dashboard, exporter.exporter),
)
long_running.register(app)
add(app, show_help, version)
app.add_typer(experiments.app, name="experiment")
app.add_typer(runs.app, name="runs")
app.add_typer(admin.app, name="admin")
app.add_typer(collect.app, name="collect")
app.add_typer(operator.app, name="operator")
app.add_typer(tools.app, name="tools", hidden=True)


def run_command_line(argv: Sequence[str]) -> int:
    """Run one command line; return its exit code."""
    return run_app(app, "failback", argv)
