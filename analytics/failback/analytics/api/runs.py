"""Runs of a lake or a folder: which there are, and the rows of their tables."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.lake import Lake as Rows
from failback.analytics.lake.layout import runs
from failback.analytics.lake.store import LakeStore, open_store
from failback.analytics.observe.lake import run_at
from failback.analytics.run.folder_reading import read_run_folder
from failback.analytics.run.run_source import (
    RunSource,
    source_in_lake,
    stored_documents,
)
from failback.client.consumelog.schema import RUN, TABLES, arrow_schema
from failback.common.text import install, near_or_all, nearest

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow.dataset as ds

Filter: TypeAlias = "ds.Expression | list[Any]"
"""An expression of ``pyarrow.compute``, or its list form: ``[("grp", "=", "billing")]``."""

_READERS: Final = 16
"""Documents of runs that are asked of a store at one time."""
_NO_FIELD: Final = re.compile(r"No match for FieldRef\.Name\((.*?)\)")
_LISTING: Final = pa.schema(
    [
        ("run", pa.utf8()),
        ("started", pa.timestamp("ns", "UTC")),
        ("experiment", pa.utf8()),
        ("arm", pa.utf8()),
        ("repetition", pa.int64()),
        ("closed", pa.bool_()),
    ]
)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a frame; integers are ``Int64``, so that a missing one leaves them exact.

    Raises:
        ReportInputError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ReportInputError(f"pandas is not installed: {install('spark')}") from error
    exact = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.int8(): pd.Int8Dtype()}
    found: pd.DataFrame = table.to_pandas(types_mapper=exact.get)
    return found


@dataclass(frozen=True)
class Run:
    """One run: what its documents say, and the rows of its tables.

    The documents are read when it is opened, the footers of its files when rows are asked for.
    """

    id: str
    """Its name in a lake and in every row."""
    documents: Mapping[str, Any]
    """``run.json``; empty where a lake has rows of the run and no documents."""
    closed: bool
    """Whether it was closed: it came to its end, or a collector was told so."""
    folder: Path | None
    """The run folder; ``None`` for a run of a lake."""
    lake: str
    """Where the rows are: a folder, or ``s3://bucket/prefix``."""

    @property
    def started(self) -> datetime | None:
        """Run zero by the wall clock, to the microsecond; ``None`` without documents."""
        zero = self.documents.get("zero")
        if zero is None:
            return None
        seconds, ns = divmod(int(zero["wall_ns"]), 10**9)
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ns // 1000)

    @property
    def experiment(self) -> str | None:
        """Name of the experiment."""
        return self.documents.get("experiment")

    @property
    def arm(self) -> str | None:
        """Name of its arm."""
        return self.documents.get("arm")

    @property
    def repetition(self) -> int | None:
        """Number of the repetition, from 0."""
        return self.documents.get("repetition")

    @cached_property
    def source(self) -> RunSource:
        """What the analysis reads. Raises ``ReportInputError`` as :meth:`table`."""
        return run_at(self.folder) if self.folder else source_in_lake(self.lake, self.id)

    @property
    def figures_from(self) -> int:
        """Rows whose time is below are warm-up, in no figure: ns of the run's monotonic clock."""
        folder = self.source.folder
        return max(0, folder.zero_mono_ns + folder.warmup_end_ns)

    @property
    def tables(self) -> dict[str, int]:
        """Rows of each table that the run has."""
        found = self._rows
        return {table: found.rows(table) for table in sorted(found.parts)}

    @property
    def unreadable(self) -> list[str]:
        """Files that are left out, and why: one sentence each."""
        return list(self._rows.unreadable)

    @property
    def _rows(self) -> Rows:
        return self.source.lake

    def dataset(self, table: str) -> ds.Dataset:
        """A table of the run to be scanned: by ``pyarrow.dataset``, DuckDB or Polars.

        Args:
            table: Such as ``deliver``; docs/reference/lake.md has all, with their columns and
                units.

        Returns:
            A dataset of the table's schema; a nullable column that a file lacks reads as null. It
            has no rows where the run has none of the table.

        Raises:
            ReportInputError: There is no such table, or the run cannot be read.
        """
        import pyarrow.dataset as ds  # takes pandas with it, where that is installed

        if table not in TABLES:
            near = near_or_all(nearest(table, TABLES), sorted(TABLES))
            raise ReportInputError(f'there is no table "{table}"{near}')
        schema = arrow_schema(table).remove_metadata()
        parts = self._rows.parts.get(table, ())
        if not parts:
            return ds.dataset(schema.empty_table())
        store = self._rows.store
        # A file of the lake has no column run; the path says it.
        at = schema.get_field_index(RUN)
        schema = schema.set(at, schema.field(at).with_type(pa.utf8()))
        form, is_here = ds.ParquetFileFormat(), ds.field(RUN) == self.id
        files = [
            form.make_fragment(store.path(part.name), store.fs, partition_expression=is_here)
            for part in parts
        ]
        return ds.FileSystemDataset(files, schema, form, store.fs)

    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
    ) -> pa.Table:
        """Rows of a table. Columns and row groups that are not wanted are not read.

        Args:
            name: As for :meth:`dataset`.
            columns: All by default.
            filter: Which rows; it may name columns that are not in ``columns``.

        Raises:
            ReportInputError: There is no such table or column, or a file cannot be read.
        """
        found = self.dataset(name)
        known = found.schema.names
        for column in columns or ():
            if column not in known:
                raise ReportInputError(_no_column(name, column, known))
        chosen = pq.filters_to_expression(filter) if isinstance(filter, list) else filter
        try:
            return found.to_table(columns=None if columns is None else list(columns), filter=chosen)
        except (OSError, pa.ArrowException) as error:
            missing = _NO_FIELD.search(str(error))
            if missing is not None:
                raise ReportInputError(_no_column(name, missing[1], known)) from error
            problem = str(error).partition("\n")[0]
            raise ReportInputError(f"cannot be read: {problem}", f"{self.lake}, {name}") from error

    def frame(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
    ) -> pd.DataFrame:
        """The same for pandas; integers are ``Int64``, so that a missing one leaves them exact."""
        return to_frame(self.table(name, columns, filter))


