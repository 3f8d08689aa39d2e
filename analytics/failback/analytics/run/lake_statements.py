"""Statements that register a lake with a query engine: external tables, runs, groups and views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from failback.analytics.run.lake_tables import GROUPS, RUNS, VIEWS, LakeTables, view_sql
from failback.client.consumelog import meanings
from failback.client.consumelog.schema import RUN, TABLES, Column, lake_ddl, unit_of

DIALECTS: Final = ("duckdb", "spark", "trino")
_TRINO: Final = {
    "N": "varchar",
    "s": "varchar",
    "T": "bigint",
    "l": "bigint",
    "i": "integer",
    "b": "boolean",
    "id": "varbinary",
    "x": "varbinary",
    "S": "array(varchar)",
}
_DUCKDB: Final = {**_TRINO, "id": "blob", "x": "blob", "S": "varchar[]"}


def statements(tables: LakeTables, dialect: str) -> Iterator[str]:
    """All statements for one engine, in order, without semicolons.

    Args:
        tables: A lake, of which no run is chosen.
        dialect: One of :data:`DIALECTS`.
    """
    make = {"duckdb": _duckdb, "spark": _spark, "trino": _trino}[dialect]
    for table in TABLES:
        has_rows = any(each.day for each in tables.folders.get(table, ()))
        yield from make(tables, table, has_rows=has_rows)
    yield literal_view(RUNS, tables.runs_table())
    yield literal_view(GROUPS, tables.groups_table())
    yield from (view_sql(view).strip() for view in VIEWS)


def _columns(table: str) -> list[Column]:
    return [column for column in TABLES[table].columns if column.name != RUN]


def _duckdb(tables: LakeTables, table: str, *, has_rows: bool) -> Iterator[str]:
    if not has_rows:
        yield _empty(table, _DUCKDB)
        return
    where = f"{_root(tables, 's3')}/table={table}/date=*/run=*/*.parquet"
    yield (
        f'CREATE OR REPLACE VIEW "{table}" AS SELECT * EXCLUDE ("table")'
        f" FROM read_parquet({_text(where)},"
        " union_by_name = true, hive_partitioning = true,"
        " hive_types = {'table': VARCHAR, 'date': DATE, 'run': VARCHAR})"
    )


def _spark(tables: LakeTables, table: str, *, has_rows: bool) -> Iterator[str]:
    where = tables.store.spark_uri(f"table={table}")
    yield (
        f"CREATE TABLE IF NOT EXISTS `{table}` ({lake_ddl(table)}, `date` DATE, `run` STRING)"
        f" USING parquet PARTITIONED BY (`date`, `run`) LOCATION {_text(where)}"
        f" COMMENT {_text(meanings.TABLES[table])}"
    )
    if has_rows:
        yield f"MSCK REPAIR TABLE `{table}`"


def _trino(tables: LakeTables, table: str, *, has_rows: bool) -> Iterator[str]:
    columns = [f'"{c.name}" {_TRINO[c.kind]} COMMENT {_said(table, c)}' for c in _columns(table)]
    columns += ['"date" date', '"run" varchar']
    where = f"{_root(tables, 's3')}/table={table}"
    if not has_rows:  # Trino refuses a location that is not there
        yield _empty(table, _TRINO)
        return
    yield (
        f'CREATE TABLE IF NOT EXISTS "{table}" ({", ".join(columns)})'
        f" WITH (external_location = {_text(where)}, format = 'PARQUET',"
        " partitioned_by = ARRAY['date', 'run'])"
    )
    yield f"CALL system.sync_partition_metadata('default', {_text(table)}, 'ADD')"


def _empty(table: str, types: Mapping[str, str]) -> str:
    columns = [f'CAST(NULL AS {types[c.kind]}) AS "{c.name}"' for c in _columns(table)]
    columns += ['CAST(NULL AS date) AS "date"', 'CAST(NULL AS varchar) AS "run"']
    return f'CREATE OR REPLACE VIEW "{table}" AS SELECT {", ".join(columns)} WHERE false'


def _said(table: str, column: Column) -> str:
    unit = unit_of(table, column)
    meaning = meanings.meaning_of(table, column.name)
    return _text(f"{meaning} ({unit})" if unit else meaning)


def literal_view(name: str, rows: pa.Table) -> str:
    """A small table as a view of literal rows."""
    found = [", ".join(map(_literal, row.values())) for row in rows.to_pylist()]
    values = ",\n  ".join(f"({row})" for row in found)
    names = ", ".join(rows.column_names)
    if not found:
        values = f"({', '.join(['NULL'] * rows.num_columns)})"
    only = "" if found else " WHERE run IS NOT NULL"
    return (
        f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM (VALUES\n  {values}\n) AS t({names}){only}"
    )


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"CAST({value} AS BIGINT)"
    return _text(value) if isinstance(value, str) else f"DATE '{value}'"


def _root(tables: LakeTables, scheme: str) -> str:
    folder = tables.store.folder
    return str(folder.absolute()) if folder is not None else f"{scheme}://{tables.store.path('')}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
