"""Where the rows of a run are, for queries with other tools: DuckDB, pandas, Spark.

Called by ``failback lake paths`` and by notebooks. The files are named one by one, so a query
depends neither on how a lake is laid out nor on what a compaction has left behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.lake import open_lake
from failback.analytics.run.folder_reading import read_run_folder

_NO_WARM_UP = -(1 << 62)


@dataclass(frozen=True, slots=True)
class QueryPaths:
    """The files of one run by table."""

    run: str
    figures_from: int | None
    """Rows of ``deliver`` whose ``bt`` is below are warm-up, in no figure; ``None``: none are."""
    tables: dict[str, list[str]]

    def __getitem__(self, table: str) -> list[str]:
        return self.tables[table]


def query_paths(folder: Path | str) -> QueryPaths:
    """Return the files of a run folder.

    Raises:
        ReportInputError: It is no run folder, or its lake cannot be read.
    """
    run = read_run_folder(Path(folder))
    found = lake_paths(run.lake, run.run_id)
    warm = run.warmup_end_ns
    begin = None if warm <= _NO_WARM_UP else run.zero_mono_ns + warm
    return QueryPaths(found.run, begin, found.tables)


def lake_paths(lake: Path | str, run: str) -> QueryPaths:
    """Return the files of a run in a lake, a folder or ``s3://bucket/prefix``.

    Raises:
        ReportInputError: The lake has no rows of the run, or cannot be read.
    """
    opened = open_lake(lake, run)
    if not opened.parts:
        raise ReportInputError(f"{lake} has no rows of run {run}")
    # Absolute, because the JVM of a Spark session may have begun in another folder.
    root = str(lake).partition("?")[0].rstrip("/")
    if "://" not in root:
        root = str(Path(root).resolve())
    tables = {
        table: [f"{root}/{part.name}" for part in parts] for table, parts in opened.parts.items()
    }
    return QueryPaths(run, None, tables)
