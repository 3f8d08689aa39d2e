"""The engines of a race: each answers one question over one generated run.

``counts`` is how often offsets were handled more than once, per group and queue, exactly; DuckDB
and Spark's own ``groupBy`` answer it with five keys. ``causes`` is the whole analysis, ``report``
the document that is made of it as well. ``partials`` and ``read`` are what the whole is compared
with: its first half, and reading the same columns.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.analysis import analyse, prepare
from failback.analytics.analysis.causes.windows import cause_of
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.normalise import deliver_columns
from failback.analytics.analysis.counting.partials.commits import COMMIT_COLUMNS
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.analysis.counting.partials.sends import (
    PRODUCE_COLUMNS,
    PULL_COLUMNS,
    SCAN_COLUMNS,
)
from failback.analytics.analysis.counting.partials.sums import SCHEMA, Key, Partials
from failback.analytics.analysis.engines.base import Pass
from failback.analytics.analysis.engines.chunks import ATTEMPT_COLUMNS
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.joins import join_depths
from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.lake.lake import Lake, open_lake
from failback.analytics.report.document import build_report
from failback.analytics.run.definitions import DEFAULT
from failback.analytics.run.folder_reading import read_run_folder
from failback.client.consumelog.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answer = Mapping[str, Any]
KEYS: Final = ("grp", "broker", "ptopic", "qid", "qoff")


def duckdb_counts(folder: Path, _: SparkSession | None) -> Answer:
    """One plain GROUP BY over five keys."""
    import duckdb

    files = f"{folder}/lake/table=deliver/date=*/run=*/*.parquet"
    with duckdb.connect(":memory:") as db:
        rows = db.execute(
            f"""SELECT grp, qid, sum(n - 1) AS repeated
                FROM (SELECT {", ".join(KEYS)}, count(*) AS n
                      FROM read_parquet('{files}', hive_partitioning = false) GROUP BY ALL)
                GROUP BY grp, qid"""
        ).fetchall()
    return _counts(rows)


def local_counts(folder: Path, _: SparkSession | None) -> Answer:
    """Runs of offsets, swept; Parquet read included."""
    lake = _lake(folder, "deliver")
    found = [copies(chunk) for chunk in lake.chunks("deliver", KEYS)]
    return _of_depths(join_depths(found)[0]["copy"])


def spark_counts(folder: Path, spark: SparkSession | None) -> Answer:
    """The same by Spark's executors, swept after a shuffle of runs."""
    from failback.analytics.analysis.engines.spark.joining import joined_depths
    from failback.analytics.analysis.engines.spark.tasks import mapped

    assert spark is not None
    found = mapped(spark, _lake(folder, "deliver"), [Pass("deliver", KEYS, copies)], SCHEMA)
    found = found.persist()
    try:
        return _of_depths(joined_depths(found)[0]["copy"])
    finally:
        found.unpersist()


def spark_group_by(folder: Path, spark: SparkSession | None) -> Answer:
    """Spark's plain groupBy over five keys."""
    from pyspark.sql import functions as fn

    assert spark is not None
    files = folder.glob("lake/table=deliver/date=*/run=*/*.parquet")
    rows = spark.read.parquet(*map(str, files))
    counts = rows.groupBy(*KEYS).count().groupBy("grp", "qid").agg(fn.sum(fn.col("count") - 1))
    return _counts([tuple(row) for row in counts.collect()])


def copies(chunk: pa.Table) -> pa.Table:
    """Partial rows of how often each offset was delivered."""
    rows = Rows(chunk)
    names = {"grp": "grp", "broker": "broker", "topic": "ptopic"}
    key = Key(**{name: rows.codes(column) for name, column in names.items()})
    out = Partials()
    everything = np.ones(rows.count, bool)
    out.intervals(
        families.COPY,
        key.and_(qid=rows["qid"], epoch=np.zeros(rows.count, np.int64)),
        rows["qoff"],
        everything,
    )
    return out.table()


def local_causes(folder: Path, _: SparkSession | None) -> Answer:
    return _causes(folder, local_engine)


def spark_causes(folder: Path, spark: SparkSession | None) -> Answer:
    return _causes(folder, _spark_engine(spark))


def local_report(folder: Path, _: SparkSession | None) -> Answer:
    """What ``failback report`` says, by group and queue."""
    lake = _lake(folder)
    document, _points = build_report(analyse(read_run_folder(folder), lake, local_engine(lake)), "")
    return answer_of(document)


def answer_of(document: Mapping[str, Any]) -> Answer:
    """What a report says, by group and queue."""
    found: dict[str, Any] = {
        row["group"]: {name: row[name] for name in ("delivered", "dup", "causes")} | {"queues": {}}
        for row in document["groups"]
    }
    for row in document["queues"]:
        found[row["group"]]["queues"][str(row["qid"])] = {"dup": row["dup"]}
    return found


def local_partials(folder: Path, _: SparkSession | None) -> Answer:
    return _partial_rows(folder, local_engine)


def spark_partials(folder: Path, spark: SparkSession | None) -> Answer:
    return _partial_rows(folder, _spark_engine(spark))


