"""``failback observe`` beside Apache brokers that it does not run: intervals hold the truth.

The truth is what unmodified Java consumers print. Outages are short; no timer is scaled.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.live.observe.asking import Asker
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.command import RemotingCommand
from failback.protocol.route import TopicConfig
from tests.support.java.apache import client_home, mqadmin, server_home
from tests.support.java.guarded_lab import GuardedLab
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import TOPIC, Observed

AWAY_SECONDS = 12
AFTERWARDS_SECONDS = 15
TOPICS, QUEUES, GROUPS = 30, 8, 20


class CountingClient(RemotingClient):
    """Counts what it asks each address."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    async def invoke(
        self, addr: str, request: RemotingCommand, timeout_ms: float = 3000
    ) -> RemotingCommand:
        self.asked[addr] += 1
        return await super().invoke(addr, request, timeout_ms)


async def filled(observed: Observed) -> None:
    """Give the master many topics, and many groups an offset on each of their queues."""
    master = observed.master.address
    async with AdminClient([observed.namesrv.address], timeout_ms=30_000) as admin:
        for number in range(TOPICS):
            await admin.create_topic(master, TopicConfig(f"T{number}", QUEUES, QUEUES))
        for group in range(GROUPS):
            await asyncio.gather(
                *(
                    admin.update_offset(master, f"g{group}", f"T{number}", queue, 7)
                    for number in range(TOPICS)
                    for queue in range(QUEUES)
                )
            )


def begun(lab: Lab, **options: Any) -> Observed:
    observed = Observed(lab, "apache", **options)
    observed.start_brokers()
    observed.begin()
    return observed


def settled(observed: Observed) -> dict[str, Any]:
    """Wait until what comes again has come, and return the report."""
    time.sleep(AFTERWARDS_SECONDS)
    return observed.stop_observing()


def returned(report: dict[str, Any]) -> dict[str, Any]:
    (found,) = report["observation"]["returns"]
    assert found["read"]
    assert found["gone_from"] < found["gone_until"] <= found["back_until"]
    return dict(found)


def cost(report: dict[str, Any], group: str = "billing") -> dict[str, Any]:
    (found,) = (
        each
        for each in returned(report)["groups"]
        if each["group"] == group and each["topic"] == TOPIC
    )
    return dict(found)


def holds(report: dict[str, Any], again: Counter[int], group: str = "billing") -> None:
    """Every interval holds what the consumers printed, queue by queue."""
    found = cost(report, group)
    assert found["lo"] <= again.total() <= found["hi"], (found, again)
    for queue in found["queues"]:
        assert queue["lo"] <= again[queue["qid"]] <= queue["hi"], (queue, again)


def kinds(report: dict[str, Any]) -> set[str]:
    return {event["kind"] for event in report["observation"]["events"]}


@pytest.mark.sample
def test_1_killed_and_the_consumers_stay(lab: Lab) -> None:
    observed = begun(lab)
    observed.outage(AWAY_SECONDS)
    report = settled(observed)
    holds(report, observed.again())
    found = cost(report)
    assert (found["lo"], found["hi"], found["owner_changed"]) == (0, 0, False)
    assert report["verdict"]["value"] == "Observed"
    assert {"MasterGone", "MasterBack"} <= kinds(report) <= {
        "MasterGone", "SlaveServes", "MasterBack", "OffsetsWentBack", "SlaveOverwritten",
    }  # fmt: skip


@pytest.mark.sample
def test_2_killed_and_handed_over_while_it_is_away(lab: Lab) -> None:
    observed = begun(lab)
    observed.outage(AWAY_SECONDS, during=observed.leave)
    observed.join()
    report = settled(observed)
    again = observed.again()
    holds(report, again)
    assert again.total() > 0
    found = cost(report)
    assert found["owner_changed"]
    assert "ROLLBACK_SLAVE_ONLY_PROGRESS" in found["causes"]


def test_3_killed_and_handed_over_after_the_return(lab: Lab) -> None:
    observed = begun(lab)
    observed.outage(AWAY_SECONDS)
    observed.leave()
    observed.join()
    report = settled(observed)
    holds(report, observed.again())


def test_4_a_clean_restart(lab: Lab) -> None:
    observed = begun(lab)
    assert observed.master.stop() in (0, 143)
    time.sleep(AWAY_SECONDS)
    observed.master.start()
    report = settled(observed)
    holds(report, observed.again())


@pytest.mark.parametrize("first", ["slave", "master"])
def test_5_a_rolling_upgrade(lab: Lab, first: str) -> None:
    observed = begun(lab)
    brokers = [observed.slave, observed.master]
    for broker in brokers if first == "slave" else reversed(brokers):
        broker.stop()
        time.sleep(5)
        broker.start()
        time.sleep(8)
    report = settled(observed)
    holds(report, observed.again())
    assert "MasterBack" in kinds(report)


def test_6_two_groups_of_which_one_is_handed_over(lab: Lab) -> None:
    observed = begun(lab, groups=("billing", "audit"))
    observed.outage(AWAY_SECONDS, during=observed.leave)
    observed.join()
    report = settled(observed)
    for group in ("billing", "audit"):
        holds(report, observed.again(group), group)
    assert cost(report, "billing")["lo"] > 0
    assert cost(report, "audit")["hi"] == 0


