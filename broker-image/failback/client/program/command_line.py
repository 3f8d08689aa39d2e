"""Command lines that must start fast: argparse, with the exit codes of all other commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

USER_ERROR: Final = 2


def positive(text: str) -> float:
    """Read a number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f'must be a number, got "{text}"') from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f'must be above 0, got "{text}"')
    return value


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose help shows defaults and ends with examples."""

    def __init__(self, prog: str, description: str = "", examples: Sequence[str] = ()) -> None:
        super().__init__(prog, description=description, allow_abbrev=False)
        self.examples = tuple(examples)
        self._below: Any = None

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an option or argument; its help says its default and whether it may be repeated."""
        action = super().add_argument(*names, **settings)
        if action.help and settings.get("action") == "append":
            action.help += " (repeatable)"
        if action.help and action.nargs != 0 and action.default not in (None, "", []):
            action.help += " (default: %(default)s)"
        return action

    def add_command(self, name: str, description: str, *examples: str) -> CommandParser:
        """Add a command below this one. Without a description it is hidden."""
        if self._below is None:
            self._below = self.add_subparsers(dest="command", required=True, metavar="COMMAND")
        shown = {"help": description} if description else {}
        made: CommandParser = self._below.add_parser(
            name, description=description, examples=examples, **shown
        )
        return made

    def commands(self) -> dict[str, CommandParser]:
        """Return the commands below this one by name, without the hidden ones."""
        found = dict(self._below.choices) if self._below is not None else {}
        return {name: each for name, each in found.items() if each.description}

    def parameters(self) -> list[argparse.Action]:
        """Return the options and arguments; the command of a group is none."""
        return [each for each in self._actions if each is not self._below]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Read the command line; a group without a command shows its help and ends with 0."""
        words = sys.argv[1:] if args is None else list(args)
        if not words and self._below is not None:
            self.print_help()
            raise SystemExit(0)
        return super().parse_known_args(words, namespace)

    def format_help(self) -> str:
        lines = "".join(f"  {each}\n" for each in self.examples)
        return super().format_help() + (f"\nexamples:\n{lines}" if lines else "")

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        print(f"see: {self.prog} --help", file=sys.stderr)
        raise SystemExit(USER_ERROR)
