"""Segments as Arrow tables, as the streams that are uploaded, and as Parquet files of the lake.

A lake file holds dictionaries for names only (two thirds of the time and of the bytes go into
dictionaries of numbers otherwise) and is ordered by queue and offset where the table has both, so
that the statistics of its pages say which queues and offsets are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from failback.client.consumelog.schema import RUN, arrow_schema, lake_schema, order
from failback.client.consumelog.upload.segments import Segment
from failback.common.replacing import place

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS: Final = 1 << 20
_BATCH_ROWS: Final = 1 << 16
"""Rows that Parquet's writer encodes at a time; with its 1,024 it takes a tenth longer."""
ZSTD_LEVEL: Final = 3
_TRIES: Final = 8
_QUEUE_ORDER: Final = ("broker", "ptopic", "qid", "qoff", "seq")
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"


def arrow_table(segment: Segment) -> pa.Table:
    """The segment as an Arrow table in the lake's schema, its metadata included."""
    import pyarrow as pa

    schema = arrow_schema(segment.table)
    head, count = segment.head, len(segment.rows)
    constants = {"run": head.run, "proc": head.proc, "proc_no": head.proc_no, "host": head.host}
    names = ("seq", "wall_ns", "mono_ns", *order(segment.table))
    varying = dict(zip(names, zip(*segment.rows, strict=True), strict=True))
    arrays = [
        _array(varying[field.name], field.type)
        if field.name in varying
        else _constant(constants[field.name], count, field.type)
        for field in schema
    ]
    return pa.table(arrays, schema=schema.with_metadata(segment.metadata))


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def _constant(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        indices = pa.array([0] * count, kind.index_type)
        return pa.DictionaryArray.from_arrays(indices, pa.array([value], kind.value_type))
    return pa.array([value] * count, kind)


def stream_bytes(segment: Segment) -> bytes:
    """The segment as the Arrow IPC stream that is uploaded; equal bytes for equal segments."""
    import pyarrow as pa

    table = arrow_table(segment)
    sink = pa.BufferOutputStream()
    codec = pa.Codec("zstd", compression_level=ZSTD_LEVEL)
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def lake_order(table: pa.Table) -> pa.Table:
    """The rows by queue and offset, ties by seq; a table without queue offsets is left alone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if table.num_rows < 2 or any(name not in table.column_names for name in _QUEUE_ORDER):
        return table
    keys = pa.table({name: _sortable(table.column(name)) for name in _QUEUE_ORDER})
    return table.take(pc.sort_indices(keys, [(name, "ascending") for name in _QUEUE_ORDER]))


def _sortable(column: pa.ChunkedArray) -> pa.Array:
    """The column, or for names the place of each in the order of all of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return column.combine_chunks()
    whole = pa.chunked_array(column.unify_dictionaries()).combine_chunks()
    return pc.rank(whole.dictionary, tiebreaker="dense").take(whole.indices)


def lake_rows(rows: pa.Table, table: str) -> pa.Table:
    """The rows as a file of the lake has them: without ``run``, and columns say what they mean."""
    import pyarrow as pa

    told = lake_schema(table)
    fields = [
        field.with_metadata(told.field(field.name).metadata) if field.name in told.names else field
        for field in rows.schema
    ]
    described = pa.table(rows.columns, schema=pa.schema(fields, metadata=rows.schema.metadata))
    return described.drop_columns([RUN]) if RUN in described.column_names else described


def first_wall_ns(path: Any) -> int | None:
    """The earliest ``wall_ns`` in a file of the lake, a path or an open file.

    None if it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        walls = pq.ParquetFile(path).read(["wall_ns"]).column("wall_ns")
    except (OSError, KeyError, pa.ArrowException):
        return None
    found: int | None = pc.min(walls).as_py()
    return found


def parquet_bytes(table: pa.Table) -> pa.Buffer:
    """One file of the lake; its rows are those of :func:`lake_rows`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        lake_order(table),
        sink,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        row_group_size=ROW_GROUP_ROWS,
        write_batch_size=_BATCH_ROWS,
        use_dictionary=names,
        write_page_index=True,
        store_schema=True,
    )
    return sink.getvalue()


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write one lake file, so that it is whole and on the disk under its name or not there."""
    content = parquet_bytes(table)
    for attempt in range(_TRIES):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            place(content, path.with_name(f".{path.name}.tmp"), path)
        except FileNotFoundError:  # another shipper took the empty folder away
            if attempt == _TRIES - 1:
                raise
            continue
        return
