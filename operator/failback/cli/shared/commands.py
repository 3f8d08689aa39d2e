"""How a command is declared: its examples, its help in a narrow terminal, folded options."""

from __future__ import annotations

import inspect
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup

from failback.cli.shared.errors import INCONCLUSIVE, PASS, USER_ERROR, fail, guarded
from failback.common.text import where_and_why

CONNECTION: Final = "Connection"
"""The panel of the options that say which cluster a command asks; help folds them to a line."""

UsageError: Final = cast("type[Exception]", typer.BadParameter.__bases__[0])
"""What the parser raises for a command line that it can't read."""
ENOUGH_TO_FOLD: Final = 5
"""A command with fewer connection options lists them itself."""
NARROW: Final = 60
"""Below this width help is plain text: the columns of a panel would be cut off."""


class _InBothWidths:
    """Help in panels, and in plain text in a narrow terminal."""

    rich_markup_mode: Any
    params: list[Any]
    epilog: str | None

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, each with what the help shows for its value."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            each.metavar = _shown_value(each)
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        columns = shutil.get_terminal_size().columns
        self.rich_markup_mode = "rich" if columns >= NARROW else None
        formatter.width = columns
        folded = [each for each in self.params if is_of_connection(each)]
        epilog = self.epilog
        if len(folded) >= ENOUGH_TO_FOLD:
            names = ", ".join(min(each.opts, key=len) for each in folded if "tls_" not in each.name)
            line = f"cluster: {names}...; see `failback help connection`"
            self.epilog = "\n\n".join(["\b\n" + line, *filter(None, [epilog])])
            for each in folded:
                each.hidden = True
        super().format_help(ctx, formatter)  # type: ignore[misc]
        self.epilog = epilog
        for each in folded:
            each.hidden = False


def is_of_connection(parameter: Any) -> bool:
    """Whether an option says which cluster a command asks, or how."""
    return getattr(parameter, "rich_help_panel", None) == CONNECTION


def _shown_value(parameter: Any) -> str:
    """Return FILE, local|kube, nothing for a switch, and GROUP... for what may be repeated."""
    if getattr(parameter, "is_flag", False):
        return ""
    kind = parameter.type_descriptor.annotation
    shown = str(parameter.metavar or parameter.name.upper())
    if parameter.metavar is None and isinstance(kind, type) and issubclass(kind, Enum):
        shown = "|".join(str(each.value) for each in kind)
    may_be_repeated = getattr(parameter, "multiple", False) or parameter.nargs != 1
    return f"{shown.removesuffix('...')}..." if may_be_repeated else shown


class Command(_InBothWidths, TyperCommand):
    """A command."""


class Group(_InBothWidths, TyperGroup):
    """A group of commands; without one of them it shows its help and ends with 0."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each panel, for a help in plain text."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, each in self.commands.items():
            if not each.hidden:
                panel = getattr(each, "rich_help_panel", None) or "Commands"
                text = inspect.cleandoc(each.help or "").partition("\n\n")[0]
                panels.setdefault(panel, []).append((name, " ".join(text.split())))
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


@dataclass(frozen=True, slots=True)
class Declared:
    """A command: the docstring of its function is the text of its help."""

    run: Callable[..., Any]
    name: str
    examples: tuple[str, ...] = ()
    hidden: bool = False


def command(
    name: str, *examples: str, hidden: bool = False
) -> Callable[[Callable[..., Any]], Declared]:
    """Make a function a command; what it raises becomes a line on stderr and an exit code."""
    return lambda function: Declared(guarded(function), name, examples, hidden)


def add(app: typer.Typer, *commands: Declared) -> None:
    """Add commands to an app, in the order of its help."""
    for each in commands:
        end = as_epilog(each.examples)
        app.command(each.name, cls=Command, epilog=end, hidden=each.hidden)(each.run)


def new_group(text: str, *commands: Declared, examples: Sequence[str] = ()) -> typer.Typer:
    """Return a group of commands with a line of help."""
    made = typer.Typer(cls=Group, help=text, no_args_is_help=True, epilog=as_epilog(examples))
    add(made, *commands)
    return made


def as_epilog(examples: Sequence[str]) -> str | None:
    """Return the end of a help: examples, each on its line (``\\b`` keeps lines apart)."""
    return "\n".join(["\b", "Examples:", *(f"  {each}" for each in examples)]) if examples else None


def run_app(app: typer.Typer, name: str, argv: Sequence[str]) -> int:
    """Run one command line; return its exit code.

    Args:
        name: What people type for the app.
    """
    try:
        code = app(args=list(argv), prog_name=name, standalone_mode=False)
    except UsageError as error:
        problem: Any = error
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command
            print(
                problem.format_message(), end=""
            )  # help as plain text; panels are printed already
            return PASS
        fail(problem.format_message())
        path = problem.ctx.command_path if problem.ctx is not None else name
        print(f"see: {path} --help", file=sys.stderr)
        return USER_ERROR
    except OSError as error:  # help and version go to a disk that is full
        fail(where_and_why(error))
        return INCONCLUSIVE
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # of a help that `head` cut off
            return PASS
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return code if isinstance(code, int) else PASS
