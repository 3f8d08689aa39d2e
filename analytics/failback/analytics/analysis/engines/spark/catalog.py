"""A run whose rows are tables that a Spark session reads: of its catalog, or of an open lake."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from failback.analytics.analysis.engines.spark.sources import Tables, catalog_tables, lake_tables
from failback.analytics.errors import ReportInputError
from failback.analytics.lake.lake import CHUNK_ROWS, Lake, Part, fitted
from failback.analytics.lake.row_groups import Wanted
from failback.analytics.lake.store import open_store
from failback.analytics.run.folder_reading import read_run_folder
from failback.analytics.run.run_source import RunSource, documents_in, source_in_lake
from failback.client.consumelog.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE: Final = re.compile(
    r"\[FAILED_READ_FILE[.\w]*\] Encountered error while reading file (?P<spark>\S+?)\.\s"
    r"|(?P<other>(?:\w+:)?/[^\s,:;'\"]+\.(?:parquet|orc|avro))(?![\w/.])"
)
"""As Spark says it, or any file of rows: Iceberg has readers and words of its own."""
_CAUSE: Final = re.compile(r"^\s*Caused by: (?:[\w$]+\.)*(?P<what>[\w$]+)(?:: (?P<why>.+))?$", re.M)
_LONGEST: Final = 160


@contextmanager
def naming_files() -> Iterator[None]:
    """Turn a failure of Spark to read a file into a ``ReportInputError`` that says which and why.

    What else fails inside stays as it is.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        told = str(error)
        found = _FILE.search(told)
        if found is None:
            raise
        name = found["spark"] or found["other"]
        raise ReportInputError(
            f"Spark cannot read it: {_cause(told)}; restore the file, or load its rows again", name
        ) from error


def _cause(told: str) -> str:
    """The innermost reason of a stack, shortened."""
    causes = list(_CAUSE.finditer(told))
    if not causes:
        return "it is damaged, or gone"
    last = causes[-1]
    why = re.sub(r"\w*:?/\S+", "it", last["why"] or last["what"]).strip().rstrip(".")
    return why if len(why) <= _LONGEST else f"{why[:_LONGEST]}..."


OF_LAKE: Final = "lake"
"""Instead of a schema: Spark reads the files of the lake itself."""
_ENDS: Final = {"deliver": "et", "assign": "end_t"}
"""Tables whose rows have an end, and a column that is null where it is not known."""


@dataclass(slots=True)
class TablesLake(Lake):
    """The tables of one run; small ones come here a few rows at a time."""

    tables: Tables | None = None

    def chunks(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        rows: int = CHUNK_ROWS,
        wanted: Wanted | None = None,
    ) -> Iterator[pa.Table]:
        if self.tables is None or not self.parts.get(table):
            return
        names = columns or [column.name for column in TABLES[table].columns]
        for piece in self.tables.pieces(table, names):
            yield fitted(piece, table, names, self.run)


@naming_files()
def source_in_tables(
    spark: SparkSession,
    schema: str,
    lake: Path | str,
    run: str | None = None,
    documents: Path | None = None,
) -> RunSource:
    """A run whose rows Spark reads.

    Args:
        spark: The session.
        schema: ``CATALOG.SCHEMA`` of tables named as those of the consume log; ``lake`` lets Spark
            read the files of ``lake``.
        lake: Where the documents of the run are, unless ``documents`` are given.
        run: The run's id; that of ``documents`` by default.
        documents: A run folder with ``run.json``.

    Raises:
        ReportInputError: There are no rows of the run, a file cannot be read, or its documents
            cannot.
    """
    if schema == OF_LAKE:
        source = source_in_lake(lake, run, documents)
        tables = Tables(spark, source.lake.run, lake_tables(spark, source.lake))
        known = {name: getattr(source.lake, name) for name in Lake.__dataclass_fields__}
        return replace(source, lake=TablesLake(**known, tables=tables))
    given = read_run_folder(documents) if documents is not None else None
    named = run or (given.run_id if given else None)
    if named is None or (given is not None and given.run_id != named):
        raise ReportInputError(f"--tables {schema}: name a run: --run ID")
    tables = Tables(spark, named, catalog_tables(spark, schema))
    parts = {table: [_part(tables, schema, table)] for table in tables.frames}
    parts = {table: [part] for table, (part,) in parts.items() if part.rows}
    if not parts:
        raise ReportInputError(f"--tables {schema} has no rows of run {named}")
    store = open_store(lake)
    found = TablesLake(store, named, parts, tables=tables)
    for table in parts:
        present = {name.lower() for name in tables.frames[table].columns}
        missing = [c.name for c in TABLES[table].columns if c.name not in present and c.nullable]
        if missing:
            found.filled[table] = missing
    return RunSource(given or documents_in(store, found), found)


def _part(tables: Tables, schema: str, table: str) -> Part:
    """What the footers of files say, counted from a table's rows: one segment for each process.

    Raises:
        ReportInputError: A column is missing, or deliveries are in the table twice.
    """
    from pyspark.sql import functions as fn

    frame = tables.frames[table]
    columns = [c.name for c in TABLES[table].columns if not c.nullable]
    asked = [fn.count("*").alias("rows"), fn.min("seq").alias("lo"), fn.max("seq").alias("hi")]
    if table in _ENDS:  # an end in its begin's row was a record of its own
        columns.append(_ENDS[table])
        asked.append(fn.count(_ENDS[table]).alias("ends"))
    if table == "deliver":
        columns += ["lane", "lseq"]
        asked.append((fn.max("did") - fn.min("did") + 1).alias("dids"))
        asked.append(fn.max(fn.col("lane").isNull() | fn.col("lseq").isNull()).alias("lacking"))
    found = tables.read(table, columns).groupBy("proc_no").agg(*asked).collect()
    segments = []
    for row in (each.asDict() for each in found):
        if row["rows"] > row.get("dids", row["rows"]):
            raise ReportInputError(
                f"--tables {schema}: {schema}.{table} has deliveries twice: {row['rows']:,} rows of"
                f" process {row['proc_no']}, which has {row['dids']:,}; load each segment once"
            )
        segments.append(
            {"proc_no": row["proc_no"], "index": 0, "seq_lo": row["lo"], "seq_hi": row["hi"],
             "records": row["rows"] + row.get("ends", 0)}
        )  # fmt: skip
    rows = sum(row.rows for row in found)
    lacking = any(row.asDict().get("lacking") for row in found)
    return Part(f"{schema}.{table}", 0, rows, tuple(frame.columns), tuple(segments), lacking)
