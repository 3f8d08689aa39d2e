"""The whole report by spark-submit with a packed environment, over S3, and a worker is killed.

Nothing of the checkout is on a path: driver and workers have the file that the page about clusters
packs. The cluster has two workers; one dies with its executor when both have done work.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.pack_environment import pack

from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.report.compare import differences
from failback.analytics.report.make_report import read_report, report
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.spark.packed_environment import environment, folders_of_failback
from tests.spark.spark_cluster import SparkCluster, running_cluster
from tests.support.analytics.s3_server import BUCKET, S3Server, put_run, s3_server
from tests.support.analytics.spark_events import events_in, noted_at_once, removed, tasks_of
from tests.support.common.polling import wait_until
from tests.support.processes.child_process import ROOT, TestProcess, disposing

LAKE = f"s3://{BUCKET}/lake"
PLAN = Plan(rows=100_000, groups=2, truncations=1, foreign_share=0.01, seed=3)
TASKS_BEFORE = 3
"""So many tasks each worker has ended when one of them dies."""
VICTIM = 0


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    if problem := why_not():
        pytest.skip(problem)
    found = tmp_path / "failback.pex"
    pack(found)
    folders = folders_of_failback(found, tmp_path)
    assert folders
    assert not any(str(ROOT) in folder for folder in folders), folders
    return found


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3") as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with running_cluster(tmp_path / "cluster", environment(tmp_path)) as found:
        yield found


def submission(cluster: SparkCluster, packed: Path, events: Path, *words: str) -> list[str]:
    """The command of the page, with what a small machine needs besides."""
    return [
        str(cluster.home / "bin" / "spark-submit"),
        *("--master", cluster.url, "--files", str(packed)),
        *("--conf", f"spark.pyspark.python=./{packed.name}"),
        *("--conf", f"spark.pyspark.driver.python={packed}"),
        *("--driver-memory", "512m", "--executor-memory", "512m"),
        *noted_at_once(events),
        str(ROOT / "examples" / "spark_main.py"),
        *words,
    ]


@pytest.mark.timeout(1800)  # packing takes most of it; then four JVMs start
@pytest.mark.soak
def test_a_worker_that_dies_in_the_middle_changes_no_figure(
    packed: Path,
    s3: S3Server,
    cluster: SparkCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, out, noted = tmp_path / "run", tmp_path / "out", tmp_path / "events"
    generate(PLAN, run)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    put_run(run, LAKE)
    local = read_report(report(run, "local", tmp_path / "local").json)
    noted.mkdir()
    words = ("report", "--lake", LAKE, "--run", PLAN.run, "--out", str(out))  # auto takes Spark
    submit = TestProcess(
        "submit",
        submission(cluster, packed, noted, *words),
        tmp_path / "submit",
        environment={**environment(tmp_path), **s3.environment, "SPARK_HOME": str(cluster.home)},
    )
    with disposing([submit]):
        submit.start()

        def both_have_worked() -> bool:
            assert submit.alive, submit.errors()[-4000:]
            done = tasks_of(events_in(noted))
            return len(done) == len(cluster.workers) and min(done.values()) >= TASKS_BEFORE

        wait_until(both_have_worked, "tasks of both executors", 240)
        assert cluster.kill(cluster.workers[VICTIM])
        before = tasks_of(events_in(noted))
        code = submit.wait(300)
    assert code in (0, 1, 3), submit.errors()[-4000:]
    events = events_in(noted)
    (lost,) = removed(events)
    after = tasks_of(events)
    (other,) = set(after) - {lost}
    assert after[lost] <= before[lost] + 1
    assert after[other] > before[other], "nothing was left to do"
    by_cluster = read_report(out / "report.json")
    assert (by_cluster["engine"], by_cluster["totals"]["dup"] > 0) == ("spark", True)
    assert differences(local, by_cluster) == []
