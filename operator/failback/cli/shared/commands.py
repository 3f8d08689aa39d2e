"""How a command is declared: its group in the help, its examples, its page and its mistakes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

from failback.client.program.command_line import NUMBER, WHOLE_NUMBER, terminal_width
from failback.common.text import did_you_mean
from failback.protocol.words.help_page import Page, Row, Section, option_name, option_text

MEASURE: Final = "Measure a cluster"
EXPERIMENT: Final = "Experiments"
LOCAL: Final = "Local cluster"
ADMINISTER: Final = "Administer"
SERVERS: Final = "Servers"
PANELS: Final = (MEASURE, EXPERIMENT, LOCAL, ADMINISTER, SERVERS)

UsageError: Final = cast("type[Exception]", typer.BadParameter.__bases__[0])
"""What the parser raises for a command line that it can't read."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Command(TyperCommand):
    """A command whose help is one plain page."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(page_of(self, ctx).in_width(terminal_width()))


class Group(TyperGroup):
    """A group of commands; without one of them it shows its page and ends with 0."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(page_of(self, ctx).in_width(terminal_width()))


def new_group(text: str, *, examples: Sequence[str] = ()) -> typer.Typer:
    """Return a group of commands with a line of help."""
    return typer.Typer(
        cls=Group, help=text, no_args_is_help=True, epilog="\n".join(examples) or None
    )


def add(
    app: typer.Typer,
    function: _Function,
    name: str,
    *,
    panel: str | None = None,
    examples: Sequence[str] = (),
    hidden: bool = False,
    cls: type[Command] = Command,
    **settings: Any,
) -> _Function:
    """Add ``function`` as a command; its docstring is the text of its help."""
    declare = app.command(
        name,
        cls=cls,
        rich_help_panel=panel,
        epilog="\n".join(examples) or None,
        hidden=hidden,
        **settings,
    )
    return declare(function)


def page_of(command: Any, context: Any) -> Page:
    """Return the help of a command or a group as a page."""
    parameters = [
        each for each in command.get_params(context) if not getattr(each, "hidden", False)
    ]
    options = [each for each in parameters if each.param_type_name == "option"]
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    sections = [
        *_command_sections(command, context),
        Section(
            "Arguments", tuple(Row(_argument_name(each), each.help or "") for each in arguments)
        ),
        Section("Options", tuple(map(_option_row, options))),
    ]
    return Page(
        " ".join([context.command_path, *_usage(command, arguments)]),
        inspect.cleandoc(command.help or ""),
        tuple(each for each in sections if each.rows),
        tuple((command.epilog or "").splitlines()),
    )


def _usage(command: Any, arguments: Sequence[Any]) -> Iterator[str]:
    yield "[OPTIONS]"
    for each in arguments:
        yield _argument_name(each) if each.required else f"[{_argument_name(each)}]"
    if isinstance(command, TyperGroup):
        yield "COMMAND ..."


def _command_sections(command: Any, context: Any) -> Iterator[Section]:
    if not isinstance(command, TyperGroup):
        return
    found: dict[str, list[Row]] = {}
    for name in command.list_commands(context):
        each: Any = command.get_command(context, name)
        if each is None or each.hidden:
            continue
        text = inspect.cleandoc(each.help or "").partition("\n\n")[0]
        panel = getattr(each, "rich_help_panel", None) or "Commands"
        found.setdefault(panel, []).append(Row(name, " ".join(text.split())))
    for title in sorted(found, key=lambda each: PANELS.index(each) if each in PANELS else -1):
        yield Section(title, tuple(found[title]))


def _argument_name(argument: Any) -> str:
    name = str(argument.metavar or argument.name).upper()
    return f"{name}..." if argument.nargs != 1 else name


