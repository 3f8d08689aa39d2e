"""How a process of ours writes its log: a record is one line, and a fatal signal says where."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import sys
from typing import Final, TextIO

from failback.common.text import visible

LINES: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_MOST_CHARS: Final = 16_384


class LineFormatter(logging.Formatter):
    """Writes records with escapes for what cannot be seen.

    The lines of a traceback are indented: none of them looks like the beginning of a record.
    """

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


def guard_last_resort() -> None:
    """Let a command that begins no log escape its warnings all the same."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter("%(message)s"))


def _indented(text: str) -> str:
    return "\n".join(f"    {visible(line, _MOST_CHARS)}" for line in text.split("\n"))
