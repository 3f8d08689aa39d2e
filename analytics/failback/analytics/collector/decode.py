"""From the bytes of an upload to a table that may go into the lake: nothing in it is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from failback.analytics.collector.page_sizes import pages
from failback.analytics.collector.settings import Limits
from failback.analytics.collector.stream_sizes import BadStream, StreamSizes, stream_sizes
from failback.analytics.lake.lake import plain_type, schema_major
from failback.analytics.lake.segment_ids import UPLOAD_KEY, SegmentId, SegmentNote
from failback.analytics.web.problems import Problem
from failback.client.consumelog.schema import SCHEMA_ID, SCHEMA_KEY, arrow_schema
from failback.client.consumelog.upload.lake_files import ARROW_STREAM
from failback.client.consumelog.upload.segments import SEGMENT_KEY

_BATCH_ROWS: Final = 1 << 16
_FOOTER_BYTES: Final = 1 << 20
"""A Parquet footer takes some forty times its size when it is read; a segment's has a few KiB."""
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}


@dataclass(frozen=True, slots=True)
class Decoded:
    """An upload that passed every check."""

    note: SegmentNote
    table: pa.Table
    """In the lake's schema, unknown columns of a newer minor version behind it."""


def decode(named: SegmentId, body: bytes, kind: str, sha256: str, limits: Limits) -> Decoded:
    """Read and check an upload.

    Raises:
        Problem: It is too large when unpacked, damaged, of another schema (names the column), or
            not the segment that its name says.
    """
    try:
        raw = _from_stream(body, limits) if kind == ARROW_STREAM else _from_parquet(body, limits)
        raw.validate(full=True)  # indices and offsets from outside: Arrow would follow them
        metadata = raw.schema.metadata or {}
        note = read_note(_needed(metadata, SEGMENT_KEY), named)
        if note.rows != raw.num_rows:
            what = f"metadata says {note.rows} rows, there are {raw.num_rows}"
            raise Problem("bad-segment", what)
        table = _fitted(raw, named.table, _needed(metadata, SCHEMA_KEY).decode(), limits)
        _check_rows(table, note)
    except (pa.ArrowException, BadStream, UnicodeDecodeError, OSError, MemoryError) as error:
        raise Problem("bad-segment", f"cannot be read: {error}") from error
    kept = {key: metadata[key.encode()] for key in (SCHEMA_KEY, SEGMENT_KEY)}
    return Decoded(note, table.replace_schema_metadata({**kept, UPLOAD_KEY: sha256}))


def unpacked_bytes(body: bytes, kind: str) -> int:
    """About how much memory the upload needs when it is unpacked; 0 if it is not known."""
    try:
        return (_stream if kind == ARROW_STREAM else _footer)(body).unpacked_bytes
    except (BadStream, pa.ArrowException, OSError):
        return 0


_stream = stream_sizes


def _footer(body: bytes) -> StreamSizes:
    """Sizes as the heads of the pages say; the footer only tells where they are."""
    footer_bytes = int.from_bytes(body[-8:-4], "little")
    if footer_bytes > _FOOTER_BYTES:
        raise BadStream(f"a footer of {footer_bytes} bytes, at most {_FOOTER_BYTES} are taken")
    footer = pq.read_metadata(pa.BufferReader(body))
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    widths = [_width(footer.schema.column(number)) for number in range(footer.num_columns)]
    unpacked = sum(
        _chunk_bytes(body, group.column(number), width)
        for group in groups
        for number, width in enumerate(widths)
    )
    return StreamSizes(footer.num_rows, 0, unpacked, len(groups))


def _width(column: pq.ColumnSchema) -> int:
    """Bytes of a value in memory; of a text, those of its number in a dictionary."""
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(1, int(column.length))
    return _WIDTHS.get(column.physical_type, 16)


def _chunk_bytes(body: bytes, chunk: pq.ColumnChunkMetaData, width: int) -> int:
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    start = min(at for at in starts if at is not None)
    found = list(pages(body, start, chunk.total_compressed_size))
    said, is_so = chunk.total_uncompressed_size, sum(page.unpacked_bytes for page in found)
    if is_so > said:
        raise BadStream(f"pages of {is_so} bytes in a column chunk of {said}")
    return max(is_so, width * sum(page.values for page in found))


def _check_sizes(sizes: StreamSizes, limits: Limits) -> None:
    for what, found, limit in (
        ("bytes when unpacked", sizes.unpacked_bytes, limits.decoded_bytes),
        ("rows", sizes.rows, limits.rows),
        ("dictionary entries", sizes.dictionary_entries, limits.dictionary_entries),
    ):
        if found > limit:
            raise Problem("too-large", f"{found} {what}, at most {limit} are taken")


def _from_stream(body: bytes, limits: Limits) -> pa.Table:
    _check_sizes(_stream(body), limits)
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()


