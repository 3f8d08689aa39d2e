"""Write the consume log's tables into docs/reference/lake.md: ``python tools/consume_log_page.py``.

The part between the two markers is made from the schema; a test compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from failback.client.consumelog import meanings
from failback.client.consumelog.schema import COMMON, KINDS, TABLES, Column, unit_of

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "lake.md"
BEGIN: Final = "<!-- columns: made by `python tools/consume_log_page.py` -->"
END: Final = "<!-- end of columns -->"


def render() -> str:
    """Return the part between the markers, both included."""
    listed = [f"| [`{name}`](#{name}) | {meanings.TABLES[name]} |" for name in TABLES]
    index = "\n".join(["| table | holds |", "|---|---|", *listed])
    parts = [BEGIN, "## Tables", index, "## Columns of every table", _rows("", COMMON)]
    for name, table in TABLES.items():
        parts += [f"## `{name}`", meanings.TABLES[name], _rows(name, table.own)]
    return "\n\n".join([*parts, END])


def _rows(table: str, columns: Sequence[Column]) -> str:
    rows = ["| column | type | unit | holds |", "|---|---|---|---|"]
    for column in columns:
        kind = KINDS[column.kind] + (", may be null" if column.nullable else "")
        meaning = meanings.meaning_of(table, column.name)
        unit = unit_of(table, column)
        rows.append(f"| `{column.name}` | {kind} | {unit} | {meaning} |")
    return "\n".join(rows)


def with_tables(page: str) -> str:
    """Return the page with the part between the markers made again."""
    head, _, rest = page.partition(BEGIN)
    return head + render() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
