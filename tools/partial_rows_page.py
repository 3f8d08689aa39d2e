"""Write docs/design/partial-rows.md: ``python tools/partial_rows_page.py``; a test compares."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from failback.analytics.analysis.counting.families import OPERATIONS, Family, all_families

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "design" / "partial-rows.md"
_HEAD: Final = """# Partial rows

Made by `python tools/partial_rows_page.py` from
`failback.analytics.analysis.counting.families`.

The analysis reads each large table in batches. A batch contributes partial rows: sums, extremes and
intervals, small and independent of the order of batches. Each row belongs to one family. Rows of a
family with an equal key are joined by its operation: `sum`, `max` and `min` give one value,
`depths` adds intervals up to how often each number occurred. Both engines use the same families.

A key's numbers are stored in the columns `n1` to `n6` in the order below, its names in `grp`,
`broker` and `topic`. The result table `counters` has these columns.
"""


def render() -> str:
    """Return the page."""
    families = [family for _, family in all_families()]
    parts = [_HEAD, "## Families\n", _families(families), "## Keys\n", _keys(families)]
    return "\n".join(parts)


def _families(families: list[Family]) -> str:
    rows = ["| family | from | operation | key | value |", "|---|---|---|---|---|"]
    for each in families:
        operation, key = OPERATIONS[each.op], _key_of(each)
        rows.append(f"| `{each.name}` | {each.source} | {operation} | {key} | {each.value} |")
    return "\n".join([*rows, ""])


def _key_of(family: Family) -> str:
    return ", ".join(f"`{name}`" for name in family.stored) or "none"


def _keys(families: list[Family]) -> str:
    columns = {column.name: column for family in families for column in family.key}
    rows = [
        f"| `{each.name}` | {f'`{each.stored}`' if each.stored else 'a number'} | {each.meaning} |"
        for each in columns.values()
    ]
    return "\n".join(["| column | stored in | meaning |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
