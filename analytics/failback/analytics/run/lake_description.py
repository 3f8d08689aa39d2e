"""What a lake holds, in numbers and words: its tables, and the columns of one."""

from __future__ import annotations

from typing import Any

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.store import readable
from failback.analytics.run.lake_tables import (
    GROUPS,
    GROUPS_MEANINGS,
    GROUPS_SCHEMA,
    RUNS,
    RUNS_MEANINGS,
    RUNS_SCHEMA,
    VIEWS,
    LakeTables,
    view_sql,
)
from failback.client.consumelog import meanings
from failback.client.consumelog.schema import KINDS, TABLES, unit_of
from failback.common.text import did_you_mean


def tables_of(tables: LakeTables) -> list[dict[str, Any]]:
    """Each table with rows: ``table, runs, files, rows, bytes, holds``.

    Raises:
        ReportInputError: A file cannot be read.
    """
    found = []
    for table in TABLES:
        folders = [e for e in tables.folders.get(table, ()) if tables.run in (None, e.run)]
        files = [file for each in folders for file in tables.store.files(each.folder)]
        if not files:
            continue
        with readable():
            rows = tables.dataset(table).count_rows()
        found.append(
            {
                "table": table,
                "runs": len({each.run for each in folders}),
                "files": len(files),
                "rows": rows,
                "bytes": sum(file.size for file in files),
                "holds": meanings.TABLES[table],
            }
        )
    return found


def columns_of(table: str) -> list[dict[str, Any]]:
    """Each column of a table as a query sees it: ``column, type, unit, holds``.

    Raises:
        ReportInputError: There is no such table; the nearest is named.
    """
    if table in (RUNS, GROUPS):
        schema, told = (
            (RUNS_SCHEMA, RUNS_MEANINGS) if table == RUNS else (GROUPS_SCHEMA, GROUPS_MEANINGS)
        )
        return [
            {"column": f.name, "type": str(f.type), "unit": "", "holds": told[f.name]}
            for f in schema
        ]
    if table not in TABLES:
        near = did_you_mean(table, (*TABLES, *VIEWS, RUNS, GROUPS))
        raise ReportInputError(f"there is no table {table}{near or f'; there are {known()}'}")
    rows = [
        {
            "column": column.name,
            "type": KINDS[column.kind] + (", may be null" if column.nullable else ""),
            "unit": unit_of(table, column),
            "holds": meanings.meaning_of(table, column.name),
        }
        for column in TABLES[table].columns
    ]
    day = {"column": "date", "type": "date", "unit": "", "holds": RUNS_MEANINGS["date"]}
    return [*rows, day]


def known() -> str:
    """All names that a query may use."""
    return ", ".join((*TABLES, RUNS, GROUPS, *VIEWS))


def view_of(name: str) -> str | None:
    """The statement of a view, none if it is no view."""
    return view_sql(name) if name in VIEWS else None
