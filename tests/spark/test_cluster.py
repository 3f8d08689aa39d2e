"""The jobs on a standalone cluster, and on a lake in an S3-compatible store that a collector fills.

One cluster of a master and two workers serves both tests; each job is a process, as users run it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tools.setup import SetupError
from tools.setup_spark import ensure_s3a

from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.report.make_report import read_report, report
from failback.client.consumelog.upload.upload import UploadShipper
from tests.benchmarks.analytics import driver
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.spark.spark_cluster import spark_cluster
from tests.support.analytics.collector_lab import RUN, CollectorLab, write_log
from tests.support.analytics.s3_server import BUCKET, S3Server, s3_server
from tests.support.common.polling import SCALE
from tests.support.processes.child_process import failback_environment

pytestmark = pytest.mark.soak
WARM = ("engine", "created", "timings", "quality")
LAKE = f"s3://{BUCKET}/lake"


REPEATED = Plan(rows=100_000, queues=2, dup_share=0.3, dup_shape="scattered")
REPEATED_ROWS = (REPEATED.rows, 10 * REPEATED.rows)
DRIVER_MORE_MIB = 64
"""What ten times as many rows may add to the driver's Python; 270,000 rows more would be 240."""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    problem = why_not()
    if problem:
        pytest.skip(problem)
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3") as server:
        yield server


def run_module(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={
            **os.environ,
            **failback_environment(),
            "FAILBACK_SPARK_MEMORY": "512m",
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=300 * SCALE,
        check=False,
    )
    assert done.returncode in (0, 1, 3), done.stdout + done.stderr
    assert "internal error" not in done.stderr, done.stderr
    return done


def said(path: Path) -> dict[str, Any]:
    """What a report says of its run, whatever made it."""
    return {key: value for key, value in read_report(path).items() if key not in WARM}


def test_a_cluster_reports_what_the_local_engine_reports(master: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    generate(Plan(rows=20_000, groups=2, truncations=1, foreign_share=0.01, seed=3), run)
    local = report(run, "local", tmp_path / "local")
    out = tmp_path / "cluster"
    run_module("failback.cli", "report", str(run), "--out", str(out), "--master", master)
    found = read_report(out / "report.json")
    assert found["engine"] == "spark"  # a named cluster is taken without --engine
    assert found["totals"]["dup"] > 0
    assert json.dumps(said(out / "report.json")) == json.dumps(said(local.json))


def test_a_lake_in_an_object_store(master: str, s3: S3Server, tmp_path: Path) -> None:
    """Collector, compaction, both engines and Spark's own reader, all through S3."""
    try:
        s3a = ensure_s3a()
    except SetupError as error:
        pytest.skip(str(error))
    last = write_log(tmp_path / "hot", deliveries=300)
    lab = CollectorLab(tmp_path / "lab", "--lake", LAKE, environment=s3.environment)
    try:
        lab.start()
        client = lab.client()
        assert UploadShipper(tmp_path / "hot", client).ship_all().left == 0
        client.close()
        closing = json.dumps({"procs": {"1": last}}).encode()
        status, document, _ = lab.ask("POST", f"/v1/runs/{RUN}/close", closing)
        assert (status, document) == (200, {"gaps": []})
    finally:
        lab.process.dispose()
    assert not list(lab.root.rglob("*.parquet"))
    of_lake = ("report", "--lake", LAKE, "--run", RUN)
    local = tmp_path / "local"
    run_module("failback.cli", *of_lake, "--engine", "local", "--out", str(local),
               environment=s3.environment)  # fmt: skip
    before = said(local / "report.json")
    assert before["totals"]["delivered"] == 300
    assert before["evidence"]["gaps"] == []
    compacted = run_module("failback.cli", "lake", "compact", LAKE, environment=s3.environment)
    assert f"{RUN}: " in compacted.stdout
    objects = sorted(p.name for p in (tmp_path / "s3").rglob("*.parquet"))
    assert len(objects) == len(before["evidence"]["rows"])
    result = f"s3://{BUCKET}/results"
    run_module("failback.analytics.jobs.reconsume", "--lake", LAKE, "--run", RUN,
               "--out", result, "--master", master, environment=s3.environment)  # fmt: skip
    (made,) = (tmp_path / "s3").rglob("report.json")
    assert read_report(made)["engine"] == "spark"
    assert json.dumps(said(made)) == json.dumps(before)
    by_spark = tmp_path / "by-spark"
    run_module("failback.cli", *of_lake, "--tables", "lake", "--master", "local[2]",
               "--out", str(by_spark),
               environment={**s3.environment, "FAILBACK_SPARK_JARS": str(s3a)})  # fmt: skip
    assert said(by_spark / "report.json")["totals"] == before["totals"]
    depths = next((tmp_path / "s3").rglob("copy_depth.parquet"))
    assert pq.read_table(depths, partitioning=None).num_rows > 0


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, Path]:
    """Runs by their number of rows."""
    runs = {rows: tmp_path_factory.mktemp("runs") / str(rows) for rows in REPEATED_ROWS}
    for rows, run in runs.items():
        generate(replace(REPEATED, rows=rows), run)
    return runs


@pytest.mark.parametrize("name", ["scattered", "by key"])
def test_ten_times_as_many_repeats_do_not_come_to_the_driver(
    name: str, master: str, repeated: Mapping[int, Path]
) -> None:
    case = next(each for each in driver.CASES if each.name == name)
    few, many = (driver.whole(rows, case, run, master) for rows, run in repeated.items())
    assert (few.right, many.right) == (True, True), (few, many)
    assert many.python_mib <= few.python_mib + DRIVER_MORE_MIB, (few, many)
