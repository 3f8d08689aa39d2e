"""Reads the Parquet lake of one run, tolerantly where that is safe and not at all where it isn't.

A missing nullable column reads as null. A missing required column, or one of another type, is
refused by name. A file that cannot be read is left out and named; the report then is a lower bound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.errors import ReportInputError, StoreUnusable
from failback.analytics.lake.layout import run_files
from failback.analytics.lake.row_groups import Wanted, wanted_groups
from failback.analytics.lake.segment_ids import SegmentNote
from failback.analytics.lake.store import LakeStore, open_store
from failback.client.consumelog.schema import RUN, SCHEMA_ID, SCHEMA_KEY, TABLES, arrow_schema
from failback.client.consumelog.upload.segments import SEGMENT_KEY
from failback.common.files import parsed
from failback.common.text import why

CHUNK_ROWS: Final = 1 << 20
_ALONE: Final = 4
SEGMENTS_KEY: Final = "failback.segments"
"""Where a file that was merged from many says what each of them held: a JSON list."""


class _Written(SegmentNote, frozen=True):
    """As anybody may have written it, with the process numbers that rows can have."""

    proc_no: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the lake and what its footer says."""

    name: str
    """Its path below the lake's root."""
    size: int
    rows: int
    columns: tuple[str, ...]
    segments: tuple[Mapping[str, Any], ...]
    """The shipper's metadata of each segment in it; none for files of another writer."""
    may_lack_lane: bool
    """Whether some row may have no LAB_ID, as far as the statistics tell."""


@dataclass(slots=True)
class Lake:
    """The readable files of one run, per table."""

    store: LakeStore
    run: str
    parts: dict[str, list[Part]]
    unreadable: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    """Files whose rows are in another file as well: copies, or what a compaction merged."""
    filled: dict[str, list[str]] = field(default_factory=dict)
    """Nullable columns that some file of a table lacks: they read as null."""

    def rows(self, table: str) -> int:
        return sum(part.rows for part in self.parts.get(table, ()))

    @property
    def bytes(self) -> int:
        return sum(part.size for parts in self.parts.values() for part in parts)

    @property
    def has_foreign(self) -> bool:
        """Whether some delivery has no LAB_ID, from the files' statistics."""
        return any(part.may_lack_lane for part in self.parts.get("deliver", ()))

    def segments(self) -> list[Mapping[str, Any]]:
        """What each segment of the run says about itself."""
        parts = (part for parts in self.parts.values() for part in parts)
        return [segment for part in parts for segment in part.segments]

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a small table, in file order."""
        chunks = list(self.chunks(table, columns))
        schema = _chosen(table, columns).remove_metadata()
        return pa.concat_tables(chunks) if chunks else schema.empty_table()

    def records(self, table: str) -> list[dict[str, Any]]:
        """All rows of a small table as dictionaries."""
        rows: list[dict[str, Any]] = self.read(table).to_pylist()
        return rows

    def chunks(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        rows: int = CHUNK_ROWS,
        wanted: Wanted | None = None,
    ) -> Iterator[pa.Table]:
        """Tables of about ``rows`` rows: small files are read together, large ones in pieces.

        Row groups that are not ``wanted`` are left out.
        """
        waiting: list[pa.Table] = []
        count = 0
        for part in self.parts.get(table, ()):
            for piece in self._pieces(table, part, columns, rows, wanted):
                if not waiting and piece.num_rows >= rows // _ALONE:
                    yield piece  # large enough: putting it together with others is a copy
                    continue
                waiting.append(piece)
                count += piece.num_rows
                if count >= rows:
                    yield _together(waiting)
                    waiting, count = [], 0
        if waiting:
            yield _together(waiting)

    def _pieces(
        self,
        table: str,
        part: Part,
        columns: Sequence[str] | None,
        rows: int,
        wanted: Wanted | None,
    ) -> Iterator[pa.Table]:
        schema = _chosen(table, columns)
        present = [name for name in schema.names if name in part.columns]
        try:
            # Its footer and pages were looked at by open_lake.
            with self.store.open(part.name) as source, pq.ParquetFile(source) as file:
                groups = wanted_groups(file, wanted)
                for batch in file.iter_batches(rows, groups, present) if groups else ():
                    yield _fitted(pa.table(batch), schema, self.run)
        except (OSError, pa.ArrowException) as error:
            if not any(each.startswith(f"{part.name}: ") for each in self.unreadable):
                self.unreadable.append(f"{part.name}: {why(error)}")


def open_lake(root: Path | str | LakeStore, run: str, tables: Iterable[str] = TABLES) -> Lake:
    """Look at the footer of every file of a run.

    Args:
        root: A folder, a URI, or a store that is open already.
        run: The run's id.
        tables: Only these are looked at.

    Raises:
        ReportInputError: A required column is missing, a column has another type, or the schema is
            of a newer major version; or an object store cannot be used.
    """
    store = root if isinstance(root, LakeStore) else open_store(root)
    lake = Lake(store, run, {})
    files = run_files(store, run)
    for table in tables:
        for found in files.get(table, ()):
            try:
                footer = store.footer(found.name)
                schema = footer.schema.to_arrow_schema()
                segments = segments_in(schema.metadata or {})
            except StoreUnusable:
                raise  # of the other files it would give no more
            except (OSError, ValueError, pa.ArrowException) as error:
                lake.unreadable.append(f"{found.name}: {why(error)}")
                continue
            missing = _check_schema(table, schema, f"{store}/{found.name}")
            if missing:
                known = lake.filled.setdefault(table, [])
                known.extend(name for name in missing if name not in known)
            part = Part(
                found.name,
                found.size,
                footer.num_rows,
                tuple(schema.names),
                segments,
                may_lack_lane=table == "deliver" and _may_lack_lane(footer),
            )
            lake.parts.setdefault(table, []).append(part)
        _pass_over(lake, table)
    return lake


def _pass_over(lake: Lake, table: str) -> None:
    """Count every segment once: a copy, or what a compaction merged and had not deleted yet.

    Which segment it is its process, index and range of ``seq`` say. A file that has such a segment
    with other rows, or beside others that nobody else has, is left out and named.
    """
    parts = lake.parts.get(table, [])
    doubled = shadowed({part.name: {_segment_key(s) for s in part.segments} for part in parts})
    kept: list[Part] = []
    holder: dict[tuple[Any, ...], Part] = {}
    for part in sorted(parts, key=lambda part: (-len(part.segments), part.name)):
        places = [(s.get("proc"), s.get("index")) for s in part.segments]
        other = next((holder[place] for place in places if place in holder), None)
        if other is None:
            kept.append(part)
            holder.update(dict.fromkeys(places, part))
        elif part.name in doubled and _same_content(lake.store, part, other):
            lake.passed_over.append(part.name)
        else:
            lake.unreadable.append(
                f"{part.name}: left out: {other.name} has a segment of it with other rows"
            )
    names = {part.name for part in kept}
    if len(kept) < len(parts):
        lake.parts[table] = [part for part in parts if part.name in names]
        lake.passed_over.sort()


def _segment_key(segment: Mapping[str, Any]) -> Hashable:
    return tuple(segment.get(name) for name in ("proc", "index", "seq_lo", "seq_hi"))


def _same_content(store: LakeStore, part: Part, other: Part) -> bool:
    """Whether two files with one segment are equal; a merged file has what it was merged from."""
    if len(other.segments) > 1:
        return True
    if (part.rows, part.size) != (other.rows, other.size):
        return False
    hashes = set()
    try:
        for name in (part.name, other.name):
            with store.open(name) as source:
                hashes.add(hashlib.sha256(source.read()).digest())
    except StoreUnusable:
        raise
    except (OSError, pa.ArrowException):
        return False
    return len(hashes) == 1


def shadowed(held: Mapping[str, Set[Hashable]]) -> set[str]:
    """Files all of whose segments are in files with more segments."""
    covered: set[Hashable] = set()
    found = set()
    for name in sorted(held, key=lambda name: (-len(held[name]), name)):
        if held[name] and held[name] <= covered:
            found.add(name)
        covered |= held[name]
    return found


def segments_in(metadata: Mapping[bytes, bytes]) -> tuple[Mapping[str, Any], ...]:
    """What a file's metadata says of the segments in it.

    Raises:
        ValueError: It is not what a segment says of itself.
    """
    merged, own = (metadata.get(key.encode()) for key in (SEGMENTS_KEY, SEGMENT_KEY))
    found = parsed(merged) if merged is not None else [parsed(own)] if own else []
    try:
        msgspec.convert(found, list[_Written])
    except msgspec.ValidationError as error:
        raise ValueError(f"metadata of its segments: {error}") from error
    return tuple(found)


def parquet_bytes(table: pa.Table) -> bytes:
    """A table as a small file has it."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _may_lack_lane(footer: pq.FileMetaData) -> bool:
    names = footer.schema.names
    for name in ("lane", "lseq"):
        if name not in names:
            return True
        at = names.index(name)
        for group in range(footer.num_row_groups):
            found = footer.row_group(group).column(at).statistics
            if found is None or not found.has_null_count or found.null_count:
                return True
    return False


