"""``failback observe --canary``: what it makes is its own, is used, and is gone at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from failback.analytics.lake.lake import open_lake
from failback.analytics.observe.canary.ledger import Ledger, Names
from failback.analytics.observe.returns import LATE_SECONDS
from failback.client.admin.admin import AdminClient
from failback.protocol.route import TopicConfig
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import wait_until
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path / "cluster", time_scale=1.0) as made:
        yield made


@contextmanager
def observer(namesrv: str, out: Path, *more: str) -> Iterator[TestProcess]:
    """Observe while the block runs."""
    command = failback_command(
        "cli", "observe", "-n", namesrv, "--out", str(out), "--every", "500ms", *more
    )
    watching = TestProcess("observer", command, out.parent, environment=failback_environment())
    watching.start()
    try:
        yield watching
    finally:
        watching.dispose()


def watched(namesrv: str, run: Path, *more: str, code: int = 0) -> str:
    """Observe to the end, which has this exit code; return what was said."""
    with observer(namesrv, run, *more) as watching:
        assert watching.wait(90) == code, watching.errors()
        return "\n".join(watching.lines())


def names_in(run: Path) -> Names:
    def known() -> list[Names]:
        ledger = Ledger.read(run)
        return ledger.all if ledger is not None else []

    wait_until(known, "the names of a canary")
    (names,) = known()
    return names


async def offsets_of(cluster: ClusterProcesses, names: Names) -> dict[str, int]:
    """How far each group of a canary has committed."""
    async with AdminClient([cluster.namesrv_addr]) as admin:
        table = await admin.all_offsets(cluster.broker_addr)
    return {group: sum(table.get(f"{names.topic}@{group}", {}).values()) for group in names.groups}


def singing(cluster: ClusterProcesses, run: Path) -> Names:
    """Wait until both groups of the canary of a run have committed, and the observer saw it."""
    names = names_in(run)
    wait_until(
        lambda: all(asyncio.run(offsets_of(cluster, names)).values()), "commits of a canary", 60
    )
    wait_until(lambda: names.topic in (run / "looks.jsonl").read_text(), "a look at a canary")
    return names


def traces(cluster: ClusterProcesses, canary: str) -> set[str]:
    return asyncio.run(traces_of(cluster, canary))


async def traces_of(cluster: ClusterProcesses, canary: str) -> set[str]:
    """Every name on the broker and the name server that has a canary's in it."""
    async with AdminClient([cluster.namesrv_addr]) as admin:
        address = cluster.broker_addr
        found = {
            *(await admin.all_groups(address)).subscription_group_table,
            *(await admin.all_topic_config(address)).topic_config_table,
            *(await admin.all_offsets(address)),
            *(await admin.topics_at(cluster.namesrv_addr)),
        }
    return {name for name in found if canary in name}


async def make_topic(cluster: ClusterProcesses, topic: str) -> None:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        await admin.create_topic(cluster.broker_addr, TopicConfig(topic, 1, 1))


async def listed(cluster: ClusterProcesses) -> list[str]:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        return await admin.topics_at(cluster.namesrv_addr)


def test_what_it_makes_is_used_and_removed(cluster: ClusterProcesses, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with observer(cluster.namesrv_addr, run, "--canary", "--group", "billing") as watching:
        names = singing(cluster, run)
        os.kill(watching.pid, signal.SIGINT)
        assert watching.wait(60) == 0
    assert watching.errors() == ""
    assert traces(cluster, names.topic) == set()
    lake = open_lake(run / "lake", "run")
    assert {row["grp"] for row in lake.records("deliver")} == set(names.groups)
    assert {row["topic"] for row in lake.records("produce")} == {names.topic}


@pytest.mark.soak
def test_one_that_was_killed_is_gone_on_with_and_removed(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with observer(cluster.namesrv_addr, run, "--canary") as first:
        names = singing(cluster, run)
        first.kill()
    said = watched(cluster.namesrv_addr, run, "--for", "1s")
    assert f"topic {names.topic} of an earlier canary may be left on broker-a" in said
    assert traces(cluster, names.topic) != set()
    watched(cluster.namesrv_addr, run, "--for", "6s", "--keep-canary")
    assert names_in(run) == names
    assert traces(cluster, names.topic) != set()
    watched(cluster.namesrv_addr, run, "--for", "6s", "--canary")
    assert traces(cluster, names.topic) == set()
    deliveries = open_lake(run / "lake", "run").records("deliver")
    assert len({row["proc_no"] for row in deliveries}) == 3


def test_without_a_master_observing_goes_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    try:
        namesrv = lab.namesrv()
        lab.broker("failback", namesrv, broker_id=1, role="SLAVE").start()
        said = watched(namesrv.address, tmp_path / "run", "--for", "3s", "--canary")
    finally:
        lab.dispose()
    assert "no canary on broker-a: it has no master now" in said
    assert "No master went and came back." in said


@pytest.mark.soak
def test_what_somebody_else_made_is_left_alone(cluster: ClusterProcesses, tmp_path: Path) -> None:
    run = tmp_path / "run"
    watched(cluster.namesrv_addr, run, "--for", "1s")
    (run / "canary.json").write_text(
        json.dumps({"canary": "failback-canary-x", "starts": 0, "numbers": {}, "left": []})
    )
    asyncio.run(make_topic(cluster, "failback-canary-x-1"))
    wait_until(lambda: "failback-canary-x-1" in asyncio.run(listed(cluster)), "its route")
    said = watched(cluster.namesrv_addr, run, "--for", "4s", "--canary")
    assert "no canary on broker-a: topic failback-canary-x-1 exists already" in said
    assert traces(cluster, "failback-canary-x") == {"failback-canary-x-1"}


@pytest.mark.soak
def test_what_is_left_where_the_master_is_away_is_told_and_removed_later(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with observer(cluster.namesrv_addr, run, "--canary") as watching:
        names = singing(cluster, run)
        cluster.broker.kill()
        watching.wait_for("MasterGone")
        blind_since = time.monotonic()
        os.kill(watching.pid, signal.SIGTERM)
        assert watching.wait(120) == 0
    said = "\n".join(watching.lines())
    assert f"topic {names.topic} and groups {', '.join(names.groups)} may be left" in said
    cluster.start_broker()
    assert traces(cluster, names.topic) != set()
    # Nobody saw for so long what the master came back with: the report is Inconclusive.
    time.sleep(max(0.0, blind_since + LATE_SECONDS + 1 - time.monotonic()))
    watched(cluster.namesrv_addr, run, "--for", "5s", "--canary", code=3)
    assert traces(cluster, names.topic) == set()