def _no_column(table: str, column: str, known: Sequence[str]) -> str:
    return f'{table} has no column "{column}"{near_or_all(nearest(column, known), known)}'


class Lake:
    """The runs of a lake. Iterating gives them all, by their ids; ``lake[id]`` gives one."""

    def __init__(self, store: LakeStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Lake({str(self._store)!r})"

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs())

    def __len__(self) -> int:
        return len(self.ids())

    def __getitem__(self, run: str) -> Run:
        return self.run(run)

    def ids(self) -> list[str]:
        """The ids of all runs that have rows, without a look at any of them."""
        return runs(self._store)

    def runs(self, *, experiment: str | None = None, arm: str | None = None) -> list[Run]:
        """The runs, by their ids; only those of an experiment or an arm, if one is named.

        Raises:
            ReportInputError: The store cannot be used, or the document of a run cannot be read.
        """
        with ThreadPoolExecutor(_READERS) as readers:
            found = list(readers.map(self._opened, self.ids()))
        return [
            run for run in found if experiment in (None, run.experiment) and arm in (None, run.arm)
        ]

    def run(self, run: str) -> Run:
        """One run by its id.

        Raises:
            ReportInputError: The lake has no rows of it.
        """
        ids = self.ids()
        if run not in ids:
            near = nearest(run, ids)
            hint = f', did you mean "{near}"?' if near else ""
            raise ReportInputError(f'{self._store} has no rows of run "{run}"{hint}')
        return self._opened(run)

    def listing(self) -> pa.Table:
        """A row per run: ``run, started, experiment, arm, repetition, closed``.

        ``started`` is run zero by the wall clock, UTC. What a run's documents do not say is null.
        """
        rows = [
            {
                "run": run.id,
                "started": (run.documents.get("zero") or {}).get("wall_ns"),
                "experiment": run.experiment,
                "arm": run.arm,
                "repetition": run.repetition,
                "closed": run.closed,
            }
            for run in self.runs()
        ]
        return pa.Table.from_pylist(rows, _LISTING)

    def frame(self) -> pd.DataFrame:
        """The same for pandas."""
        return to_frame(self.listing())

    def query(self, sql: str) -> pa.Table:
        """Answer SQL over all runs, with DuckDB, as ``failback lake query`` does.

        Args:
            sql: One query. It sees every table with ``run`` and ``date``, ``runs``, ``groups`` and
                the views that give a report's figures, such as ``totals``.

        Raises:
            ReportInputError: DuckDB is not installed or refuses the query; an unknown name is told
                with the nearest ones.
        """
        from failback.analytics.run.lake_sql import asked, lake_tables

        tables = lake_tables(_address(self._store))
        with asked(tables, sql) as answer:
            rows = list(answer.rows)
            for file in sorted(set(tables.left_out)):
                warnings.warn(f"left out, it cannot be read: {file}", stacklevel=2)
            columns = [pa.array([row[at] for row in rows]) for at in range(len(answer.columns))]
            return pa.table(columns, names=answer.columns)

    def _opened(self, run: str) -> Run:
        documents, closed = stored_documents(self._store, run)
        return Run(
            run, documents.written if documents else {}, bool(closed), None, _address(self._store)
        )


def _address(store: LakeStore) -> str:
    """What opens the same store again, its endpoint and region too."""
    if store.folder is not None:
        return str(store.folder.absolute())
    place = store.s3
    named = {"endpoint_override": place.endpoint, "region": place.region} if place else {}
    query = "&".join(f"{key}={value}" for key, value in named.items() if value)
    return f"{store}?{query}" if query else str(store)


def open_lake(uri: Path | str) -> Lake:
    """Open a lake.

    Args:
        uri: A folder, or ``s3://bucket/prefix``. The store is found by the usual ``AWS_...``
            variables; ``?endpoint_override=...&region=...`` may name it as well.

    Raises:
        ReportInputError: There is no such folder or bucket, or the store cannot be reached.
    """
    store = open_store(uri)
    if store.folder is not None and not store.folder.is_dir():
        raise ReportInputError("no such folder", store.folder)
    store.check()
    return Lake(store)


def open_run(folder: Path | str) -> Run:
    """Open a run folder.

    Raises:
        ReportInputError: It is no run folder, or its documents cannot be read.
    """
    path = Path(folder)
    found = read_run_folder(path)
    return Run(
        found.run_id, found.run.written, bool(found.closed), path, str(found.lake.absolute())
    )