def _check_schema(table: str, schema: pa.Schema, path: str) -> list[str]:
    """Names of nullable columns that the file lacks; anything worse is refused."""
    version = (schema.metadata or {}).get(SCHEMA_KEY.encode(), SCHEMA_ID.encode()).decode()
    if schema_major(version) != schema_major(SCHEMA_ID):
        raise ReportInputError(f"schema {version} is newer than {SCHEMA_ID}", path)
    missing = []
    for field_ in arrow_schema(table):
        at = schema.get_field_index(field_.name)
        if at < 0 and field_.name == RUN:
            continue  # the path has it
        if at < 0:
            if not field_.nullable:
                raise ReportInputError(f"column {field_.name} of {table} is missing", path)
            missing.append(field_.name)
            continue
        found = schema.field(at).type
        if found != field_.type and plain_type(found) != plain_type(field_.type):
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


def fitted(found: pa.Table, table: str, columns: Sequence[str], run: str) -> pa.Table:
    """Rows of a table that another reader has read, in the types of a lake's files.

    ``run`` is the run of rows whose reader knows it by their place.
    """
    return _fitted(found, _chosen(table, columns), run)


def _chosen(table: str, columns: Sequence[str] | None) -> pa.Schema:
    schema = arrow_schema(table)
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])


def _fitted(found: pa.Table, schema: pa.Schema, run: str) -> pa.Table:
    arrays: list[Any] = []
    for field_ in schema:
        at = found.schema.get_field_index(field_.name)
        if at < 0 and field_.name == RUN:
            indices = pa.repeat(pa.scalar(0, pa.int32()), found.num_rows)
            arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array([run])))
            continue
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
