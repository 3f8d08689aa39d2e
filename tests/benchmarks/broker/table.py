"""Verdicts of the broker's tables in short, and sizes as they show them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.documents import Table


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


def size(count: int) -> str:
    """Return a number of bytes in the unit that leaves it whole."""
    for unit, bytes_of in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_of and count % bytes_of == 0:
            return f"{count // bytes_of} {unit}"
    return f"{count} B"
