"""The commands of parsers of their own, such as ``broker``, in the list of commands.

They start before typer is imported (:mod:`failback.cli.light_commands`). This module shows them in
``failback --help``, completes their words and runs them for callers of the app.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from failback.cli.light_commands import light_command, parser_of
from failback.cli.shared.commands import Command
from failback.cli.shared.errors import guarded

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def register(app: typer.Typer) -> None:
    """Add the commands to the root."""
    for name, text in (
        ("broker", "Run one broker of a broker.conf."),
        ("namesrv", "Run one name server."),
        ("ship", "Put finished consume logs into a lake, or send them to a collector."),
        ("carry", "Give a master what its slaves know, before it starts."),
        ("offsets", "Save consumer offsets of all queues, and give them back."),
        ("lake", "Look after a lake: fsck, compact, convert, normalise."),
        ("workload", "Produce and consume with the consume log on, against any RocketMQ."),
    ):
        declare = app.command(
            name, help=text, cls=_Light, context_settings=_PASS_ON, add_help_option=False
        )
        declare(_pass_on)


class _Light(Command):
    """A command that a parser of its own reads, which knows what can be completed."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        parser = parser_of([str(self.name)])
        for word in ctx.args:
            parser = parser.commands().get(word, parser) if parser is not None else None
        if parser is None:
            return []
        options = [max(e.option_strings, key=len) for e in parser.parameters() if e.option_strings]
        words = options if incomplete.startswith("-") else list(parser.commands())
        # The parser that typer brings along may be its own or click's.
        base = TyperCommand.__base__.__module__.rpartition(".")[0]
        item = import_module(f"{base}.shell_completion").CompletionItem
        return [item(word) for word in words if word.startswith(incomplete)]


@guarded
def _pass_on(context: typer.Context) -> None:
    light = light_command([str(context.info_name), *context.args])
    assert light is not None, "the registered commands are light ones"
    command, rest = light
    raise typer.Exit(command(rest))
