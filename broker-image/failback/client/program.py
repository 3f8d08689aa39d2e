"""How a program of ours begins: its command line, and the lines of its log.

The command line is argparse, for commands that must start fast, with the exit codes of all other
commands. A record of the log is one line, and a fatal signal says where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

from failback.common.text import nearest, visible

USER_ERROR: Final = 2
LINES: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_MOST_CHARS: Final = 16_384
_FILES_WITH_KEYS: Final = ("plain_acl.yml", "acl", "tools.yml", "tls.properties")
_TRACE_SECONDS: Final = 60.0


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
        self.folded: list[argparse.Action] = []
        """Connection options, which the help names in one line."""
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
        is_known = self._below is None or words[0] in self._below.choices
        if not is_known and (near := nearest(words[0], self.commands())):
            self.error(f"No such command '{words[0]}'. Did you mean '{near}'?")
        return super().parse_known_args(words, namespace)

    def format_help(self) -> str:
        lines = "".join(f"  {each}\n" for each in self.examples)
        kept = [each.help for each in self.folded]
        for each in self.folded:
            each.help = argparse.SUPPRESS
        shown = super().format_help()
        for each, text in zip(self.folded, kept, strict=True):
            each.help = text
        if self.folded:
            shown += "\ncluster: -n, --access-key-file, --tls...; see `failback help connection`\n"
        return shown + (f"\nexamples:\n{lines}" if lines else "")

    def error(self, message: str) -> NoReturn:
        print(f"error: {message}", file=sys.stderr)
        print(f"see: {self.prog} --help", file=sys.stderr)
        raise SystemExit(USER_ERROR)


class LineFormatter(logging.Formatter):
    """Writes records with escapes for what cannot be seen.

    The lines of a traceback are indented: none of them looks like the beginning of a record. Of
    one place and type of error one traceback a minute is written, since a peer may cause many.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._traced: dict[tuple[str, int, type[BaseException] | None], float] = {}
        """When a traceback of a place and type was written last, by the clock of records."""

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_info and not self._may_trace(record):
            error = record.exc_info[1]
            record = copy.copy(record)  # other handlers write it as it is
            record.msg, record.args = f"{record.getMessage()}: {error!r}", None
            record.exc_info = record.exc_text = None
        return super().format(record)

    def _may_trace(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        place = record.pathname, record.lineno, kind
        since = record.created - self._traced.get(place, float("-inf"))
        if 0 <= since < _TRACE_SECONDS:  # a clock that was set back begins again
            return False
        self._traced[place] = record.created
        return True

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base's name
        record.message = visible(record.message, _MOST_CHARS)
        return super().formatMessage(record)

    def formatException(self, ei: object) -> str:  # noqa: N802 - the base's name
        return _indented(super().formatException(ei))  # type: ignore[arg-type] # as the base

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - the base's name
        return _indented(super().formatStack(stack_info))


def begin_logging(
    level: int | str = logging.INFO, lines: str = LINES, stream: TextIO | None = None
) -> None:
    """Log to ``stream``, standard error by default; a log that was begun already stays."""
    name_fatal_signals()
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(lines))
    logging.basicConfig(level=level, handlers=[handler])


def name_fatal_signals() -> None:
    """Let a signal that ends this process at once, such as SIGSEGV, say where it was."""
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        with contextlib.suppress(OSError, ValueError):  # no file, in a test
            faulthandler.enable(sys.__stderr__)


def keep_keys_from_core_files(folder: Path | None) -> None:
    """Write no core file of a process that reads keys from a folder: it would hold them."""
    import resource  # not on every system on which commands run

    if folder is not None and any((folder / name).exists() for name in _FILES_WITH_KEYS):
        with contextlib.suppress(OSError, ValueError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def guard_last_resort() -> None:
    """Let a command that begins no log escape its warnings all the same."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter("%(message)s"))


def _indented(text: str) -> str:
    return "\n".join(f"    {visible(line, _MOST_CHARS)}" for line in text.split("\n"))
