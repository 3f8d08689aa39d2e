"""Where the rows of a run are, for queries with other tools: DuckDB, pandas, Spark.

Called by ``failback lake paths`` and by notebooks. The files are named one by one, so a query
depends neither on how a lake is laid out nor on what a compaction has left behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from failback.analytics.run.run_source import RunSource, source_at, source_in_lake


@dataclass(frozen=True, slots=True)
class QueryPaths:
    """The files of one run by table."""

    run: str
    figures_from: int
    """Rows of ``deliver`` whose ``bt`` is below are warm-up, in no figure; 0: none are."""
    tables: dict[str, list[str]]
    unreadable: list[str]
    """Files that are in no table because they cannot be read, and why."""

    def __getitem__(self, table: str) -> list[str]:
        return self.tables[table]


def query_paths(folder: Path | str) -> QueryPaths:
    """Return the files of a run folder.

    Raises:
        ReportInputError: It is no run folder, or its lake cannot be read.
    """
    found = source_at(folder)
    return _paths(found, found.folder.lake)


def lake_paths(lake: Path | str, run: str) -> QueryPaths:
    """Return the files of a run in a lake, a folder or ``s3://bucket/prefix``.

    Raises:
        ReportInputError: The lake has no rows of the run, or cannot be read.
    """
    return _paths(source_in_lake(lake, run), lake)


def _paths(found: RunSource, lake: Path | str) -> QueryPaths:
    # Absolute, because the JVM of a Spark session may have begun in another folder.
    root = str(lake).partition("?")[0].rstrip("/")
    if "://" not in root:
        root = str(Path(root).resolve())
    tables = {
        table: [f"{root}/{part.name}" for part in parts]
        for table, parts in found.lake.parts.items()
    }
    run = found.folder
    begin = max(0, run.zero_mono_ns + run.warmup_end_ns)
    return QueryPaths(run.run_id, begin, tables, found.lake.unreadable)
