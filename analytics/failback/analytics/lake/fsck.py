"""Makes the catalogue agree with the files of the lake; the files are right.

The collector does this for every run when it starts. By hand, with the collector stopped:
``failback lake fsck LAKE``.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.lake.catalogue import Catalogue, Entry, StoredCatalogue
from failback.analytics.lake.lake import segments_in, shadowed
from failback.analytics.lake.layout import opened_day, run_files, settle, settled_name
from failback.analytics.lake.segment_ids import UPLOAD_KEY, SegmentId, SegmentNote
from failback.analytics.lake.store import LakeStore
from failback.client.consumelog.upload.layout import place_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """What was found in one run. Names are below the lake's root."""

    run: str
    segments: int
    added: tuple[str, ...]
    """Files that had no line."""
    vanished: tuple[str, ...]
    """Lines whose file is gone: records are missing."""
    unreadable: tuple[str, ...]
    """Files whose footer cannot be read, or that say nothing about themselves."""
    doubled: tuple[str, ...] = ()
    """Files whose segments are in another file too: a compaction was cut, and goes on by itself."""


def entry_of(
    table: str, name: str, size: int, note: SegmentNote, sha256: str | None, now_ms: int
) -> Entry:
    """The catalogue's line for a segment in a file of the lake."""
    names = ("proc", "proc_no", "index", "seq_lo", "seq_hi", "rows", "records", "host", "role")
    return Entry(
        id=str(SegmentId(note.run, note.proc, note.index, table)),
        sha256=sha256,
        path=name,
        bytes=size,
        table=table,
        stored_ms=now_ms,
        **{name: getattr(note, name) for name in names},
    )


def check_run(
    store: LakeStore, catalogue: Catalogue | StoredCatalogue, run: str, now_ms: int
) -> CheckedRun:
    """Compare the lines of a run with its files, and write the catalogue again if they differ.

    A segment counts once. Where two files have it, a compaction was killed between its new files
    and its last deletion: the merged file stands, and the old one is deleted after the catalogue
    says so. Files of an open run that still wait are moved into the tables first.
    """
    day = opened_day(store, run)
    if day is not None:
        settle(store, run, day)
    by_table = run_files(store, run)
    files = {found.name: found.size for each in by_table.values() for found in each}
    lines = list(catalogue.entries(run))
    moved = [_where_it_is(entry, files, day) for entry in lines]
    held: dict[str, dict[str, Entry]] = {}
    for entry in moved:
        if entry.path in files:
            held.setdefault(entry.path, {})[entry.id] = entry
    added: list[str] = []
    unreadable: list[str] = []
    for name in sorted(set(files) - set(held)):
        found = _entries_of(store, name, files[name], now_ms)
        if found:
            held[name] = {entry.id: entry for entry in found}
            added.append(name)
        else:
            unreadable.append(name)
    doubled = sorted(shadowed({name: set(entries) for name, entries in held.items()}))
    kept = {
        each.id: each
        for name, entries in held.items()
        if name not in doubled
        for each in entries.values()
    }
    vanished = tuple(sorted({entry.path for entry in moved if entry.id not in kept}))
    if list(kept.values()) != lines:
        catalogue.replace(run, list(kept.values()))
        logger.warning(
            "catalogue of %s: %d files added, %d lines without a file dropped",
            run, len(added), len(vanished),
        )  # fmt: skip
    for name in doubled:
        store.delete(name)
    added = [name for name in added if name not in doubled]
    return CheckedRun(run, len(kept), tuple(added), vanished, tuple(unreadable), tuple(doubled))


def _where_it_is(entry: Entry, files: Container[str], day: str | None) -> Entry:
    """The line with the file's place of now, where the file was moved without it."""
    name = settled_name(entry.path, day)
    return entry if entry.path in files else msgspec.structs.replace(entry, path=name)


def _entries_of(store: LakeStore, name: str, size: int, now_ms: int) -> list[Entry]:
    place = place_of(name)
    assert place is not None, name
    try:
        with store.open(name) as file:
            metadata = pq.read_schema(file).metadata or {}
        segments = segments_in(metadata)
        notes = [msgspec.convert(segment, SegmentNote) for segment in segments]
        own = metadata.get(UPLOAD_KEY.encode(), b"").decode()
    except (OSError, ValueError, pa.ArrowException, msgspec.ValidationError) as error:
        logger.error("%s cannot be catalogued: %s", name, error)
        return []
    hashes = [segment.get("sha256") or own or None for segment in segments]
    shares = size // max(1, len(notes))
    return [
        entry_of(place.table, name, shares, note, sha256, now_ms)
        for note, sha256 in zip(notes, hashes, strict=True)
    ]
