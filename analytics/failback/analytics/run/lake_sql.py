"""A lake in SQL: its rows, runs and groups as tables, views with a report's figures, and DuckDB.

``runs`` has one row per run, from its documents: when it began, and from which ``bt`` on a report
counts. ``groups`` has the groups of each run, as its documents declare them, else as its rows say.
The views are the files of ``lake/views``; each is one statement and needs those before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.lake import open_lake
from failback.analytics.lake.layout import Partition, check_lake, partitions
from failback.analytics.lake.store import LakeStore, open_store, readable
from failback.analytics.run.documents import (
    NOT_CLOSED,
    OBSERVED,
    Closed,
    Run,
    read_closed,
    read_run,
)
from failback.analytics.run.run_folder import Evidence, RunFolder
from failback.analytics.run.run_source import stored_closed, stored_run
from failback.client.consumelog.schema import TABLES, lake_schema, schema_of
from failback.common.files import read_object
from failback.common.text import why

if TYPE_CHECKING:
    import duckdb


VIEWS: Final = (
    "handlings",
    "classified",
    "deliveries",
    "sends",
    "commits",
    "totals",
    "queue_totals",
    "redelivered",
    "redelivery_counts",
    "losses",
)
"""In an order in which they can be made."""
RUNS: Final = "runs"
PATH_COLUMNS: Final = pa.schema([("date", pa.date32()), ("run", pa.utf8())])
_RUN_TIMES: Final = schema_of("zero_wall_ns l, zero_mono_ns l, figures_from l")
RUNS_SCHEMA: Final = pa.schema([("run", pa.utf8()), ("date", pa.date32()), *_RUN_TIMES])
GROUPS: Final = "groups"
GROUPS_SCHEMA: Final = schema_of("run s, grp s, topic s, broadcasting b")


def view_sql(name: str) -> str:
    """The statement that makes a view."""
    return (files("failback.analytics.lake") / "views" / f"{name}.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class LakeTables:
    """The tables of a lake, or of one run of it."""

    store: LakeStore
    run: str | None
    folders: dict[str, list[Partition]]
    """Where rows lie, by table."""
    documents: Path | None
    """The run folder that the lake is in."""
    left_out: list[str] = field(default_factory=list)
    """Files that cannot be read and are in no dataset that was asked for, and why."""

    @property
    def runs(self) -> list[str]:
        found = {each.run for folders in self.folders.values() for each in folders}
        return sorted(found if self.run is None else found & {self.run})

    @property
    def is_observed(self) -> bool:
        """Whether it is the lake of a run folder of ``failback observe``."""
        file = self.documents and self.documents / "run.json"
        return file is not None and file.exists() and read_object(file).get("source") == OBSERVED

    @property
    def unseen(self) -> list[str]:
        """Runs whose rows are not where tables are looked for: they wait."""
        misplaced = {e.run for folders in self.folders.values() for e in folders if e.day is None}
        return [] if self.run is not None else sorted(misplaced)

    def dataset(self, table: str) -> ds.Dataset:
        """The rows of a table with ``date`` and ``run``; what a file lacks is null."""
        schema = plain_schema(table)
        if self.run is not None:
            lake = open_lake(self.store, self.run, [table])
            self.left_out.extend(lake.unreadable)
            names = [self.store.path(part.name) for part in lake.parts.get(table, ())]
            own = pa.schema([field for field in schema if field.name not in PATH_COLUMNS.names])
            return ds.dataset(names, own, "parquet", self.store.fs)
        path = self.store.path(f"table={table}")
        if not any(each.day for each in self.folders.get(table, ())):
            return ds.dataset(schema.empty_table())
        irregular = self.store.irregular_files(f"table={table}")
        self.left_out.extend(f"{name}: is no file" for name in irregular)
        parts = ds.partitioning(PATH_COLUMNS, flavor="hive")
        found = ds.dataset(path, schema, "parquet", self.store.fs, parts, partition_base_dir=path)
        if self.store.folder is not None:
            kept = [each for each in found.get_fragments() if self._is_safe(each.path)]
            found = ds.FileSystemDataset(kept, schema, found.format, self.store.fs)
        return found.filter(~ds.field("date").is_null()) if self.unseen else found

    def _is_safe(self, path: str) -> bool:
        name = str(Path(path).relative_to(self.store.path("")))
        try:
            self.store.footer(name)
        except (OSError, ValueError, pa.ArrowException) as error:
            self.left_out.append(f"{name}: {why(error)}")
            return False
        return True

    def runs_table(self) -> pa.Table:
        """The table ``runs``."""
        days: dict[str, str] = {}
        for folders in self.folders.values():
            days |= {each.run: each.day for each in folders if each.day is not None}
        rows = [self._run_row(run, days.get(run)) for run in self.runs]
        return pa.Table.from_pylist(rows, RUNS_SCHEMA)

    def _run_row(self, run: str, day: str | None) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(RUNS_SCHEMA.names)
        row |= {"run": run, "date": None if day is None else date.fromisoformat(day)}
        row["figures_from"] = 0
        described, closed = self._run(run), self._closed(run)
        if described is not None:
            folder = RunFolder(Path(), described, closed, Evidence())
            row["zero_wall_ns"], row["zero_mono_ns"] = folder.zero_wall_ns, folder.zero_mono_ns
            row["figures_from"] = max(0, folder.zero_mono_ns + folder.warmup_end_ns)
        return row

    def groups_table(self) -> pa.Table:
        """The table ``groups``."""
        rows, unknown = [], set()
        for run in self.runs:
            described = self._run(run)
            if described is None:
                unknown.add(run)
                continue
            rows += [
                {"run": run, "grp": g.name, "topic": g.topic, "broadcasting": g.broadcasting}
                for g in described.groups or ()
            ]
        if unknown:
            rows += [row for row in self._assigned() if row["run"] in unknown]
        return pa.Table.from_pylist(rows, GROUPS_SCHEMA)

    def _assigned(self) -> list[dict[str, Any]]:
        """Groups and their topics as consumers were assigned them; retry topics are left out."""
        keys = ["grp", "ptopic"] if self.run is not None else ["run", "grp", "ptopic"]
        with readable():
            held = self.dataset("assign").to_table(columns=keys).group_by(keys).aggregate([])
        return [
            {
                "run": row.get("run", self.run),
                "grp": row["grp"],
                "topic": row["ptopic"],
                "broadcasting": False,
            }
            for row in held.sort_by([(key, "ascending") for key in keys]).to_pylist()
            if not row["ptopic"].startswith("%")
        ]

    def _run(self, run: str) -> Run | None:
        if self.documents is not None:
            return read_run(self.documents / "run.json")
        return stored_run(self.store, run)

    def _closed(self, run: str) -> Closed:
        if self.documents is not None:
            return read_closed(self.documents / "closed.json")
        return stored_closed(self.store, run) or NOT_CLOSED


def lake_tables(source: Path | str, run: str | None = None) -> LakeTables:
    """Look at a lake, or at the lake of a run folder.

    Raises:
        ReportInputError: There is no such folder, it is no lake, or has no rows of the run.
    """
    documents = None
    if "://" not in str(source) and (Path(source) / "run.json").exists():
        documents, source = Path(source), Path(source) / "lake"
    store = open_store(source)
    if store.folder is not None and not store.folder.is_dir():
        raise ReportInputError("no such folder", store.folder)
    store.check()
    check_lake(store)
    folders: dict[str, list[Partition]] = defaultdict(list)
    for each in partitions(store):
        folders[each.table].append(each)
    found = LakeTables(store, run, dict(folders), documents)
    if run is not None and not found.runs:
        raise ReportInputError(f"{store} has no rows of run {run}")
    return found


def plain_schema(table: str) -> pa.Schema:
    """The columns that a query sees: names are text, and the path's columns are there."""
    fields = [field.with_type(_plain(field.type)) for field in lake_schema(table)]
    return pa.schema([*fields, *PATH_COLUMNS])


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