def spark_tables_partials(folder: Path, spark: SparkSession | None) -> Answer:
    """The same where Spark reads the files, and hands the rows over."""
    from failback.analytics.analysis.engines.spark.catalog import OF_LAKE, source_in_tables
    from failback.analytics.analysis.engines.spark.runner import spark_engine

    assert spark is not None
    run = read_run_folder(folder)
    lake = source_in_tables(spark, OF_LAKE, run.lake, documents=folder).lake
    context = prepare(run, lake, spark_engine(lake, spark)).context
    rows = spark_engine(lake, spark).count(context).values["delivered"].to_pylist()
    return {row["grp"]: {"delivered": row["value"]} for row in rows}


def read(folder: Path, _: SparkSession | None) -> Answer:
    """Every column that the local engine looks at, once, and how many rows were read."""
    lake = _lake(folder)
    sends = {*PRODUCE_COLUMNS, *ATTEMPT_COLUMNS}
    columns = {
        "deliver": deliver_columns(DEFAULT, foreign=lake.has_foreign, full=True),
        "produce": sorted(sends),
        "pull": PULL_COLUMNS,
        "commit": COMMIT_COLUMNS,
        "scan": SCAN_COLUMNS,
    }
    groups: Counter[str] = Counter()
    for table, names in columns.items():
        for chunk in lake.chunks(table, names):
            if table == "deliver":
                for each in pc.value_counts(chunk.column("grp")).to_pylist():
                    groups[each["values"]] += each["counts"]
    return {grp: {"delivered": count} for grp, count in groups.items()}


ENGINES: Final[dict[str, Callable[[Path, SparkSession | None], Answer]]] = {
    "duckdb": duckdb_counts,
    "local-counts": local_counts,
    "local-read": read,
    "local-partials": local_partials,
    "local-causes": local_causes,
    "local-report": local_report,
    "spark-group-by": spark_group_by,
    "spark-counts": spark_counts,
    "spark-partials": spark_partials,
    "spark-tables-partials": spark_tables_partials,
    "spark-causes": spark_causes,
}


def is_right(found: Answer, truth: Mapping[str, Any]) -> bool:
    """Whether everything that an answer says is so, of every group and queue."""
    groups = truth["groups"]
    return set(found) == set(groups) and all(_says(groups[g], row) for g, row in found.items())


def _says(truth: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    for name, value in found.items():
        if name == "queues":
            if set(value) != set(truth["queues"]):
                return False
            if not all(_says(truth["queues"][qid], row) for qid, row in value.items()):
                return False
        elif truth[name] != value:
            return False
    return True


def _lake(folder: Path, *wanted: str) -> Lake:
    run = read_run_folder(folder)
    return open_lake(run.lake, run.run_id, wanted or TABLES)


def _spark_engine(spark: SparkSession | None) -> Callable[[Lake], Engine]:
    from failback.analytics.analysis.engines.spark.runner import spark_engine

    assert spark is not None
    return lambda lake: spark_engine(lake, spark)


def _counts(rows: Sequence[tuple[Any, ...]]) -> Answer:
    found: dict[str, Any] = defaultdict(lambda: {"repeated_offsets": 0, "queues": {}})
    for grp, qid, repeated in rows:
        found[grp]["repeated_offsets"] += int(repeated)
        found[grp]["queues"][str(qid)] = {"repeated_offsets": int(repeated)}
    return dict(found)


def _of_depths(depths: pa.Table) -> Answer:
    span = pc.subtract(depths.column("hi"), depths.column("lo"))
    again = pc.multiply(pc.subtract(depths.column("depth"), 1), span)
    columns = (depths.column("grp"), depths.column("n1"), again)
    counts: Counter[tuple[str, int]] = Counter()
    for grp, qid, count in zip(*(column.to_pylist() for column in columns), strict=True):
        counts[grp, qid] += count
    return _counts([(*key, count) for key, count in counts.items()])


def _partial_rows(folder: Path, make: Callable[[Lake], Engine]) -> Answer:
    lake = _lake(folder)
    engine = make(lake)
    context = prepare(read_run_folder(folder), lake, engine).context
    rows = engine.count(context).values["delivered"].to_pylist()
    return {row["grp"]: {"delivered": row["value"]} for row in rows}


def _causes(folder: Path, make: Callable[[Lake], Engine]) -> Answer:
    lake = _lake(folder)
    analysis = analyse(read_run_folder(folder), lake, make(lake))
    found: dict[str, Any] = {
        row["grp"]: {"delivered": row["value"], "dup": 0, "causes": {}, "queues": {}}
        for row in analysis.counts.values["delivered"].to_pylist()
    }
    copies_ = analysis.counts.depths["copy"]
    for grp, qid in set(zip(*(copies_.column(n).to_pylist() for n in ("grp", "n1")), strict=True)):
        found[grp]["queues"][str(qid)] = {"dup": 0, "causes": {}}
    for each in families.DUPS.rows(analysis.repeats.values):
        count, cause = each["value"], cause_of(each["cause"])
        for row in (found[each["grp"]], found[each["grp"]]["queues"][str(each["qid"])]):
            row["dup"] += count
            if cause is not None:
                row["causes"][cause] = row["causes"].get(cause, 0) + count
    for row in found.values():
        row["causes"] = dict(sorted(row["causes"].items()))
    return found
