"""``broker``, ``namesrv`` and ``workload`` in the list of commands.

They are started before typer (see :mod:`failback.cli.light_commands`); what stands here shows them
in ``failback --help`` and serves callers that come through the app.
"""

from __future__ import annotations

import typer

from failback.cli.light_commands import light_command
from failback.cli.shared.errors import guarded

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def register(app: typer.Typer) -> None:
    """Add the commands to the root."""
    for name, text in (
        ("broker", "Run one broker: failback broker -c broker.conf"),
        ("namesrv", "Run one name server: failback namesrv -c namesrv.conf"),
        ("workload", "Produce and consume with the consume log on, against any RocketMQ."),
    ):
        app.command(name, help=text, context_settings=_PASS_ON, add_help_option=False)(_pass_on)


@guarded
def _pass_on(context: typer.Context) -> None:
    light = light_command([str(context.info_name), *context.args])
    assert light is not None, "the registered commands are light ones"
    command, rest = light
    raise typer.Exit(command(rest))
