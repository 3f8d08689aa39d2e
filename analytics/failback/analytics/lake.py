"""Reads the Parquet lake of one run, tolerantly where that is safe and not at all where it isn't.

A missing nullable column reads as null, a missing required one or one of another type is refused
by name, a file that cannot be read is left out and named: the report then is a lower bound.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.errors import ReportInputError
from failback.client.consumelog.schema import SCHEMA_ID, SCHEMA_KEY, TABLES, arrow_schema

CHUNK_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the lake and what its footer says."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    segment: Mapping[str, Any]
    """The shipper's metadata; empty for files of another writer."""


@dataclass(slots=True)
class Lake:
    """The readable files of one run, per table."""

    root: Path
    run: str
    parts: dict[str, list[Part]]
    unreadable: list[str] = field(default_factory=list)
    filled: dict[str, list[str]] = field(default_factory=dict)
    """Nullable columns that some file of a table lacks: they read as null."""

    def rows(self, table: str) -> int:
        return sum(part.rows for part in self.parts.get(table, ()))

    def files(self, table: str) -> list[str]:
        return [str(part.path) for part in self.parts.get(table, ())]

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a small table, in file order."""
        chunks = list(self.chunks(table, columns))
        return pa.concat_tables(chunks) if chunks else _empty(table, columns)

    def records(self, table: str) -> list[dict[str, Any]]:
        """All rows of a small table as dictionaries."""
        rows: list[dict[str, Any]] = self.read(table).to_pylist()
        return rows

    def chunks(
        self, table: str, columns: Sequence[str] | None = None, rows: int = CHUNK_ROWS
    ) -> Iterator[pa.Table]:
        """Tables of about ``rows`` rows: small files are read together, large ones in pieces."""
        waiting: list[pa.Table] = []
        count = 0
        for part in self.parts.get(table, ()):
            for piece in self._pieces(table, part, columns, rows):
                waiting.append(piece)
                count += piece.num_rows
                if count >= rows:
                    yield _together(waiting)
                    waiting, count = [], 0
        if waiting:
            yield _together(waiting)

    def _pieces(
        self, table: str, part: Part, columns: Sequence[str] | None, rows: int
    ) -> Iterator[pa.Table]:
        schema = _chosen(table, columns)
        present = [name for name in schema.names if name in part.columns]
        try:
            with pq.ParquetFile(part.path) as file:
                for batch in file.iter_batches(rows, columns=present):
                    yield _fitted(pa.table(batch), schema)
        except (OSError, pa.ArrowException) as error:
            name = str(part.path.relative_to(self.root))
            if name not in self.unreadable:
                self.unreadable.append(f"{name}: {error}")


def open_lake(root: Path, run: str, tables: Iterable[str] = TABLES) -> Lake:
    """Look at the footer of every file of a run.

    Raises:
        ReportInputError: A required column is missing, a column has another type, or the schema is
            of a newer major version.
    """
    lake = Lake(root, run, {})
    for table in tables:
        for path in sorted((root / f"table={table}" / f"run={run}").glob("*.parquet")):
            try:
                footer = pq.read_metadata(path)
                schema = footer.schema.to_arrow_schema()
            except (OSError, pa.ArrowException) as error:
                lake.unreadable.append(f"{path.relative_to(root)}: {error}")
                continue
            missing = _check_schema(table, schema, path)
            if missing:
                known = lake.filled.setdefault(table, [])
                known.extend(name for name in missing if name not in known)
            stored = (schema.metadata or {}).get(b"failback.segment")
            lake.parts.setdefault(table, []).append(
                Part(path, footer.num_rows, tuple(schema.names), json.loads(stored or b"{}"))
            )
    return lake


def _check_schema(table: str, schema: pa.Schema, path: Path) -> list[str]:
    """Names of nullable columns that the file lacks; anything worse is refused."""
    version = (schema.metadata or {}).get(SCHEMA_KEY.encode(), SCHEMA_ID.encode()).decode()
    if schema_major(version) != schema_major(SCHEMA_ID):
        raise ReportInputError(f"schema {version} is newer than {SCHEMA_ID}", path)
    missing = []
    for field_ in arrow_schema(table):
        at = schema.get_field_index(field_.name)
        if at < 0:
            if not field_.nullable:
                raise ReportInputError(f"column {field_.name} of {table} is missing", path)
            missing.append(field_.name)
        elif plain_type(schema.field(at).type) != plain_type(field_.type):
            found = schema.field(at).type
            raise ReportInputError(
                f"column {field_.name} of {table} is {found}, not {field_.type}", path
            )
    return missing


def schema_major(schema_id: str) -> str:
    """The major version in a schema id: files of another one are not read."""
    return schema_id.split(".log/")[-1].split(".")[0]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Types that hold the same values are one: dictionaries, and fixed or variable binary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    return pa.utf8() if pa.types.is_large_string(kind) else kind


def _chosen(table: str, columns: Sequence[str] | None) -> pa.Schema:
    schema = arrow_schema(table)
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _empty(table: str, columns: Sequence[str] | None) -> pa.Table:
    return _chosen(table, columns).remove_metadata().empty_table()


def _fitted(found: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = []
    for field_ in schema:
        at = found.schema.get_field_index(field_.name)
        if at < 0:
            arrays.append(pa.nulls(found.num_rows, field_.type))
            continue
        column = found.column(at)
        if pa.types.is_dictionary(field_.type) and not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        arrays.append(column if column.type == field_.type else column.cast(field_.type))
    return pa.table(arrays, schema=schema.remove_metadata())


def _together(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


if __name__ == "__main__":
    from failback.analytics.collect.fsck import main

    sys.exit(main())
