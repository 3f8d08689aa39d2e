"""Tables as the benchmark prints and publishes them, and their section of a document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

BEGIN: Final = "<!-- figures: begin; this section is written by make bench-broker -->"
END: Final = "<!-- figures: end -->"


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


def in_short(tables: Sequence[Table], body: str) -> str:
    """Return every verdict of ``tables`` as Markdown, of sends only those with one size of body."""
    short = Table("", ("what", "ours/Apache (target)"))
    verdicts: list[str] = []
    for table in tables:
        for row in table.rows:
            found = [
                f"{column.removesuffix('ours/Apache').strip()} {cell}".strip()
                for column, cell in zip(table.columns, row, strict=True)
                if _is_verdict(cell)
            ]
            verdicts += found
            named = dict(zip(table.columns, row, strict=True))
            if found and named.get("body", body) == body:
                short.rows.append([_what(table, named), "; ".join(found)])
    met = sum(" met (" in verdict for verdict in verdicts)
    shown = short.markdown().partition("\n\n")[2]
    return f"{met} of {len(verdicts)} targets are met. With bodies of {body}:\n\n{shown}"


def _is_verdict(cell: str) -> bool:
    return " met (" in cell or " missed (" in cell


def _what(table: Table, named: dict[str, str]) -> str:
    """Name a row by its table and by what stands before its first figure."""
    words = [table.title]
    if "threads" in named:
        words.append(f"{named['threads']} threads, batch {named['batch']}")
    elif "sends outstanding" in named:
        words.append(f"{named['sends outstanding']} outstanding")
    elif "master" in named:
        words.append(f"{named['master']} to {named['slave']}")
    elif "figure" in named:
        words.append(named["figure"])
    elif "process" in named:
        words.append(named["process"])
    return ": ".join(words)


def with_figures(document: str, figures: str) -> str:
    """Return ``document`` with ``figures`` between its markers instead of what stands there.

    Raises:
        ValueError: It has no such section, or not exactly one.
    """
    if document.count(BEGIN) != 1 or document.count(END) != 1:
        raise ValueError(f"the document needs one line {BEGIN!r} and one line {END!r}")
    before, _, rest = document.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{END!r} stands before {BEGIN!r}")
    return f"{before}{BEGIN}\n\n{figures.strip()}\n\n{END}{after}"


def number(value: float) -> str:
    """Return a figure with as many digits as say something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(count: int) -> str:
    """Return a number of bytes in the unit that leaves it whole."""
    for unit, bytes_of in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_of and count % bytes_of == 0:
            return f"{count // bytes_of} {unit}"
    return f"{count} B"
