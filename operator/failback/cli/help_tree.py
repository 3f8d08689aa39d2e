"""All commands with their pages: what the reference and the tests of the help walk through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

from failback.cli.light_commands import parser_of
from failback.cli.shared.commands import page_of
from failback.client.program.command_line import CommandParser
from failback.protocol.words.help_page import Page


class Documented(NamedTuple):
    """A command as it is typed, and its page of help."""

    name: str
    page: Page


def commands(app: typer.Typer, name: str = "failback") -> Iterator[Documented]:
    """Yield the root and every command below it that is not hidden, in the order of the help.

    Args:
        name: What people type for the app.
    """
    root: Any = typer.main.get_command(app)
    with root.make_context(name, [], resilient_parsing=True) as context:
        yield from _below(root, context)


def _below(command: Any, context: Any) -> Iterator[Documented]:
    path = context.command_path
    parser = parser_of(path.split()[1:]) if path.startswith("failback ") else None
    if parser is not None:
        yield from _of_parser(path, parser)
        return
    yield Documented(path, page_of(command, context))
    for name, each in getattr(command, "commands", {}).items():
        if each.hidden:
            continue
        with each.make_context(name, [], parent=context, resilient_parsing=True) as below:
            yield from _below(each, below)


def _of_parser(path: str, parser: CommandParser) -> Iterator[Documented]:
    yield Documented(path, parser.page())
    for name, each in parser.commands().items():
        yield from _of_parser(f"{path} {name}", each)
