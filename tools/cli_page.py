"""Write docs/reference/cli.md: ``python tools/cli_page.py``.

Everything about a command comes from the command itself; a test compares.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from failback.cli.app import UNLISTED_PANEL, app
from failback.cli.kubectl.__main__ import NAME
from failback.cli.kubectl.__main__ import app as plugin
from failback.cli.light_commands import parser_of
from failback.cli.shared.commands import ENOUGH_TO_FOLD
from failback.client.program import CommandParser

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
_WIDTH: Final = 100
_HEAD: Final = """# Command line

Made by `python tools/cli_page.py`.

`failback COMMAND -h` shows what stands here. `failback --install-completion` adds completion to
your shell. Answers go to stdout, notes and errors to stderr; `--json` prints answers for programs.
Below 60 columns help is plain text. `NO_COLOR` switches colours off. The plugin of kubectl,
[kubectl failback](#kubectl-failback), is at the end.

## Exit codes

| code | meaning |
|---|---|
| 0 | done; of runs and reports: Pass |
| 1 | the answer is no: Fail, a limit missed, what was asked about is nowhere |
| 2 | the input is wrong: a word on the command line, a file, an address |
| 3 | nothing can be said: Inconclusive, interrupted, nobody answered |
| 4 | a guard refused; nothing was done |
| 5 | something that a run did is still in place: `failback experiment heal RUN` |

Of several runs the code that most needs a person counts: 5, 2, 4, 1, 3, 0. Servers have codes of
their own besides: a broker ends with 74 when its disk failed, and with 253 when its store can't be
opened.
"""


_CONNECTION: Final = """\
Where a command asks a cluster, `--namesrv` is `HOST:PORT;HOST:PORT`. Without it
`$FAILBACK_NAMESRV` counts, then `$NAMESRV_ADDR`, then `namesrv` in
`~/.config/failback/config.toml`, and without that the local cluster that `failback up` started.
Access keys and TLS are found in the same order: [guarded clusters](../howto/guarded-cluster.md).
"""
_OF_A_CONNECTION: Final = frozenset(
    {"--namesrv", "--root", "--access-key-file", "--tls", "--tls-ca", "--tls-cert"}
    | {"--tls-key", "--tls-server-name"}
)


class Row(NamedTuple):
    """An option or argument as it is typed, and its text."""

    name: str
    text: str


class Command(NamedTuple):
    """A command or group as it is typed, and what its help says."""

    name: str
    text: str
    usage: str
    examples: tuple[str, ...]
    arguments: tuple[Row, ...]
    options: tuple[Row, ...]
    below: tuple[Command, ...]
    panel: str = "Commands"

    @property
    def last_word(self) -> str:
        return self.name.split()[-1]

    @property
    def only_holds_commands(self) -> bool:
        """Whether it is a group without options or arguments of its own."""
        return bool(self.below) and len(self.options) == 1 and not self.arguments


def command_tree(of: typer.Typer, name: str = "failback") -> Command:
    """Return the root with every command below it that is not hidden, in the order of the help.

    Args:
        name: What people type for the app.
    """
    root: Any = typer.main.get_command(of)
    with root.make_context(name, [], resilient_parsing=True) as context:
        return _of_click(root, context)


def _of_click(command: Any, context: Any) -> Command:
    path = context.command_path
    panel = getattr(command, "rich_help_panel", None) or "Commands"
    parser = parser_of(path.split()[1:]) if path.startswith("failback ") else None
    if parser is not None:
        return _of_parser(parser)._replace(panel=panel)
    shown = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    below = []
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden or getattr(each, "rich_help_panel", None) == UNLISTED_PANEL:
            with each.make_context(name, [], parent=context, resilient_parsing=True) as inner:
                below.append(_of_click(each, inner))
    return Command(
        path,
        inspect.cleandoc(command.help or ""),
        command.get_usage(context).removeprefix("Usage: "),
        tuple(each.strip() for each in (command.epilog or "").splitlines()[2:]),
        tuple(Row(each.metavar, each.help or "") for each in arguments),
        tuple(_click_option(each) for each in shown if each not in arguments),
        tuple(below),
        panel,
    )


def _click_option(option: Any) -> Row:
    names = [*option.opts, *option.secondary_opts]
    if option.is_flag:
        on_by_default = option.secondary_opts and option.default
        return Row(
            _option_name(names), _noted(option.help, option.opts[0] if on_by_default else None)
        )
    value = option.metavar.removesuffix("...")
    default = None if option.required or callable(option.default) else option.default
    text = _noted(option.help, default, required=option.required, repeatable=option.multiple)
    return Row(_option_name(names, value), text)


def _of_parser(parser: CommandParser) -> Command:
    shown = parser.parameters()
    arguments = [each for each in shown if not each.option_strings]
    return Command(
        parser.prog,
        parser.description or "",
        " ".join(parser.format_usage().removeprefix("usage: ").split()),
        parser.examples,
        tuple(
            Row(f"{each.metavar}{'...' * (each.nargs in ('+', '*'))}", each.help or "")
            for each in arguments
        ),
        tuple(_parser_option(each) for each in shown if each.option_strings),
        tuple(map(_of_parser, parser.commands().values())),
    )


def _parser_option(option: argparse.Action) -> Row:
    choices = "|".join(map(str, option.choices or ()))
    value = "" if option.nargs == 0 else choices or str(option.metavar or option.dest.upper())
    text = (option.help or "") % vars(option)
    return Row(_option_name(option.option_strings, value), _noted(text, required=option.required))


def _option_name(names: Sequence[str], value: str = "") -> str:
    ordered = sorted(names, key=lambda each: each.startswith("--"))
    return f"{', '.join(ordered)} {value}".strip()


def _noted(
    text: str | None, default: Any = None, *, required: bool = False, repeatable: bool = False
) -> str:
    notes = ["required"] * required + ["repeatable"] * repeatable
    default = default.value if isinstance(default, Enum) else default
    if default not in (None, "", (), []) and default is not False:
        values = default if isinstance(default, list | tuple) else [default]
        notes.append(f"default: {', '.join(map(str, values))}")
    return f"{text or ''} ({'; '.join(notes)})" if notes else text or ""


def render() -> str:
    """Return the page."""
    root = command_tree(app)
    parts = [_HEAD, "## Commands\n"]
    for panel in dict.fromkeys(each.panel for each in root.below):
        parts.append(f"**{panel}**\n")
        for each in root.below:
            if each.panel == panel:
                parts += _overview(each)
        parts.append("")
    connection = _connection_options(root)
    parts += ["## Connection options\n", _CONNECTION, "Options:", ""]
    parts += [line for row in connection for line in _row(row)]
    parts.append("")
    for each in (*root.below, command_tree(plugin, NAME)):
        parts += _chapters(each, connection)
    return "\n".join(parts)


def _connection_options(root: Command) -> tuple[Row, ...]:
    """Return the options that all commands have which ask a cluster: those of ``observe``."""
    (observe,) = (each for each in root.below if each.last_word == "observe")
    return tuple(each for each in observe.options if _long_name(each) in _OF_A_CONNECTION)


def _long_name(option: Row) -> str:
    return next(word for word in option.name.replace(",", "").split() if word.startswith("--"))


def _overview(command: Command, depth: int = 0) -> Iterator[str]:
    anchor = command.name.replace(" ", "-").lower()
    word = command.last_word
    name = word if command.only_holds_commands else f"[{word}](#{anchor})"
    (first, *_) = command.text.split("\n\n")
    yield from _entry(name, " ".join(first.split()), depth)
    if command.only_holds_commands:
        for each in command.below:
            yield from _overview(each, depth + 1)


def _chapters(command: Command, connection: tuple[Row, ...]) -> Iterator[str]:
    """Yield the lines of a command and of those below it; a mere group has no chapter."""
    if not command.only_holds_commands:
        yield from _chapter(command, connection)
    for each in command.below:
        yield from _chapters(each, connection)


def _chapter(command: Command, connection: tuple[Row, ...]) -> Iterator[str]:
    yield from (f"## {command.name}", "")
    for paragraph in filter(None, command.text.split("\n\n")):
        yield from (*textwrap.wrap(" ".join(paragraph.split()), _WIDTH), "")
    yield from ("```text", *textwrap.wrap(command.usage, 88, subsequent_indent="  "), "```", "")
    if command.examples:
        yield from ("Examples:", "", "```text", *command.examples, "```", "")
    if command.below:
        yield from ("Commands:", "")
        for each in command.below:
            yield from _overview(each)
        yield ""
    if command.arguments:
        yield from ("Arguments:", "")
        for row in command.arguments:
            yield from _row(row)
        yield ""
    yield from ("Options:", "")
    shared = [each for each in command.options if each in connection]
    if len(shared) < ENOUGH_TO_FOLD:
        shared = []
    for row in command.options:
        if row not in shared:
            yield from _row(row)
        elif row == shared[0]:
            yield from _entry("[Connection options](#connection-options)", _but(connection, shared))
    yield ""


def _but(connection: tuple[Row, ...], shared: Sequence[Row]) -> str:
    missing = [f"`{_long_name(each)}`" for each in connection if each not in shared]
    return f"all but {', '.join(missing)}." if missing else "which cluster, and how."


def _row(row: Row) -> Iterator[str]:
    yield from _entry(f"`{row.name}`", row.text)


def _entry(name: str, text: str, depth: int = 0) -> list[str]:
    # Angle brackets and stars of a text are no markup.
    plain = text.replace("*", "\\*").replace("<", "&lt;")
    indent = "    " * depth
    return textwrap.wrap(
        f"* {name}: {plain}",
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def main() -> int:
    PAGE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
