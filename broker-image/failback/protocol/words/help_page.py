"""The page that ``--help`` prints: one layout for every command, whatever parses its options."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDEST: Final = 100
NARROW: Final = 60
"""Below this width a name has a line of its own, and its text follows below it."""
_LONGEST_NAME: Final = 30
_NARROWEST_TEXT: Final = 30
_GAP: Final = 2
_INDENT: Final = 2
_DEEPER: Final = 6


@dataclass(frozen=True, slots=True)
class Row:
    """One command, argument or option, and what it is for."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """Rows under a title."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the help of one command says."""

    usage: str
    text: str
    sections: tuple[Section, ...] = ()
    examples: tuple[str, ...] = ()

    def in_width(self, width: int) -> str:
        """Return the page in lines of at most ``width`` characters, examples excepted."""
        width = min(max(width, 20), WIDEST)
        lines = [*_wrapped(f"Usage: {self.usage}", width, "", "  ")]
        for paragraph in filter(None, self.text.split("\n\n")):
            lines += ["", *_wrapped(" ".join(paragraph.split()), width)]
        if self.examples:
            lines += ["", "Examples:", *(f"{' ' * _INDENT}{each}" for each in self.examples)]
        column = self._column()
        for section in self.sections:
            lines += ["", f"{section.title}:"]
            for row in section.rows:
                lines += _row_lines(row, width, column)
        return "\n".join(lines) + "\n"

    def _column(self) -> int:
        """Where the texts begin: one place for all sections."""
        names = [len(row.name) for section in self.sections for row in section.rows]
        fitting = [length for length in names if length <= _LONGEST_NAME]
        return _INDENT + max(fitting, default=_LONGEST_NAME) + _GAP


def option_name(names: Sequence[str], value: str = "") -> str:
    """Return ``-n, --namesrv ADDRESSES``; names without a short one line up with the others."""
    short = [name for name in names if not name.startswith("--")]
    long = [name for name in names if name.startswith("--")]
    text = ", ".join([*short, *long])
    text = text if short else f"    {text}"
    return f"{text} {value}" if value else text


def option_text(
    text: str, *, default: str = "", required: bool = False, repeatable: bool = False
) -> str:
    """Return the text of an option with what holds when it is not given."""
    notes = []
    if required:
        notes.append("required")
    if repeatable:
        notes.append("repeatable")
    if default:
        notes.append(f"default: {default}")
    return f"{text} ({'; '.join(notes)})" if notes else text


def _row_lines(row: Row, width: int, column: int) -> list[str]:
    if width < NARROW or width - column < _NARROWEST_TEXT:
        head = f"{' ' * _INDENT}{row.name.strip()}"
        return [head, *_wrapped(row.text, width, " " * _DEEPER, " " * _DEEPER)]
    name = f"{' ' * _INDENT}{row.name}"
    lines = _wrapped(row.text, width, " " * column, " " * column)
    if len(name) + _GAP > column or not lines:
        return [name, *lines]
    return [f"{name.ljust(column)}{lines[0].strip()}", *lines[1:]]


def _wrapped(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_on_hyphens=False,
        break_long_words=False,
    )