NO_DUCKDB: Final = (
    "queries need DuckDB, which is not installed: pip install '.[query]' in a checkout"
)
_ROWS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query found."""

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def asked(tables: LakeTables, sql: str) -> Iterator[Answer]:
    """Run a query; the answer's rows are read while the context is open.

    Raises:
        ReportInputError: DuckDB is missing, or refuses the query; it names what is near an unknown
            name.
    """
    try:
        import duckdb
    except ImportError as error:
        raise ReportInputError(NO_DUCKDB) from error
    with connected(tables) as db:
        try:
            found = db.execute(sql)
            columns = [each[0] for each in found.description or ()]
            yield Answer(columns, _rows(found))
        except duckdb.Error as error:
            problem, _, _ = str(error).partition("\n\nLINE ")
            raise ReportInputError(" ".join(problem.split())) from error


@contextmanager
def connected(tables: LakeTables) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB of its own, in memory, in which the lake's tables, ``runs`` and the views are."""
    import duckdb

    with duckdb.connect(":memory:") as db:
        known = tables.runs_table()
        db.register(RUNS, known)
        named = tables.groups_table()
        db.register(GROUPS, named)
        for table in TABLES:
            if tables.run is None:
                db.register(table, tables.dataset(table))
                continue
            db.register(f"files of {table}", tables.dataset(table))
            run = tables.run.replace("'", "''")
            day = f"(SELECT date FROM {RUNS} WHERE run = '{run}')"
            db.execute(
                f"CREATE VIEW \"{table}\" AS SELECT *, {day} AS date, '{run}' AS run"
                f' FROM "files of {table}"'
            )
        for view in VIEWS:
            db.execute(view_sql(view))
        yield db


def _rows(found: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := found.fetchmany(_ROWS_AT_ONCE):
        yield from rows
