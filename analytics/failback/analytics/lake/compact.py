"""Merges the many small files of a closed run into few large ones.

New files are written first, then the catalogue, then the old files are deleted. Killed anywhere,
the lake has every row. Readers count it once, because a merged file says which segments are in it
(``lake.shadowed``). The next compaction, or ``fsck``, ends what was begun.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.catalogue import CLOSED, EXPIRED, StoredCatalogue
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.lake import SEGMENTS_KEY, segments_in
from failback.analytics.lake.layout import run_files
from failback.analytics.lake.parquet_guard import BATCH_ROWS
from failback.analytics.lake.segment_ids import UPLOAD_KEY
from failback.analytics.lake.store import Found, LakeStore, readable
from failback.client.consumelog.schema import SCHEMA_KEY
from failback.client.consumelog.upload.lake_files import ROW_GROUP_ROWS, ZSTD_LEVEL, lake_order
from failback.client.consumelog.upload.layout import mark_name, place_of
from failback.client.consumelog.upload.segments import SEGMENT_KEY

MIB: Final = 1 << 20
LEAST_BYTES: Final = 64 * MIB
"""A file of this size is left alone."""
MOST_BYTES: Final = 256 * MIB


@dataclass(slots=True)
class Compacted:
    """What became of one run."""

    run: str
    before: int = 0
    after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    merged: list[str] = field(default_factory=list)


def compact_run(
    store: LakeStore,
    run: str,
    now_ms: int,
    *,
    least_bytes: int = LEAST_BYTES,
    most_bytes: int = MOST_BYTES,
    also_open: bool = False,
) -> Compacted:
    """Merge the files of a run.

    Raises:
        ReportInputError: The run may still grow, was deleted, or its files are those of a manifest.
    """
    _may_change(store, run, also_open=also_open)
    catalogue = StoredCatalogue(store)
    check_run(store, catalogue, run, now_ms)
    result = Compacted(run)
    folders = _folders(store, run)
    for folder in folders:
        store.drop_unfinished(folder, "merged-")
        files = store.files(folder)
        result.before += len(files)
        result.bytes_before += sum(found.size for found in files)
        for group in groups_of(files, least_bytes, most_bytes):
            result.merged.append(_merge(store, folder, [found.name for found in group]))
    check_run(store, catalogue, run, now_ms)
    for folder in folders:
        files = store.files(folder)
        result.after += len(files)
        result.bytes_after += sum(found.size for found in files)
    return result


def _folders(store: LakeStore, run: str) -> list[str]:
    """The folders with files of a run; what waits for the run's day is merged when it has moved."""
    names = [found.name for each in run_files(store, run).values() for found in each]
    places = {name.rpartition("/")[0]: place_of(name) for name in names}
    return sorted(folder for folder, place in places.items() if place and not place.waits)


def _may_change(store: LakeStore, run: str, *, also_open: bool) -> None:
    if store.size(mark_name(run, EXPIRED)) is not None:
        raise ReportInputError(f"run {run} is being deleted")
    if store.folder is not None and (store.folder.parent / "manifest.json").exists():
        what = "a manifest names the files of this run, one by one: they stay as they are"
        raise ReportInputError(what, store.folder.parent / "manifest.json")
    if store.size(mark_name(run, CLOSED)) is None and not also_open:
        raise ReportInputError(f"run {run} is not closed: more may come, and streams read it")


def groups_of(files: Sequence[Found], least_bytes: int, most_bytes: int) -> list[list[Found]]:
    """Which files become one: neighbours by name, each group at most ``most_bytes``, two or more.

    Pure. A file of ``least_bytes`` is large enough already.
    """
    groups: list[list[Found]] = []
    waiting: list[Found] = []
    total = 0
    for found in files:
        if found.size >= least_bytes:
            continue
        if waiting and total + found.size > most_bytes:
            groups.append(waiting)
            waiting, total = [], 0
        waiting.append(found)
        total += found.size
    groups.append(waiting)
    return [group for group in groups if len(group) > 1]


def _merge(store: LakeStore, folder: str, names: Sequence[str]) -> str:
    """Write one file out of many, in constant memory; returns its name."""
    segments, schema_id = _segments_of(store, names)
    identity = hashlib.sha256(json.dumps(segments, sort_keys=True).encode()).hexdigest()[:16]
    name = f"{folder}/merged-{identity}.parquet"
    rows = sum(int(segment["rows"]) for segment in segments)
    with tempfile.TemporaryFile() as scratch:
        writer: pq.ParquetWriter | None = None
        written = 0
        try:
            for piece in _row_groups(store, names):
                if writer is None:
                    metadata = {SCHEMA_KEY: schema_id, SEGMENTS_KEY: json.dumps(segments)}
                    schema = piece.schema.with_metadata(metadata)
                    writer = lake_writer(scratch, schema)
                writer.write_table(piece.cast(writer.schema), row_group_size=ROW_GROUP_ROWS)
                written += piece.num_rows
        finally:
            if writer is not None:
                writer.close()
        if written != rows:
            what = f"{written} rows where the segments say {rows}: nothing is merged"
            raise ReportInputError(what, f"{store}/{names[0]} and others")
        scratch.seek(0)
        store.write(name, scratch.read())
    return name


def _segments_of(store: LakeStore, names: Sequence[str]) -> tuple[list[Mapping[str, Any]], str]:
    segments: list[Mapping[str, Any]] = []
    schema_id = ""
    for name in names:
        with readable(f"{store}/{name}"), store.open(name) as file:
            metadata = pq.read_schema(file).metadata or {}
            found = segments_in(metadata)
            own = metadata.get(UPLOAD_KEY.encode(), b"").decode()
            schema_id = max(schema_id, metadata.get(SCHEMA_KEY.encode(), b"").decode())
        if not found:
            raise ReportInputError(f"says nothing of itself under {SEGMENT_KEY}", f"{store}/{name}")
        segments += [{"sha256": own} | {**s} if own else s for s in found]
    return segments, schema_id


def _row_groups(store: LakeStore, names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows in pieces of a row group, each ordered by queue and offset."""
    waiting: list[pa.Table] = []
    count = 0
    for name in names:
        with readable(f"{store}/{name}"):
            store.footer(name)
        with (
            readable(f"{store}/{name}"),
            store.open(name) as source,
            pq.ParquetFile(source) as file,
        ):
            for batch in file.iter_batches(BATCH_ROWS):
                waiting.append(pa.table(batch).replace_schema_metadata())
                count += batch.num_rows
                if count >= ROW_GROUP_ROWS:
                    yield _ordered(waiting)
                    waiting, count = [], 0
    if waiting:
        yield _ordered(waiting)


def _ordered(tables: list[pa.Table]) -> pa.Table:
    whole = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
    return lake_order(whole.combine_chunks())


def lake_writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """What writes rows of this schema as ``parquet_bytes`` does."""
    names = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=names,
        write_page_index=True,
        store_schema=True,
    )
