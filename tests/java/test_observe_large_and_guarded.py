"""``failback observe`` beside Apache brokers that it does not run: many groups, and guards.

The truth is what unmodified Java consumers print. Outages are short; no timer is scaled.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.analytics.observe.asking import Asker
from failback.analytics.observe.folder import seconds
from failback.analytics.observe.looks import ANSWERED
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.command import RemotingCommand
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.java.apache import client_folders, server_home
from tests.support.java.guarded_lab import GuardedLab
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import TOPIC, Observed
from tests.support.observe.truth import AWAY_SECONDS, ON_4_AND_5, cost, holds, returned, settled

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
        for group in range(GROUPS):  # 5.x takes no offset of a group that is not there
            await admin.create_group(master, SubscriptionGroupConfig(f"g{group}"))
            await asyncio.gather(
                *(
                    admin.update_offset(master, f"g{group}", f"T{number}", queue, 7)
                    for number in range(TOPICS)
                    for queue in range(QUEUES)
                )
            )


@pytest.mark.soak
@ON_4_AND_5
async def test_11_thirty_topics_and_twenty_groups_are_few_questions(lab: Lab) -> None:
    observed = Observed(lab, "apache")
    await asyncio.to_thread(observed.start_brokers)
    await filled(observed)
    await asyncio.to_thread(observed.begin)
    await asyncio.to_thread(observed.outage, AWAY_SECONDS, observed.leave)
    await asyncio.to_thread(observed.join)
    counting = CountingClient()
    async with counting as client:
        asker = Asker([observed.namesrv.address], client, zero=seconds())
        seen: set[str] = set()
        looks = 0
        while len(seen) < 2:  # a broker that is slow is asked once for several looks
            look = await asker.look(closely=True)
            seen |= {each.addr for each in look.brokers if each.state == ANSWERED}
            looks += 1
        await asker.close()
    for broker in (observed.master, observed.slave):
        assert TOPICS + GROUPS < counting.asked[broker.address] < looks * 200
    report = await asyncio.to_thread(settled, observed)
    holds(report, observed.again())
    others = [each for each in returned(report)["groups"] if each["group"] != "billing"]
    assert len(others) == TOPICS * GROUPS
    assert {each["hi"] for each in others} == {0}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedLab]:
    server_home()
    client_folders()
    lab = GuardedLab(tmp_path)
    try:
        yield lab
    finally:
        lab.dispose()


@pytest.mark.soak
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
