"""Files of the lake as Spark tasks: workers read them with pyarrow and run numpy on each chunk.

A session's executors get file names, not rows: reading Parquet in the JVM and handing every row
over costs more than everything that is done with it. What comes back are partial rows, or the few
rows to classify. The lake's files are at most a million rows, or are merged ones of a few
row groups, so tasks of several files of about equal size keep all executors at work.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials.rows import Codes
from failback.analytics.analysis.counting.partials.sums import SCHEMA, Key, Partials
from failback.analytics.analysis.engines.base import Pass
from failback.analytics.lake.lake import Lake, Part
from failback.analytics.lake.store import StoreAddress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK_ROWS: Final = 4 << 20
"""Rows that one task reads, about."""

_SPARK_TYPES: Final = {
    pa.int8(): "tinyint",
    pa.int64(): "bigint",
    pa.utf8(): "string",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
}


def ddl_of(schema: pa.Schema) -> str:
    """The schema as Spark says it."""
    return ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in schema)


def mapped(spark: SparkSession, lake: Lake, passes: Sequence[Pass], schema: pa.Schema) -> DataFrame:
    """What the passes make of every chunk of their tables, as one data frame of ``schema``.

    A file that cannot be read is left out. Passes that make partial rows name it in the family
    ``families.UNREADABLE``; others read the same files again and need not.
    """
    slim = {each.table: _without_segments(lake, each.table) for each in passes}
    files = [
        (number, at, part.rows)
        for number, each in enumerate(passes)
        for at, part in enumerate(slim[each.table])
    ]
    tasks = _spread(files, spark.sparkContext.defaultParallelism)
    work = _Work(StoreAddress.of(lake.store), lake.run, passes, slim, tasks, schema == SCHEMA)
    worker = shared(spark, work)

    def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = worker()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from mine.of(task)

    rows = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    return rows.mapInArrow(numbered, ddl_of(schema))


@dataclass(frozen=True, slots=True)
class _Work:
    """Everything that workers need to know of one job."""

    address: StoreAddress
    run: str
    passes: Sequence[Pass]
    files: Mapping[str, Sequence[Part]]
    tasks: Sequence[Sequence[tuple[int, int]]]
    """Per task (pass, number of the file in its table)."""
    names_bad: bool

    def of(self, task: int) -> Iterator[pa.RecordBatch]:
        """What the passes make of one task's files."""
        store = self.address.open()
        for number, each in enumerate(self.passes):
            # Together: small files become one chunk.
            files = [self.files[each.table][at] for of, at in self.tasks[task] if of == number]
            mine = Lake(store, self.run, {each.table: files})
            for chunk in mine.chunks(each.table, each.columns, wanted=each.wanted):
                yield from each.function(chunk).to_batches()
            if mine.unreadable and self.names_bad:
                yield from _named(mine.unreadable).to_batches()


def _without_segments(lake: Lake, table: str) -> list[Part]:
    return [replace(part, segments=()) for part in lake.parts.get(table, ())]


def _spread(files: Sequence[tuple[int, int, int]], parallelism: int) -> list[list[tuple[int, int]]]:
    """Tasks of about equal numbers of rows: large files first, each to the least busy task."""
    rows = sum(count for *_, count in files)
    wanted = max(2 * parallelism, -(-rows // TASK_ROWS))
    tasks: list[list[tuple[int, int]]] = [[] for _ in range(min(wanted, len(files)))]
    busy = [(0, number) for number in range(len(tasks))]
    for number, at, count in sorted(files, key=lambda file: (-file[2], file)):
        load, task = heapq.heappop(busy)
        tasks[task].append((number, at))
        heapq.heappush(busy, (load + count, task))
    return tasks


def _named(unreadable: Sequence[str]) -> pa.Table:
    out = Partials()
    for text in unreadable:
        key = Key(file=Codes(np.zeros(1, np.int64), [text]))
        out.values(families.UNREADABLE, key, np.ones(1, np.int64))
    return out.table()


def take_unreadable(values: Mapping[str, pa.Table], lake: Lake) -> dict[str, pa.Table]:
    """The values without the family of unreadable files, which the lake gets to know."""
    kept = dict(values)
    for row in families.UNREADABLE.rows(kept):
        if row["file"] not in lake.unreadable:
            lake.unreadable.append(row["file"])
    kept.pop(families.UNREADABLE.name, None)
    return kept


T = TypeVar("T")
_STORES: Final = "AWS_"


def shared(spark: SparkSession, value: T) -> Callable[[], T]:
    """Broadcast a value, functions and what they hold included; workers call for it.

    What lets this process into object stores lets them in as well.
    """
    from pyspark import cloudpickle

    # A broadcast of its own would pickle functions by name, also those of the main program, which
    # in a worker is another one.
    ours = {name: text for name, text in os.environ.items() if name.startswith(_STORES)}
    content: bytes = cloudpickle.dumps((ours, value))  # type: ignore[no-untyped-call]
    handle = spark.sparkContext.broadcast(content)

    def found() -> T:
        read: tuple[dict[str, str], T] = cloudpickle.loads(handle.value)
        os.environ.update(read[0])
        return read[1]

    return found
