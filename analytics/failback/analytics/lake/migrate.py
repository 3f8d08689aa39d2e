"""Moves runs of a lake of before, and runs that wait, to where the lake's tables have them now.

Each file is written anew without its column ``run``, then the catalogue, then the old file is
deleted. Killed anywhere, the lake has every row, and readers count it once: both files say which
segments are in them. The next migration, or ``fsck``, ends what was begun.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.errors import ReportInputError, StoreUnusable
from failback.analytics.lake.catalogue import EXPIRED
from failback.analytics.lake.compact import StoredCatalogue
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.lake import segments_in
from failback.analytics.lake.layout import (
    first_row_ns,
    known_day,
    run_files,
    run_partitions,
    say_opened,
    settled_name,
)
from failback.analytics.lake.parquet_writing import lake_writer
from failback.analytics.lake.store import LakeStore
from failback.client.consumelog.upload.lake_files import ROW_GROUP_ROWS, lake_rows
from failback.client.consumelog.upload.layout import day_of, folder_of, mark_name, place_of
from failback.common.text import why

_SAYS_NOTHING: Final = "says nothing of itself: it stays where it is"


@dataclass(slots=True)
class Migrated:
    """What became of one run."""

    run: str
    day: str
    moved: int = 0
    left: list[str] = field(default_factory=list)
    """Files that stay where they are, and why."""


def migrate_run(store: LakeStore, run: str, now_ms: int) -> Migrated:
    """Give a run's files their place.

    Nobody may write to the lake meanwhile, nor may a stream read the run.

    Raises:
        ReportInputError: The run is being deleted, or a manifest names its files.
    """
    if store.size(mark_name(run, EXPIRED)) is not None:
        raise ReportInputError(f"run {run} is being deleted")
    if store.folder is not None and (store.folder.parent / "manifest.json").exists():
        what = "a manifest names the files of this run, one by one: they are read as they are"
        raise ReportInputError(what, store.folder.parent / "manifest.json")
    names = [found.name for files in run_files(store, run).values() for found in files]
    day = known_day(store, run)
    if day is None:
        first = first_row_ns(store, names)
        day = say_opened(store, run, first if first is not None and day_of(first) else 0)
    done = Migrated(run, day)
    for name in names:
        place = place_of(name)
        if place is not None and place.waits:
            store.move(name, settled_name(name, day))
            done.moved += 1
        elif place is not None and place.older:
            problem = _write_anew(store, name, place.table, new_name(name, day))
            done.moved += problem is None
            done.left += [] if problem is None else [f"{name}: {problem}"]
    check_run(store, StoredCatalogue(store), run, now_ms)  # the catalogue, and then the deletions
    for each in run_partitions(store, run):
        if each.day is None and not store.files(each.folder, ""):
            store.delete_folder(each.folder)
    return done


def new_name(name: str, day: str) -> str:
    """The name that a file of a lake of before gets."""
    found = place_of(name)
    assert found is not None, name
    return f"{folder_of(found.table, found.run, day)}/{found.file}"


def _write_anew(store: LakeStore, name: str, table: str, to: str) -> str | None:
    """Write the file's rows under their new name; says why not if that can't be."""
    try:
        with (
            store.open(name) as source,
            pq.ParquetFile(source) as file,
            tempfile.TemporaryFile() as scratch,
        ):
            schema = file.schema_arrow
            if not segments_in(schema.metadata or {}):
                return _SAYS_NOTHING
            writer = None
            for batch in file.iter_batches(ROW_GROUP_ROWS):
                rows = lake_rows(pa.table(batch).replace_schema_metadata(schema.metadata), table)
                writer = writer or lake_writer(scratch, rows.schema)
                writer.write_table(rows.cast(writer.schema), row_group_size=ROW_GROUP_ROWS)
            if writer is None:
                return "has no rows: it stays where it is"
            writer.close()
            scratch.seek(0)
            content = scratch.read()
    except StoreUnusable:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"cannot be read: {why(error)}"
    store.write(to, content)
    return None
