"""The Spark engine against the cases, the oracle, the local engine and known answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from failback.analytics.analysis.engines import engine as engines
from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.analysis.engines.spark.runner import spark_engine
from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.errors import ReportInputError
from failback.analytics.report import make_report
from failback.analytics.report.make_report import (
    build_report,
    read_report,
    report,
    report_many,
)
from failback.analytics.run.definitions import Definitions
from tests.benchmarks.analytics.engine_race import answer_of, is_right
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.spark.spark_session import two_threads
from tests.support.analytics import bad_input, business_keys, foreign_run
from tests.support.analytics.cases import CASES
from tests.support.analytics.histories import random_history
from tests.support.analytics.oracle import Oracle
from tests.support.analytics.oracle_check import assert_agrees
from tests.support.analytics.run_analysis import Analysed, analysed
from tests.support.analytics.run_builder import merged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark's own sockets to its JVM are closed by its finalisers, after the test that used them.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

HISTORIES = 60
MORE = 50
"""So many histories are one run of the soak; each of its ten runs ends within minutes."""
WARM = {"engine", "created", "timings"}
WHERE_THE_ENGINE_MATTERS = {
    "corrupt_pages", "required_column_missing", "unknown_status", "unknown_end_reason",
    "impossible_rows", "offsets_of_62_bits",
}  # fmt: skip
"""Bad input that Spark's own passes and joins come across; the soak run meets all of it."""
BAD_INPUT = [
    pytest.param(name, marks=[] if name in WHERE_THE_ENGINE_MATTERS else [pytest.mark.soak])
    for name in bad_input.CASES
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    problem = why_not()
    if problem:
        pytest.skip(problem)
    yield from two_threads(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="module")
def everything(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Analysed, Analysed, Oracle]:
    """All cases and many random histories as the groups of one run: local, spark, oracle."""
    builders = [build()[0] for build in CASES.values()]
    builders += [random_history(Random(seed), warmup=False) for seed in range(HISTORIES)]
    whole = merged(builders)
    folder = whole.write(tmp_path_factory.mktemp("runs") / "merged", parts=3, manifest=False)
    on_spark = analysed(folder, lambda lake: spark_engine(lake, spark))
    return analysed(folder, local_engine), on_spark, Oracle(whole)


def test_the_21_cases(everything: tuple[Analysed, Analysed, Oracle]) -> None:
    _, on_spark, _ = everything
    rows = on_spark.rows.to_pylist()
    for number, (name, build) in enumerate(CASES.items()):
        _, expected = build()
        mine = [row for row in rows if row["grp"].split("@")[0] == f"g{number}"]
        causes = Counter(row["cause"] for row in mine if row["cls"] == "DUP")
        assert dict(causes) == expected.causes, name
        assert sum(row["cls"] == "RETRY" for row in mine) == expected.retry, name


def test_the_oracle_agrees(everything: tuple[Analysed, Analysed, Oracle]) -> None:
    _, on_spark, oracle = everything
    assert_agrees(on_spark, oracle)


@pytest.mark.sample
def test_both_engines_give_equal_tables(everything: tuple[Analysed, Analysed, Oracle]) -> None:
    local, on_spark, _ = everything
    assert_equal_tables(local, on_spark)


def test_both_engines_count_other_engines_as_brute_force_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    for builder in (foreign_run.kafka_run(), foreign_run.redis_run()):
        folder = builder.write(tmp_path / builder.name, parts=2)
        local, on_spark = analysed(folder), analysed(folder, lambda lake: spark_engine(lake, spark))
        assert_equal_tables(local, on_spark)
        assert local.foreign is not None
        assert local.foreign == on_spark.foreign
        again = Counter(row["grp"] for row in on_spark.rows.to_pylist() if row["cls"] == "DUP")
        assert again == foreign_run.again_by_brute_force(builder)


def assert_equal_tables(a: Analysed, b: Analysed) -> None:
    assert a.rows.equals(b.rows)
    assert a.order.equals(b.order)
    assert a.counts.dropped == b.counts.dropped
    assert a.counts.orphan_ends == b.counts.orphan_ends
    assert a.phase_rows == b.phase_rows
    for mine, theirs in (
        (a.counts.values, b.counts.values),
        (a.counts.depths, b.counts.depths),
        (a.repeats.values, b.repeats.values),
        (a.repeats.depths, b.repeats.depths),
    ):
        assert set(mine) == set(theirs)
        for family, table in mine.items():
            assert table.equals(theirs[family]), family


def test_engines_agree_where_ranges_are_too_many(spark: SparkSession, tmp_path: Path) -> None:
    """Thousands of messages of one queue, re-consumed one by one, and their sum is known."""
    plan = Plan(rows=60_000, queues=1, groups=2, dup_shape="scattered", dup_share=0.3, seed=7)
    truth = generate(plan, tmp_path / "run")
    local = analysed(tmp_path / "run")
    on_spark = analysed(tmp_path / "run", lambda lake: spark_engine(lake, spark))
    assert local.counts.values["message_times"].num_rows == 4
    assert sum(table.num_rows for table in local.counts.depths.values()) < 20
    assert_equal_tables(local, on_spark)
    assert is_right(answer_of(build_report(on_spark, "spark")[0]), truth)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(10_000, 10_500, MORE), ids="seeds-from-{}".format)
