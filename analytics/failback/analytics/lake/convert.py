"""JSON Lines into a lake: one object per line, one table per file, columns by their names.

Bytes (``proc``, ``omid`` and the like) are hex. A begin and its end may be one row, as in the lake,
or the end a row of ``deliver_end`` or ``assign_end``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.layout import (
    first_row_ns,
    known_day,
    partitions,
    put_guard,
    say_opened,
    settle,
)
from failback.analytics.lake.store import LakeStore
from failback.client.consumelog.schema import SCHEMA_ID, SCHEMA_KEY, TABLES, arrow_schema
from failback.client.consumelog.upload.lake_files import lake_rows, parquet_bytes
from failback.client.consumelog.upload.layout import lake_path
from failback.client.consumelog.upload.segments import SEGMENT_KEY

BLOCK_BYTES: Final = 64 << 20
_JOINED_END: Final = {"deliver": "et", "assign": "end_t"}
"""Where this column has a value the row was two records of the process."""


def table_of(path: Path) -> str:
    """The table that a file's name begins with: ``deliver.jsonl``, ``deliver-7.jsonl``."""
    name = path.name.partition(".")[0].partition("-")[0]
    if name not in TABLES:
        raise ReportInputError(f"the name begins with no table's: {', '.join(TABLES)}", path)
    return name


def convert(store: LakeStore, paths: Sequence[Path]) -> dict[str, int]:
    """Write the rows of the files into the lake; returns how many per table.

    Raises:
        ReportInputError: A line is no object of its table, a required column is missing, or the
            lake has rows of the run and table already. Then nothing was added.
    """
    named = [(table_of(path), path) for path in paths]
    there = {(each.table, each.run) for each in partitions(store)}
    days: dict[str, str | None] = {}
    written: list[str] = []
    rows: Counter[str] = Counter()
    indexes: Counter[tuple[str, str, int]] = Counter()
    try:
        for table, path in named:
            for run, piece in _by_process(table, path):
                if (table, run) in there:
                    what = f"{store} has rows of {table} of run {run} already"
                    raise ReportInputError(what, path)
                proc_no = int(piece.column("proc_no")[0].as_py())
                key = (table, run, proc_no)
                if run not in days:
                    days[run] = known_day(store, run)
                name = lake_path(table, run, proc_no, indexes[key], days[run])
                note = _note(table, piece, indexes[key])
                indexes[key] += 1
                metadata = {SCHEMA_KEY: SCHEMA_ID, SEGMENT_KEY: json.dumps(note)}
                rows_of_file = lake_rows(piece.replace_schema_metadata(metadata), table)
                written.append(name)
                store.write(name, parquet_bytes(rows_of_file))
                rows[table] += piece.num_rows
    except BaseException:
        for name in written:
            store.delete(name)
        raise
    put_guard(store)
    for run, day in days.items():
        if day is None:  # the first row by the wall clock says when the run began
            first = first_row_ns(store, (name for name in written if f"/run={run}/" in name))
            settle(store, run, say_opened(store, run, first or 0))
    return dict(rows)


def _by_process(table: str, path: Path) -> Iterator[tuple[str, pa.Table]]:
    """The rows of a file block by block, one table per run and process."""
    required = [field.name for field in arrow_schema(table) if not field.nullable]
    for block in _blocks(table, path):
        for name in required:
            if block.column(name).null_count:
                raise ReportInputError(f"column {name} of {table} is missing in a line", path)
        keys = block.select(["run", "proc_no"]).group_by(["run", "proc_no"]).aggregate([])
        for run, proc_no in zip(
            *(keys.column(n).to_pylist() for n in ("run", "proc_no")), strict=True
        ):
            mine = pc.and_(
                pc.equal(block.column("run"), run), pc.equal(block.column("proc_no"), proc_no)
            )
            piece = block.filter(mine)
            yield run, _fitted(table, piece, path)


def _blocks(table: str, path: Path) -> Iterator[pa.Table]:
    options = pj.ParseOptions(explicit_schema=_as_read(table), unexpected_field_behavior="ignore")
    try:
        with pj.open_json(path, pj.ReadOptions(block_size=BLOCK_BYTES), options) as reader:
            for batch in reader:
                yield pa.table(batch)
    except FileNotFoundError as error:
        raise ReportInputError("no such file", path) from error
    except (OSError, pa.ArrowException) as error:
        raise ReportInputError(f"is not JSON Lines of table {table}: {error}", path) from error


def _as_read(table: str) -> pa.Schema:
    """The types that JSON has: names and bytes are text."""
    return pa.schema([pa.field(f.name, _json_type(f.type)) for f in arrow_schema(table)])


def _json_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    return pa.utf8() if _is_bytes(kind) else kind


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _fitted(table: str, piece: pa.Table, path: Path) -> pa.Table:
    schema = arrow_schema(table)
    arrays: list[Any] = []
    for field in schema:
        column = piece.column(field.name).combine_chunks()
        if _is_bytes(field.type):
            column = _from_hex(column, field, path)
        elif pa.types.is_dictionary(field.type):
            column = column.dictionary_encode().cast(field.type)
        arrays.append(column)
    return pa.table(arrays, schema=schema)


def _from_hex(column: pa.Array, field: pa.Field, path: Path) -> pa.Array:
    try:
        return pa.array(
            [None if text is None else bytes.fromhex(text) for text in column.to_pylist()],
            field.type,
        )
    except (ValueError, pa.ArrowException) as error:
        raise ReportInputError(f"column {field.name} is not hex: {error}", path) from error


def _note(table: str, piece: pa.Table, index: int) -> dict[str, Any]:
    """What a shipper would have said of these rows."""
    seqs = pc.min_max(piece.column("seq")).as_py()
    end = _JOINED_END.get(table)
    ends = 0 if end is None else piece.num_rows - piece.column(end).null_count
    return {
        "run": piece.column("run")[0].as_py(),
        "proc": piece.column("proc")[0].as_py().hex(),
        "proc_no": piece.column("proc_no")[0].as_py(),
        "role": "converted",
        "host": piece.column("host")[0].as_py(),
        "index": index,
        "seq_lo": seqs["min"],
        "seq_hi": seqs["max"],
        "rows": piece.num_rows,
        "records": piece.num_rows + ends,
        "torn": 0,
    }
