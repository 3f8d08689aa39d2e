"""The jobs in one session.

Live totals: segments in any order, a restart at every trigger, a sink that fails. Aligned rows, and
results, against what the local engine says of the same run.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from failback.analytics.analysis.analysis import analyse
from failback.analytics.analysis.counting.normalise import (
    END_COLUMNS,
    Dropped,
    Ends,
    deliver_columns,
)
from failback.analytics.analysis.counting.normalise import normalise as normalised
from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.jobs import normalise, reconsume, stream
from failback.analytics.jobs import report as jobs_report
from failback.analytics.lake.lake import open_lake
from failback.analytics.lake.store import open_store
from failback.analytics.report.make_report import read_report, report
from failback.analytics.run.definitions import DEFAULT
from failback.analytics.run.folder_reading import read_run_folder
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.spark.spark_session import two_threads
from tests.support.analytics.histories import random_history
from tests.support.analytics.live_totals import batch_totals
from tests.support.analytics.run_builder import merged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FIGURES = ("delivered", "distinct", "repeated")


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    problem = why_not()
    if problem:
        pytest.skip(problem)
    yield from two_threads(tmp_path_factory.mktemp("spark"))


def live_totals(out: Path) -> dict[tuple[Any, ...], tuple[int, ...]]:
    rows = stream.read_totals(open_store(out))["queues"]
    return {
        tuple(row[name] for name in stream.KEY): tuple(row[name] for name in FIGURES)
        for row in rows
    }


def until_nothing_is_new(spark: SparkSession, folder: Path, broadcasting: frozenset[str]) -> None:
    """One life of the job: everything that is there, from the checkpoint on."""
    query = stream.start(
        spark,
        open_store(folder / "lake"),
        folder / "checkpoint",
        open_store(folder / "out"),
        broadcasting=broadcasting,
        max_files=12,
    )
    query.awaitTermination()


def test_any_order_and_a_restart_at_each_trigger_give_the_batch_totals(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = merged([random_history(Random(seed), warmup=False) for seed in range(400, 404)])
    whole.rows.pop("broker_queue_sample", None)  # without samples no log is known to be cut
    folder = whole.write(tmp_path / "run", parts=4, manifest=False)
    broadcasting = read_run_folder(folder).broadcasting
    expected = batch_totals(folder)
    assert sum(repeated for *_, repeated in expected.values()) > 10
    segments = sorted((folder / "lake").glob("table=deliver/date=*/run=*/*.parquet"))
    assert len(segments) > 8
    Random(7).shuffle(segments)
    batches = [segments[0::4], segments[1::4], segments[2::4] + segments[3::4]]
    arriving = tmp_path / "live" / "lake" / segments[0].relative_to(folder / "lake").parent
    arriving.mkdir(parents=True)
    for some in batches[:2]:
        for segment in some:
            shutil.copy(segment, arriving / segment.name)
        until_nothing_is_new(spark, tmp_path / "live", broadcasting)
    seen = live_totals(tmp_path / "live" / "out")
    assert 0 < sum(n for n, *_ in seen.values()) < sum(n for n, *_ in expected.values())
    for segment in batches[2]:
        shutil.copy(segment, arriving / segment.name)
    written = stream.write_totals

    def fails_after(batch: Any, number: int, out: Any) -> None:
        written(batch, number, out)
        raise OSError("ended before Spark knew that it was written")

    with monkeypatch.context() as patched:
        patched.setattr(stream, "write_totals", fails_after)
        with pytest.raises(Exception, match="ended before Spark knew"):
            until_nothing_is_new(spark, tmp_path / "live", broadcasting)
    until_nothing_is_new(spark, tmp_path / "live", broadcasting)  # does that trigger again
    assert live_totals(tmp_path / "live" / "out") == expected
    until_nothing_is_new(spark, tmp_path / "live", broadcasting)  # nothing is new
    assert live_totals(tmp_path / "live" / "out") == expected


def test_live_totals_name_a_damaged_file(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version
    folder = merged([random_history(Random(400), warmup=False)]).write(tmp_path / "run")
    victim, *_ = sorted((folder / "lake" / "table=deliver").rglob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:100])
    words = ["--checkpoint", str(tmp_path / "checkpoint"), "--out", str(tmp_path / "out")]
    code = stream.main(["--lake", str(folder / "lake"), "--once", *words])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1), said
    assert f"{victim.name}: Spark cannot read it: " in said


def test_normalised_rows_are_on_one_clock_and_late_ends_are_joined(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = merged([random_history(Random(seed), warmup=False) for seed in range(410, 413)])
    folder = whole.write(tmp_path / "run", parts=3, manifest=False)
    out = tmp_path / "out"
    given = ["--lake", str(folder / "lake"), "--documents", str(folder), "--out", str(out)]
    assert normalise.main(given) == 0  # borrows the session
    assert "aligned rows are in" in capsys.readouterr().out
    run = read_run_folder(folder)
    lake = open_lake(run.lake, run.run_id)
    context = analyse(run, lake, local_engine(lake)).context
    ends = Ends.of(lake.read("deliver_end", END_COLUMNS))
    raw_rows = lake.read("deliver", deliver_columns(DEFAULT, foreign=True, full=False))
    wanted = normalised(raw_rows, context, ends, Dropped()).to_pylist()
    found = read_aligned(out, "deliver", run.run_id)
    assert len(found) == len(wanted) > 10
    names = ("did", "bt", "et", "epoch", "lane", "lseq", "status")
    assert {tuple(row[name] for name in names) for row in found} == {
        tuple(row[name] for name in names) for row in wanted
    }
    assert {row["warmup"] for row in found} == {False}
    raw = {(row["proc_no"], row["seq"]): row for row in lake.records("commit")}
    for row in read_aligned(out, "commit", run.run_id):
        assert row["t"] == raw[row["proc_no"], row["seq"]]["t"] - run.zero_mono_ns


def read_aligned(out: Path, table: str, run: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(
        out / "aligned" / f"table={table}", partitioning=None
    ).to_pylist()
    return rows


@pytest.mark.sample
def test_a_result_becomes_the_report_of_the_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(rows=5_000, groups=2, seed=5)
    run = tmp_path / "run"
    truth = generate(plan, run)
    out = tmp_path / "out"
    given = ["--lake", str(run / "lake"), "--documents", str(run), "--out", str(out)]
    assert reconsume.main([*given, "--keep-rows", "none"]) == 0
    assert not list(out.rglob("class"))
    assert reconsume.main(given) == 0
    (group, *_) = truth["groups"]
    classes = pq.read_table(next(out.rglob("class")), partitioning=None)
    dups = classes.filter(pc.equal(classes.column("cls"), "DUP")).to_pylist()
    assert Counter(row["grp"] for row in dups)[group] == truth["groups"][group]["dup"]
    written = ["--result", str(out), "--run", plan.run, "--out", str(tmp_path / "report")]
    code = jobs_report.main(written)
    assert code in (0, 1, 3)
    direct = read_report(report(run, "local", tmp_path / "direct").json)
    made = read_report(tmp_path / "report" / "report.json")
    for part in ("totals", "groups", "queues", "rollbacks", "checks", "verdict"):
        assert made[part] == direct[part], part
    assert (tmp_path / "report" / "summary.md").exists()
    assert jobs_report.main([*written[:-2], "--out", str(tmp_path / "no"), "--run", "nosuch"]) == 2
    assert "there is no whole result" in capsys.readouterr().err
    assert reconsume.main([*given[:2], "--run", "nosuch", "--out", str(out)]) == 2
    assert "has no rows of run nosuch" in capsys.readouterr().err
    assert reconsume.main([*given, "--group", "nosuch"]) == 2
    known = ", ".join(sorted(truth["groups"]))
    assert f"--group nosuch has no delivery; groups: {known}\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        reconsume.main([*given, "--group", "a b"])
    assert "argument --group: " in capsys.readouterr().err
