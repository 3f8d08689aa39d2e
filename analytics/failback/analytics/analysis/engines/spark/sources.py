"""Where the rows of a run come from: workers read files, or Spark itself reads tables.

``LakeFiles`` is the default for a lake: it takes less than half the CPU
(``docs/analytics-engines.md``). ``Tables`` are data frames with the columns of the consume log:
tables that the session's catalog knows, of any format, or the folders of an open lake. Then
columns, partitions and filters are Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol, cast

import pyarrow as pa

from failback.analytics.analysis.engines import row_blocks
from failback.analytics.analysis.engines.base import Pass, Spans
from failback.analytics.analysis.engines.spark.tasks import ddl_of, mapped, shared
from failback.analytics.errors import ReportInputError
from failback.analytics.lake.lake import CHUNK_ROWS, Lake, fitted
from failback.client.consumelog.schema import RUN, TABLES, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Source(Protocol):
    """The rows of one run."""

    def mapped(self, passes: Sequence[Pass], schema: pa.Schema) -> DataFrame:
        """What the passes make of every chunk of their tables."""


@dataclass(frozen=True, slots=True)
class LakeFiles:
    """Files of a lake, which workers read with pyarrow."""

    spark: SparkSession
    lake: Lake

    def mapped(self, passes: Sequence[Pass], schema: pa.Schema) -> DataFrame:
        return mapped(self.spark, self.lake, passes, schema)


@dataclass(frozen=True, slots=True)
class Tables:
    """Data frames of a run's tables, which Spark reads."""

    spark: SparkSession
    run: str
    frames: Mapping[str, DataFrame]
    """As they are: of all runs, with any further columns."""

    def mapped(self, passes: Sequence[Pass], schema: pa.Schema) -> DataFrame:
        found = [self._mapped(each, schema) for each in passes if each.table in self.frames]
        if not found:
            return self.spark.createDataFrame([], ddl_of(schema))
        return reduce(lambda one, other: one.unionAll(other), found)

    def _mapped(self, one: Pass, schema: pa.Schema) -> DataFrame:
        rows = self.read(one.table, one.columns, one.spans)
        work = _Chunks(one.table, one.columns, self.run, one.function)
        worker = shared(self.spark, work)
        return rows.mapInArrow(lambda batches: worker().of(batches), ddl_of(schema))

    def read(self, table: str, columns: Sequence[str], spans: Spans | None = None) -> DataFrame:
        """Columns of a table's rows, in the types of the consume log; missing ones are null.

        Raises:
            ReportInputError: A column that may not be null is missing.
        """
        from pyspark.sql import functions as fn

        frame = self.frames[table]
        known = {name.lower() for name in frame.columns}
        if RUN in known:
            frame = frame.where(fn.col(RUN) == self.run)
        if spans is not None:
            frame = frame.where(_within(spans))
        types = {field.name: field.dataType for field in _types(table)}
        for each in TABLES[table].columns:
            if each.name in columns and not (each.name in known or each.nullable):
                if each.name != RUN:
                    raise ReportInputError(f"table {table} has no column {each.name}")
                frame = frame.withColumn(RUN, fn.lit(self.run))
                known.add(RUN)
        return frame.select(
            *(
                (fn.col(name) if name in known else fn.lit(None)).cast(types[name]).alias(name)
                for name in columns
            )
        )

    def pieces(self, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of a table here, a few at a time."""
        work = _Chunks(table, columns, self.run, _packed)
        worker = shared(self.spark, work)
        rows = self.read(table, columns)
        found = rows.mapInArrow(lambda batches: worker().of(batches), "block binary")
        for row in found.toLocalIterator():
            yield pa.ipc.open_stream(bytes(row.block)).read_all()


def _packed(chunk: pa.Table) -> pa.Table:
    return pa.table({"block": pa.array([row_blocks.packed(chunk)], pa.binary())})


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Makes of the batches that Spark hands over what a pass expects."""

    table: str
    columns: Sequence[str]
    run: str
    function: Callable[[pa.Table], pa.Table]

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        count = 0
        for batch in batches:
            waiting.append(batch)
            count += batch.num_rows
            if count >= CHUNK_ROWS // 4:
                yield from self._made(waiting)
                waiting, count = [], 0
        if count:
            yield from self._made(waiting)

    def _made(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(batches)
        chunk = fitted(rows, self.table, self.columns, self.run).unify_dictionaries()
        yield from self.function(chunk.combine_chunks()).to_batches()


def _within(spans: Spans) -> Column:
    """The rows that may be in one of the spans; a row without a lane may be anywhere."""
    from pyspark.sql import functions as fn

    known = [
        reduce(and_, (fn.col(name).between(*span) for name, span in each.items())) for each in spans
    ]
    return reduce(or_, known, fn.col("lane").isNull())


def _types(table: str) -> StructType:
    """The columns of a table of the consume log."""
    from pyspark.sql.types import StructType

    return cast(StructType, StructType.fromDDL(spark_ddl(table)))


def catalog_tables(spark: SparkSession, schema: str) -> dict[str, DataFrame]:
    """The tables of a schema that the session's catalog knows: ``CATALOG.SCHEMA``.

    Raises:
        ReportInputError: It has no table ``deliver``.
    """
    found = {
        name: spark.table(f"{schema}.{name}")
        for name in TABLES
        if spark.catalog.tableExists(f"{schema}.{name}")
    }
    if "deliver" not in found:
        raise ReportInputError(f"--tables {schema}: there is no table {schema}.deliver")
    return found


def lake_tables(spark: SparkSession, lake: Lake) -> dict[str, DataFrame]:
    """The folders of an open lake, as Spark reads them; of older ones and of waiting rows, too."""
    return {table: _folders(spark, lake, table) for table, parts in lake.parts.items() if parts}


def _folders(spark: SparkSession, lake: Lake, table: str) -> DataFrame:
    """The files of a table that count.

    Spark lists the day of the run; its filter on the partition ``run`` says what it reads of that.
    """
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StringType, StructType

    types = _types(table)
    folders = sorted({PurePosixPath(part.name).parent for part in lake.parts[table]})
    dated = all(folder.parent.name.startswith("date=") for folder in folders)
    if dated:
        days = sorted({folder.parent for folder in folders})
        reader = spark.read.schema(types.add("date", StringType()))
        reader = reader.option("basePath", lake.store.spark_uri(str(days[0].parent)))
    else:  # they have the run in their files, or nowhere
        days = folders
        reader = spark.read.schema(StructType([each for each in types if each.name != RUN]))
    rows = reader.parquet(*(lake.store.spark_uri(str(day)) for day in days))
    left_out = [*lake.passed_over, *(each.split(": ")[0] for each in lake.unreadable)]
    gone = [PurePosixPath(name).name for name in left_out]
    return rows.where(~fn.col("_metadata.file_name").isin(gone)) if gone else rows
