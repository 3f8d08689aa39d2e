"""Tables of benchmarks as they are printed, and the section of a document for them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

END: Final = "<!-- figures: end -->"


def begin(command: str) -> str:
    """Return the line before the figures that ``command`` writes."""
    return f"<!-- figures: begin; this section is written by {command} -->"


@dataclass(slots=True)
class Table:
    """Rows of text under a title; ``notes`` stand below."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """Return it as Markdown whose columns also line up as plain text."""
        widths = [
            max(len(row[at]) for row in [list(self.columns), *self.rows])
            for at in range(len(self.columns))
        ]
        lines = [f"### {self.title}", "", _line(self.columns, widths)]
        lines.append("|" + "|".join("-" * (width + 2) for width in widths) + "|")
        lines += [_line(row, widths) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"


def with_figures(document: str, command: str, figures: str) -> str:
    """Return ``document`` with ``figures`` in the section of ``command`` instead of what is there.

    Raises:
        ValueError: It has no such section, or not exactly one.
    """
    first = begin(command)
    before, found, rest = document.partition(first)
    _, ended, after = rest.partition(END)
    if not (found and ended) or END in before + after or first in rest:
        raise ValueError(f"the document needs one line {first!r} and, below it, one line {END!r}")
    return f"{before}{first}\n\n{figures.strip()}\n\n{END}{after}"


def number(value: float) -> str:
    """Return a figure with as many digits as say something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