def _option_row(option: Any) -> Row:
    if option.is_flag:
        names = [*option.opts, *(option.secondary_opts or ())]
        default = option.opts[0] if option.secondary_opts and option.default else ""
        return Row(option_name(names), option_text(option.help or "", default=default))
    repeatable = bool(option.multiple)
    text = option_text(
        option.help or "",
        default="" if option.required else _shown(option.default),
        required=bool(option.required),
        repeatable=repeatable,
    )
    return Row(option_name(option.opts, value_name(option)), text)


def value_name(option: Any) -> str:
    """Return what stands for the value of an option: FILE, N, local|kube."""
    if option.metavar:
        return str(option.metavar)
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "|".join(str(each.value) for each in annotation)
    return str(option.name).upper()


def _shown(default: Any) -> str:
    if default is None or default == "" or default is False or callable(default):
        return ""
    if isinstance(default, (list, tuple)):
        return ", ".join(map(str, default))
    return str(default.value if isinstance(default, Enum) else default)


def is_bare_group(error: Exception) -> bool:
    """Tell whether a group was called without a command, which shows its page."""
    return type(error).__name__ == "NoArgsIsHelpError"


def usage_problem(error: Exception) -> str:
    """Return what is wrong with a command line, in one sentence that names the word."""
    name = _word_of(error)
    message = str(getattr(error, "message", "") or error)
    if type(error).__name__ == "MissingParameter":
        return f"{name}: is missing"
    if type(error).__name__ == "NoSuchOption":
        return f"{name}: there is no such option{did_you_mean(name, _options_of(error))}"
    if found := re.match(r"No such command '(.*?)'", message):
        return f"{found[1]}: there is no such command{did_you_mean(found[1], _commands_of(error))}"
    if found := re.match(r"Got unexpected extra argument\S* \((.*)\)", message):
        word = found[1].split(" ")[0]
        return f"{word}: is one argument too many"
    if found := re.match(r"Option '(.*?)' requires", message):
        return f"{found[1]}: needs a value"
    if found := re.match(r"Option '(.*?)' does not take a value", message):
        return f"{found[1]}: takes no value"
    return f"{name}: {_value_problem(error, message)}" if name else message


def help_command(error: Exception) -> str:
    """Return what to type for the help of the command that was meant."""
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context is not None else 'failback'} --help"


def _word_of(error: Exception) -> str:
    named = getattr(error, "option_name", None)
    if named:
        return str(named)
    parameter = getattr(error, "param", None)
    if parameter is None:
        return ""
    if parameter.param_type_name == "argument":
        return _argument_name(parameter).removesuffix("...")
    return str(max(parameter.opts, key=len))


def _options_of(error: Exception) -> list[str]:
    context = getattr(error, "ctx", None)
    if context is None:
        return []
    return [name for each in context.command.get_params(context) for name in each.opts]


def _commands_of(error: Exception) -> Iterable[str]:
    context = getattr(error, "ctx", None)
    return [] if context is None else list(getattr(context.command, "commands", {}))


def _value_problem(error: Exception, message: str) -> str:
    """Return the problem of a value; the checker of types says which rule was broken."""
    cause: Any = error.__cause__
    if not hasattr(cause, "errors"):
        return message[:1].lower() + message[1:].rstrip(".")
    (first, *_) = cause.errors()
    got = f', got "{first["input"]}"'
    limits = first.get("ctx") or {}
    kind = str(first["type"])
    if kind.startswith("int"):
        return f"{WHOLE_NUMBER}{got}"
    if kind.startswith("float"):
        return f"{NUMBER}{got}"
    for limit, words in (("ge", "at least"), ("le", "at most"), ("gt", "above"), ("lt", "below")):
        if limit in limits:
            return f"must be {words} {limits[limit]:g}{got}"
    if found := re.search(r"is not one of (.*?)\.?$", str(first["msg"])):
        known = [each.strip("' ") for each in found[1].split(",")]
        near = did_you_mean(str(first["input"]), known)
        return f"must be one of {', '.join(known)}{got}{near}"
    return f"{first['msg']}{got}"
