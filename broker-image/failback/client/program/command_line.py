"""Command lines that must start fast: argparse, with the pages and mistakes of all the others."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from failback.common.text import did_you_mean
from failback.protocol.words.help_page import Page, Row, Section, option_name, option_text

USER_ERROR: Final = 2
WHOLE_NUMBER: Final = "must be a whole number"
NUMBER: Final = "must be a number"
_KINDS: Final = {"int": WHOLE_NUMBER, "float": NUMBER}


def terminal_width() -> int:
    """Return the width of the terminal, of $COLUMNS, or 80."""
    return shutil.get_terminal_size().columns


def positive(text: str) -> float:
    """Read a number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'{NUMBER}, got "{text}"') from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f'must be above 0, got "{text}"')
    return value


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose help and errors look like those of every other command."""

    def __init__(self, prog: str, description: str = "", examples: Sequence[str] = ()) -> None:
        super().__init__(prog, description=description, add_help=False, allow_abbrev=False)
        self.examples = tuple(examples)
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def describe(self, description: str, *examples: str) -> None:
        """Say what a command below another one is for."""
        self.description = description
        self.examples = examples

    def page(self) -> Page:
        """Return what ``--help`` shows."""
        commands = [Row(name, each.description or "") for name, each in self._commands()]
        arguments = [each for each in self._actions if not each.option_strings]
        options = [each for each in self._actions if each.option_strings]
        options.sort(key=lambda each: "--help" in each.option_strings)
        sections = [
            Section("Commands", tuple(commands)),
            Section("Arguments", tuple(_argument(each) for each in arguments if not _is_sub(each))),
            Section("Options", tuple(map(_option, options))),
        ]
        return Page(
            self._usage(arguments),
            self.description or "",
            tuple(each for each in sections if each.rows),
            self.examples,
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the command line; a group without a command shows its page and ends with 0."""
        words = sys.argv[1:] if args is None else list(args)
        if not words and any(map(_is_sub, self._actions)):
            self.print_help()
            raise SystemExit(0)
        return super().parse_known_args(words, namespace)

    def commands(self) -> dict[str, CommandParser]:
        """Return the commands below this one."""
        return dict(self._commands())

    def completions(self) -> list[str]:
        """Return the options that a shell may complete."""
        return [max(e.option_strings, key=len) for e in self._actions if e.option_strings]

    def format_help(self) -> str:
        return self.page().in_width(terminal_width())

    def error(self, message: str) -> NoReturn:
        print(f"error: {self._in_words(message)}", file=sys.stderr)
        print(f"see: {self.prog} --help", file=sys.stderr)
        raise SystemExit(USER_ERROR)

    def _usage(self, arguments: Sequence[argparse.Action]) -> str:
        words = ("COMMAND ..." if _is_sub(each) else _argument_name(each) for each in arguments)
        return " ".join([self.prog, "[OPTIONS]", *words])

    def _commands(self) -> Iterator[tuple[str, CommandParser]]:
        for action in self._actions:
            if _is_sub(action):
                for name, parser in dict(action.choices or {}).items():
                    if isinstance(parser, CommandParser) and parser.description:
                        yield name, parser

    def _in_words(self, message: str) -> str:
        if found := re.fullmatch(r"unrecognized arguments: (\S+).*", message, re.DOTALL):
            word = found[1].partition("=")[0]
            known = [name for each in self._actions for name in each.option_strings]
            what = "there is no such option" if word.startswith("-") else "is one argument too many"
            return f"{word}: {what}{did_you_mean(word, known)}"
        if found := re.fullmatch(r"the following arguments are required: (.*)", message):
            names = [each.split("/")[-1] for each in found[1].split(", ")]
            missing = ", ".join(names).replace("command", "COMMAND")
            return f"{missing}: {'is' if ',' not in missing else 'are'} missing"
        if found := re.fullmatch(r"argument command: invalid choice: '(.*)' \(.*", message):
            return f"{found[1]}: there is no such command{did_you_mean(found[1], self.commands())}"
        if not (found := re.fullmatch(r"argument ([^:]+): (.*)", message, re.DOTALL)):
            return message
        return f"{found[1].split('/')[-1]}: {_problem(found[2])}"


def _problem(text: str) -> str:
    if found := re.fullmatch(r"invalid (\w+) value: '(.*)'", text, re.DOTALL):
        return f'{_KINDS.get(found[1], "has no valid value")}, got "{found[2]}"'
    if found := re.fullmatch(r"invalid choice: '(.*)' \(choose from (.*)\)", text, re.DOTALL):
        known = [each.strip("' ") for each in found[2].split(",")]
        near = did_you_mean(found[1], known)
        return f'must be one of {", ".join(known)}, got "{found[1]}"{near}'
    if text.startswith("expected"):
        return "needs a value"
    return text


def _is_sub(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def _argument_name(action: argparse.Action) -> str:
    name = action.metavar or action.dest.upper()
    text = name if isinstance(name, str) else " ".join(name)
    return f"{text}..." if action.nargs in ("+", "*") else text


def _argument(action: argparse.Action) -> Row:
    return Row(_argument_name(action), action.help or "")


def _option(action: argparse.Action) -> Row:
    takes_value = action.nargs != 0
    value = ""
    if takes_value:
        of_choices = "|".join(map(str, action.choices or ()))
        value = of_choices or str(action.metavar or action.dest.upper())
    default = action.default
    shown = "" if default in (None, False, argparse.SUPPRESS) or default == [] else f"{default}"
    text = option_text(
        action.help or "",
        default=shown if takes_value else "",
        required=action.required,
        repeatable=isinstance(action, argparse._AppendAction),
    )
    return Row(option_name(action.option_strings, value), text)
