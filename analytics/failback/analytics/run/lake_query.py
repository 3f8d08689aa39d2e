"""SQL over a lake, with DuckDB where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from failback.analytics.errors import ReportInputError
from failback.analytics.run.lake_tables import GROUPS, RUNS, VIEWS, LakeTables, view_sql
from failback.client.consumelog.schema import TABLES

if TYPE_CHECKING:
    import duckdb

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
