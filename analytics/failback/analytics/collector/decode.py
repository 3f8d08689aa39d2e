"""From the bytes of an upload to a table that may go into the lake: nothing in it is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.collector.settings import Limits
from failback.analytics.collector.stream_sizes import BadStream, StreamSizes, stream_sizes
from failback.analytics.lake.lake import plain_type, schema_major
from failback.analytics.lake.segment_ids import UPLOAD_KEY, SegmentId, SegmentNote
from failback.analytics.web.problems import Problem
from failback.client.consumelog.schema import SCHEMA_ID, SCHEMA_KEY, arrow_schema
from failback.client.consumelog.upload.segments import SEGMENT_KEY


@dataclass(frozen=True, slots=True)
class Decoded:
    """An upload that passed every check."""

    note: SegmentNote
    table: pa.Table
    """In the lake's schema, unknown columns of a newer minor version behind it."""


def decode(named: SegmentId, body: bytes, sha256: str, limits: Limits) -> Decoded:
    """Read and check an upload, an Arrow stream.

    Raises:
        Problem: It is too large when unpacked, damaged, of another schema (names the column), or
            not the segment that its name says.
    """
    try:
        _check_sizes(stream_sizes(body), limits)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            raw = reader.read_all()
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


def unpacked_bytes(body: bytes) -> int:
    """About how much memory the upload needs when it is unpacked; 0 if it is not known."""
    try:
        return stream_sizes(body).unpacked_bytes
    except (BadStream, pa.ArrowException, OSError):
        return 0


def _check_sizes(sizes: StreamSizes, limits: Limits) -> None:
    for what, found, limit in (
        ("bytes when unpacked", sizes.unpacked_bytes, limits.decoded_bytes),
        ("rows", sizes.rows, limits.rows),
        ("dictionary entries", sizes.dictionary_entries, limits.dictionary_entries),
    ):
        if found > limit:
            raise Problem("too-large", f"{found} {what}, at most {limit} are taken")


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
