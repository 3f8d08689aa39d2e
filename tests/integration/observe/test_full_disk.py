"""An observer whose disk takes no more: it says so, goes on looking, and keeps what it had."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
from pathlib import Path

import pytest

from failback.analytics.live.facts import CANARY
from failback.analytics.report.make_report import read_report, report
from failback.analytics.trace.pages import Pages, Place
from failback.client.admin.admin import AdminClient
from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.protocol.route import TopicConfig
from tests.integration.observe.test_observing import commit, looks, observer, prepared
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.brokers.full_disk import SmallDisk, small_disk
from tests.support.common.polling import SCALE, wait_until
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

TRACES = "traces"
FULL = 4096
"""Bytes of a file, as a limit of the process: what a full disk refuses, this one does as well."""


async def test_looks_that_a_full_disk_refuses_are_a_gap(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        await prepared(cluster)
        await commit(cluster, 100)
        run = tmp_path / "run"
        watching = observer(cluster, run)
        try:
            watching.start()
            watching.wait_for("observing broker-a-0")
            before = resource.prlimit(watching.pid, resource.RLIMIT_FSIZE, (FULL, -1))
            watching.wait_for("samples go on and are not kept until it can be written again")
            known = looks(run)
            assert len(b"\n".join(known)) <= FULL
            await commit(cluster, 900)
            await asyncio.sleep(3)  # more than a few looks: fewer are no gap
            resource.prlimit(watching.pid, resource.RLIMIT_FSIZE, before)
            watching.wait_for("samples are kept again; those between are a gap")
            wait_until(lambda: len(looks(run)) > len(known) + 2, "further looks")
            assert watching.stop() == 0
        finally:
            watching.dispose()
    said = "\n".join(watching.lines())
    assert f"{run / 'looks.jsonl'}: file too large: samples go on" in said
    assert looks(run)[: len(known)] == known
    assert b'"0":900' in looks(run)[len(known)]  # tables are whole again
    observation = json.loads((run / "report" / "report.json").read_text())["observation"]
    assert [each["what"] for each in observation["gaps"]] == ["the observer did not look"]


@pytest.mark.soak
async def test_a_trace_and_a_canary_on_a_full_disk_take_no_observation_along(
    tmp_path: Path,
) -> None:
    with (
        ClusterProcesses(tmp_path / "cluster", time_scale=1.0) as cluster,
        small_disk(tmp_path / "disk", 24 << 20) as disk,
    ):
        await prepared(cluster)
        await commit(cluster, 100)
        await trace(cluster)
        run = disk.path / "run"
        watching = observer(cluster, run, "--canary", "--trace-topic", TRACES)
        try:
            watching.start()
            watching.wait_for("observing broker-a-0")
            wait_until(lambda: read_to(run) == 1, "what was traced", 60)
            disk.fill(0)
            watching.wait_for("samples go on and are not kept until it can be written again")
            await trace(cluster)
            watching.wait_for("it is read on from here when the folder can be written again")
            wait_until(lambda: filled_until_the_canary_stopped(disk, watching), "its end", 60)
            disk.make_room()
            watching.wait_for("samples are kept again; those between are a gap")
            wait_until(lambda: read_to(run) == 2, "the rest of the trace", 60)
            disk.fill(0)
            assert watching.stop() == 3
        finally:
            watching.dispose()
        (line,) = watching.errors().splitlines()
        assert line.startswith(f"error: {run}/report")
        assert "no space left on the disk: no report was made; what was seen is kept" in line
        assert await canaries(cluster) == set()
        disk.make_room()
        made = report(run)
        assert made.exit_code == 0
        gaps = read_report(made.json)["observation"]["gaps"]
        assert "the observer did not look" in {each["what"] for each in gaps}


def filled_until_the_canary_stopped(disk: SmallDisk, watching: TestProcess) -> bool:
    """What has gone into the lake makes room, which the canary's log takes again."""
    disk.fill(0)
    return any("the canary on broker-a stopped: consume log" in line for line in watching.lines())


async def trace(cluster: ClusterProcesses) -> None:
    """Let a client trace something, in words that nobody understands."""
    async with AdminClient([cluster.namesrv_addr]) as admin:
        await admin.create_topic(cluster.broker_addr, TopicConfig(TRACES, 1, 1))
    async with Producer("tracer", cluster.settings()) as producer:
        await producer.send(Message(TRACES, b"x"))


def read_to(run: Path) -> int | None:
    """Behind which trace message reading stands, by the files."""
    return Pages(run).read_to("records", Place("broker-a", TRACES, 0))


async def canaries(cluster: ClusterProcesses) -> set[str]:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        return {topic for topic in await admin.topics_at(cluster.namesrv_addr) if CANARY in topic}


def test_a_run_that_can_not_begin_names_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "run-%F"
    done = subprocess.run(
        ["prlimit", "--fsize=0", *failback_command(
            "cli", "observe", "-n", "127.0.0.1:1", "--out", str(out)
        )],
        capture_output=True, text=True, env=failback_environment(),
        timeout=60 * SCALE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / "run-2") in line
    assert "file too large" in line.lower()