def _from_parquet(body: bytes, limits: Limits) -> pa.Table:
    """In pieces, because a value of a dictionary is spelled out with every row that has it."""
    _check_sizes(_footer(body), limits)
    with pq.ParquetFile(pa.BufferReader(body)) as file:
        names = [field.name for field in file.schema_arrow if _is_text(field.type)]
    pieces, total = [], 0
    with pq.ParquetFile(pa.BufferReader(body), read_dictionary=names) as file:
        metadata, empty = file.schema_arrow.metadata, file.schema_arrow.empty_table()
        for batch in file.iter_batches(_BATCH_ROWS):
            total += batch.nbytes
            if total > limits.decoded_bytes:
                what = f"more than {limits.decoded_bytes} bytes when unpacked"
                raise Problem("too-large", what)
            pieces.append(pa.table(batch))
    return pa.concat_tables(pieces or [empty]).replace_schema_metadata(metadata)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _needed(metadata: dict[bytes, bytes], key: str) -> bytes:
    value = metadata.get(key.encode())
    if value is None:
        raise Problem("bad-segment", f"the metadata {key} is missing")
    return value


def _fitted(raw: pa.Table, name: str, schema_id: str, limits: Limits) -> pa.Table:
    """The table with the lake's columns in the lake's types, others kept behind them."""
    if schema_major(schema_id) != schema_major(SCHEMA_ID):
        raise Problem("bad-segment", f"schema {schema_id}, this collector takes {SCHEMA_ID}")
    arrays: list[Any] = []
    fields: list[pa.Field] = []
    for field in arrow_schema(name):
        at = raw.schema.get_field_index(field.name)
        if at < 0:
            if not field.nullable:
                raise Problem("bad-segment", f"column {field.name} of {name} is missing")
            arrays.append(pa.nulls(raw.num_rows, field.type))
        else:
            arrays.append(_column(raw.column(at), field, name, limits))
        fields.append(field)
    known = {field.name for field in fields}
    for field, column in zip(raw.schema, raw.columns, strict=True):
        if field.name not in known:
            fields.append(field)
            arrays.append(column)
    return pa.table(arrays, schema=pa.schema(fields))


def _column(
    column: pa.ChunkedArray, field: pa.Field, table: str, limits: Limits
) -> pa.ChunkedArray:
    if plain_type(column.type) != plain_type(field.type):
        what = f"column {field.name} of {table} is {column.type}, not {field.type}"
        raise Problem("bad-segment", what)
    if column.null_count and not field.nullable:
        raise Problem("bad-segment", f"column {field.name} of {table} has nulls")
    if column.type == field.type:
        return column
    if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif pa.types.is_dictionary(column.type) and _expanded_bytes(column) > limits.decoded_bytes:
        raise Problem("too-large", f"column {field.name} has too many bytes when unpacked")
    return column.cast(field.type)


def _expanded_bytes(column: pa.ChunkedArray) -> int:
    """Bytes of the values of a dictionary column, each as often as it is referred to."""
    return sum(
        pc.sum(pc.binary_length(chunk.dictionary).cast(pa.int64()).take(chunk.indices)).as_py() or 0
        for chunk in column.chunks
        if len(chunk)
    )


def _check_rows(table: pa.Table, note: SegmentNote) -> None:
    """Every row is of the process and within the seqs that the metadata names."""
    if table.num_rows == 0:
        raise Problem("bad-segment", "there are no rows")
    for name, wanted in (
        ("run", note.run),
        ("proc", bytes.fromhex(note.proc)),
        ("proc_no", note.proc_no),
    ):
        if any(found != wanted for found in pc.unique(table.column(name)).to_pylist()):
            raise Problem("bad-segment", f"column {name} is not what the metadata says")
    seqs = pc.min_max(table.column("seq")).as_py()
    if seqs["min"] < note.seq_lo or seqs["max"] > note.seq_hi:
        raise Problem("bad-segment", "column seq is outside what the metadata says")


def read_note(text: bytes, named: SegmentId) -> SegmentNote:
    """Read the note and check it against the name.

    Raises:
        Problem: It is no note, or it is about another segment.
    """
    try:
        note = msgspec.json.decode(text, type=SegmentNote)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem("bad-segment", f"metadata failback.segment: {error}") from error
    for name, wanted in (("run", named.run), ("proc", named.proc), ("index", named.index)):
        found = getattr(note, name)
        if found != wanted:
            what = f"metadata says {name} {found!r}, the segment's name {wanted!r}"
            raise Problem("bad-segment", what)
    if note.seq_lo > note.seq_hi or note.records > note.seq_hi - note.seq_lo + 1:
        raise Problem("bad-segment", "metadata counts more records than its seqs allow")
    return note