def test_the_oracle_agrees_on_500_histories(
    first: int, spark: SparkSession, tmp_path: Path
) -> None:
    seeds = range(first, first + MORE)
    whole = merged([random_history(Random(seed), warmup=False) for seed in seeds])
    folder = whole.write(tmp_path / "merged", manifest=False)
    on_spark = analysed(folder, lambda lake: spark_engine(lake, spark))
    assert_agrees(on_spark, Oracle(whole))
    assert_equal_tables(analysed(folder, local_engine), on_spark)


@pytest.mark.few(1, 1)
@pytest.mark.parametrize("shape", ["windows", "scattered", "tail"])
def test_engines_and_truth_agree_on_generated_runs(
    shape: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal reports but for engine, time and timings; every count as it was made."""
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)
    plan = Plan(
        rows=60_000,
        groups=2,
        dup_shape=shape,
        truncations=1,
        foreign_share=0.01,
        rate_skew="zipf:1.1",
        clock_error_ms=200,
        seed=7,
    )
    truth = generate(plan, tmp_path / "run")
    found: dict[str, dict[str, Any]] = {}
    for engine in ("local", "spark"):
        (paths,) = report_many([tmp_path / "run"], engine, tmp_path / engine)
        found[engine] = read_report(paths.json)
    assert json.dumps(said(found["local"])) == json.dumps(said(found["spark"]))
    for group in found["spark"]["groups"]:
        wanted = truth["groups"][group["group"]]
        assert {name: group[name] for name in ("delivered", "dup", "causes")} == {
            name: wanted[name] for name in ("delivered", "dup", "causes")
        }
    by_queue = {(q["group"], str(q["qid"])): q["dup"] for q in found["spark"]["queues"]}
    for group, row in truth["groups"].items():
        for number, queue in row["queues"].items():
            assert by_queue[group, number] == queue["dup"]


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_gets_what_it_gets_on_the_local_engine(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)
    run = tmp_path / "run"
    told = bad_input.CASES[name](run)
    if isinstance(told, bad_input.Refused):
        with pytest.raises(ReportInputError, match=told.words):
            report(run, "spark")
        return
    local = read_report(report(run, "local", tmp_path / "local").json)
    found = read_report(report(run, "spark").json)
    assert found["engine"] == "spark"
    told(found)
    assert json.dumps(said(found)) == json.dumps(said(local))


OTHER = Definitions("messageId", 3 * 10**9, ignore_retry_topics=True, since_ns=0, until_ns=10**11)


@pytest.mark.parametrize(
    "definitions", [OTHER, pytest.param(Definitions("businessKey"), marks=pytest.mark.soak)]
)
def test_other_definitions_give_equal_tables(
    definitions: Definitions, spark: SparkSession, tmp_path: Path
) -> None:
    builders = [random_history(Random(seed), warmup=False) for seed in range(6)]
    folder = merged(builders).write(tmp_path / "merged", manifest=False)
    local = analysed(folder, local_engine, definitions)
    on_spark = analysed(folder, lambda lake: spark_engine(lake, spark), definitions)
    assert local.rows.num_rows > 0
    assert "handed" in local.counts.depths
    assert_equal_tables(local, on_spark)


def test_by_business_key_each_repeat_has_its_cause(spark: SparkSession, tmp_path: Path) -> None:
    """All hand-made cases as the groups of one run."""
    cases = [build() for build in business_keys.CASES.values()]
    run = business_keys.together(cases).write(tmp_path / "run", manifest=False)
    by_key = Definitions("businessKey")
    local = analysed(run, local_engine, by_key)
    on_spark = analysed(run, lambda lake: spark_engine(lake, spark), by_key)
    assert_equal_tables(local, on_spark)
    business_keys.assert_caused(on_spark, cases)


@pytest.mark.parametrize("key", ["lid", "businessKey"])
def test_small_parts_say_what_a_large_one_says(
    key: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate(Plan(rows=9_000, dup_shape="scattered", truncations=1, seed=3), tmp_path / "run")
    local = analysed(tmp_path / "run", local_engine, Definitions(key))
    monkeypatch.setattr(engines, "PART_ROWS", 300)
    assert local.rows.num_rows > 600
    on_spark = analysed(tmp_path / "run", lambda lake: spark_engine(lake, spark), Definitions(key))
    assert_equal_tables(local, on_spark)


def said(document: dict[str, Any]) -> dict[str, Any]:
    """What a report says of its run, whatever made it, and however finely batches were cut."""
    kept = {key: value for key, value in document.items() if key not in WARM}
    return {**kept, "quality": {**document["quality"], "runs_per_row": None}}


def test_the_session_of_the_caller_is_borrowed(spark: SparkSession) -> None:
    from failback.analytics.analysis.engines.spark.session import session

    with session() as borrowed:
        assert borrowed is spark
    assert spark.range(3).count() == 3  # and not stopped
    assert make_report._choose("auto", [], None, None) == "local", "a session alone is no wish"


def test_the_surrogate_of_foreign_messages_is_sparks_hash(spark: SparkSession) -> None:
    from failback.analytics.analysis.arrays.xxh64 import SURROGATE_MASK, surrogates

    texts = ["", "a", "7F0000010000000000000000000012AB", *("x" * n + "é" for n in range(70))]
    rows = spark.createDataFrame([(text,) for text in texts], "t string")
    found = [row.h & SURROGATE_MASK for row in rows.selectExpr("xxhash64(t) AS h").collect()]
    assert found == surrogates(texts).tolist()


def test_parquet_of_every_table_reads_equal_in_both_engines(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nulls, dictionaries, fixed-size binary and lists survive, in Arrow and in Spark."""
    import pyarrow.parquet as pq

    from failback.client.consumelog.schema import TABLES, spark_ddl
    from tests.support.analytics.run_builder import RunBuilder

    samples: dict[str, Any] = {"N": "näme", "s": "t\n", "T": 5, "l": 1 << 40, "i": 7, "b": True}
    samples |= {"id": b"i" * 16, "x": b"\0\xff", "S": ["a", "b"]}
    b = RunBuilder("tables")
    for name, table in TABLES.items():
        b.add(name, **{column.name: samples[column.kind] for column in table.own})
        b.add(name, **{c.name: samples[c.kind] for c in table.own if not c.nullable})
    folder = b.write(tmp_path / "r")
    for name in TABLES:
        (path,) = (folder / "lake" / f"table={name}").rglob("*.parquet")
        arrow = pq.read_table(path, partitioning=None).to_pylist()
        columns = [c for c in spark_ddl(name).split(", ") if not c.startswith("`run` ")]
        rows = spark.read.schema(", ".join(columns)).parquet(str(path)).collect()
        found = [
            {k: bytes(v) if isinstance(v, bytearray) else v for k, v in row.asDict().items()}
            for row in rows
        ]
        assert found == arrow, name
