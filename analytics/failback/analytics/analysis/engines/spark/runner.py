"""The Spark runner: workers pass over their pieces, and partial rows are added up in a shuffle.

Workers get the passes by one explicit broadcast for each job; no closure holds more than its
handle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from failback.analytics.analysis.engines.base import Joined, Pass
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.spark.catalog import TablesLake
from failback.analytics.analysis.engines.spark.joining import joined_depths, joined_values
from failback.analytics.analysis.engines.spark.sources import LakeFiles, Source
from failback.analytics.analysis.engines.spark.tasks import ddl_of, shared, take_unreadable
from failback.analytics.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def spark_engine(lake: Lake, spark: SparkSession) -> Engine:
    """An engine that works in a session's executors."""
    source = lake.tables if isinstance(lake, TablesLake) else None
    return Engine(SparkRunner(lake, spark, source), lake)


class SparkRunner:
    """Passes over one run's lake in a session."""

    name = "spark"

    def __init__(self, lake: Lake, spark: SparkSession, source: Source | None = None) -> None:
        """Pass over the files of ``lake``, unless another source is given."""
        self._lake = lake
        self._source = source or LakeFiles(spark, lake)
        self.parallelism: int = spark.sparkContext.defaultParallelism

    def mapped(self, passes: Sequence[Pass], schema: pa.Schema) -> SparkRows:
        return SparkRows(self._source.mapped(passes, schema), schema, self._lake)


class SparkRows:
    """A data frame with the columns of an Arrow schema."""

    def __init__(self, frame: DataFrame, schema: pa.Schema, lake: Lake) -> None:
        self.frame = frame
        self._schema = schema
        self._lake = lake

    def whole(self) -> pa.Table:
        return self.frame.toArrow().cast(self._schema)

    def values(self) -> dict[str, pa.Table]:
        return take_unreadable(joined_values(self.frame), self._lake)

    def joined(self, condense: Callable[[pa.Table], pa.Table]) -> Joined:
        kept = self.frame.persist()
        try:
            values = take_unreadable(joined_values(kept), self._lake)
            depths, more, runs = joined_depths(kept, condense)
        finally:
            kept.unpersist()
        return Joined({**values, **more}, depths, runs)

    def by_part(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> Self:
        worker = shared(self.frame.sparkSession, function)
        found = self.frame.groupBy("part").applyInArrow(lambda part: worker()(part), ddl_of(schema))
        return type(self)(found, schema, self._lake)

    def and_(self, other: Self) -> Self:
        return type(self)(self.frame.unionAll(other.frame), self._schema, self._lake)