def test_7_a_slave_is_killed(lab: Lab) -> None:
    observed = begun(lab)
    observed.slave.kill()
    time.sleep(AWAY_SECONDS)
    observed.slave.start()
    report = settled(observed)
    assert kinds(report) <= {"SlaveOverwritten"}
    assert report["observation"]["returns"] == []
    assert observed.again().total() == 0


def test_8_the_name_server_restarts(lab: Lab) -> None:
    observed = begun(lab)
    observed.namesrv.process.stop()
    time.sleep(5)
    observed.namesrv.start()
    time.sleep(35)
    report = settled(observed)
    assert kinds(report) == set()
    assert report["observation"]["returns"] == []


def test_9_an_admin_resets_the_offsets_in_the_middle(lab: Lab) -> None:
    observed = begun(lab)
    past = str(int((time.time() - 8) * 1000))
    mqadmin(
        lab.folder / "admin", "resetOffsetByTime", "-n", observed.namesrv.address,
        "-g", "billing", "-t", TOPIC, "-s", past,
    )  # fmt: skip
    time.sleep(25)
    before = observed.again()
    assert before.total() > 0
    observed.outage(AWAY_SECONDS)
    report = settled(observed)
    assert "Reset" in kinds(report)
    assert (cost(report)["lo"], cost(report)["hi"]) == (0, 0)
    assert observed.again() == before


def test_10_the_observer_stands_still_over_the_return(lab: Lab) -> None:
    observed = begun(lab)
    observed.master.kill()
    time.sleep(8)
    observed.leave()
    with observed.blind():
        observed.master.start()
        observed.join()
        time.sleep(10)
    report = settled(observed)
    assert report["verdict"]["value"] == "Inconclusive"
    assert any("did not look" in gap["what"] for gap in report["observation"]["gaps"])
    (found,) = report["observation"]["returns"]
    (group,) = (each for each in found["groups"] if each["topic"] == TOPIC)
    assert group["lo"] <= observed.again().total() <= group["hi"]


async def test_11_thirty_topics_and_twenty_groups_are_few_questions(lab: Lab) -> None:
    observed = Observed(lab, "apache")
    await asyncio.to_thread(observed.start_brokers)
    await filled(observed)
    await asyncio.to_thread(observed.begin)
    await asyncio.to_thread(observed.outage, AWAY_SECONDS, observed.leave)
    await asyncio.to_thread(observed.join)
    counting = CountingClient()
    async with counting as client:
        asker = Asker([observed.namesrv.address], client, zero=time.monotonic())
        for _ in range(5):
            await asker.look(closely=True)
    for broker in (observed.master, observed.slave):
        assert 5 * (TOPICS + GROUPS) < counting.asked[broker.address] < 5 * 200
    report = await asyncio.to_thread(settled, observed)
    holds(report, observed.again())
    others = [each for each in returned(report)["groups"] if each["group"] != "billing"]
    assert len(others) == TOPICS * GROUPS
    assert {each["hi"] for each in others} == {0}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedLab]:
    server_home()
    client_home()
    lab = GuardedLab(tmp_path)
    try:
        yield lab
    finally:
        lab.dispose()


def test_12_access_keys_and_tls(guarded: GuardedLab) -> None:
    observed = Observed(guarded, "apache")
    master, slave = observed.master, observed.slave
    master.start()
    words = ("admin", "updateTopic", "-b", master.address, "-t", TOPIC)
    guarded.command(observed.namesrv, *words)
    # The master refuses the slave its tables: of an unsigned request it takes none.
    (slave.store / "config").mkdir(parents=True)
    shutil.copy(master.store / "config" / "topics.json", slave.store / "config")
    slave.start()
    observed.begin()
    observed.outage(AWAY_SECONDS, during=observed.leave)
    observed.join()
    report = settled(observed)
    holds(report, observed.again())
    assert observed.again().total() > 0
    assert cost(report)["basis"] == ["E1", "E2", "E3"]


def test_a_trace_makes_counts_exact(lab: Lab) -> None:
    observed = begun(lab, is_traced=True)
    observed.outage(AWAY_SECONDS, during=observed.leave)
    observed.join()
    report = settled(observed)
    again = observed.again()
    assert again.total() > 0
    found = cost(report)
    counted = {queue["qid"]: (queue["lo"], queue["hi"]) for queue in found["queues"]}
    assert counted == {queue: (again[queue], again[queue]) for queue in counted}, found
    assert (found["exact"], found["lo"]) == (True, again.total())
    assert found["basis"] == ["E1", "E2", "E3", "E4"]


async def test_nothing_is_written_to_the_cluster(lab: Lab) -> None:
    observed = begun(lab)
    async with AdminClient([observed.namesrv.address], timeout_ms=10_000) as admin:
        groups = (await admin.all_groups(observed.master.address)).subscription_group_table
        topics = (await admin.all_topic_config(observed.master.address)).topic_config_table
        offsets = await admin.all_offsets(observed.master.address)
    observed.stop_observing()
    assert {name for name in groups if "failback" in name.lower()} == set()
    assert {name for name in topics if "failback" in name.lower()} == set()
    assert {key.partition("@")[2] for key in offsets} == {"billing"}
