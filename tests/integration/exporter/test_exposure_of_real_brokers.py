"""What exporter, dashboard and ``explain-offset`` say before a kill is re-consumed after it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from failback.analytics.dashboard.sources.brokers import look_at
from failback.analytics.dashboard.sources.clusters import MemberRef
from failback.analytics.exporter.survey import Surveyor, pair_facts
from failback.analytics.live import known
from failback.analytics.live.exposure import GroupExposure, exposure
from failback.analytics.live.facts import GroupTopic, PairFacts
from failback.analytics.live.offset_file import in_store
from failback.cli.__main__ import main
from failback.client.admin.admin import AdminClient
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.client.remoting.connection import RemotingClient
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import RemotingError
from failback.protocol.message import MessageExt
from failback.protocol.route import TopicConfig
from tests.support.common.polling import SCALE, until
from tests.support.java.apache import Broker, NameServer
from tests.support.java.java_lab import Lab

TOPIC, GROUP, QUEUES = "orders", "billing", 4
KEY = GroupTopic(GROUP, TOPIC)
AT_REST = {KEY: 0.0}
BEFORE, AFTER = 60, 40
TIME_SCALE = 0.5
PERSISTED_SECONDS = 10 * TIME_SCALE + 1
"""So long after its start a broker has written its file once."""
SETTINGS: dict[str, object] = {
    "failbackTimeScale": TIME_SCALE,
    "flushConsumerOffsetInterval": 3_600_000,
}


@dataclass
class Group:
    """Consumes as one member that is restarted each time; what it handled, in order."""

    namesrv: str
    handled: list[bytes]

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        self.handled += [each.body for each in messages]
        return ConsumeResult.SUCCESS

    def settings(self) -> ClientSettings:
        return ClientSettings(
            namesrv_addrs=(self.namesrv,), client_ip="127.0.0.1", time_scale=TIME_SCALE
        )

    async def consume(self, until_handled: int) -> None:
        """Start a member, wait until that many were handled in all, and end it cleanly."""
        member = PushConsumer(GROUP, self.settings(), self, consume_from=ConsumeFrom.FIRST_OFFSET)
        member.subscribe(TOPIC)
        async with member:
            await until(lambda: len(self.handled) >= until_handled, "all handled", 60)

    async def send(self, first: int, count: int) -> None:
        async with Producer("shop", self.settings()) as producer:
            for number in range(first, first + count):
                await producer.send(Message(TOPIC, b"%d" % number))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    try:
        yield found
    finally:
        found.dispose()


@pytest.mark.parametrize("after_return", [True, False], ids=["after its return", "while away"])
async def test_what_was_shown_before_a_kill_is_what_a_new_consumer_gets_again(
    lab: Lab,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    after_return: bool,
) -> None:
    # The master restarts below, and is old enough for figures when its file is written.
    monkeypatch.setattr(known, "YOUNG_SECONDS", 10.0)
    ns = lab.namesrv()
    master = lab.broker("failback", ns, settings=SETTINGS)
    rare = {**SETTINGS, "failbackTimeScale": 1.0}  # the slave copies every ten seconds
    slave = lab.broker("failback", ns, settings=rare, broker_id=1, role="SLAVE")
    group = Group(ns.address, [])
    async with AdminClient([ns.address]) as admin:
        master.start()
        slave.start()
        await admin.create_topic(master.address, TopicConfig(TOPIC, QUEUES, QUEUES))
        await group.send(0, BEFORE)
        await group.consume(BEFORE)
        assert master.process.stop() == 0, "its file has what was consumed"
        master.start()
        persisted = time.monotonic() + PERSISTED_SECONDS
        await until(lambda: time.monotonic() > persisted, "the first write of the file", 60)
        done = BEFORE
        while True:  # until the slave copies in none of the looks
            await settled(admin, master, slave)  # it has copied just now
            await group.send(done, AFTER)
            await group.consume(done + AFTER)
            done += AFTER
            shown = await figure(ns, master)
            facts = await seen_by_dashboard(admin, master, slave)
            told = await asyncio.to_thread(explained, ns, capsys)
            if shown.on_slave and await figure(ns, master) == shown:
                break
        master.kill()
        held = await admin.all_offsets(slave.address)

    assert shown.measured
    assert shown.after_return == done - BEFORE
    assert done - sum(held[f"{TOPIC}@{GROUP}"].values()) == shown.on_slave, "no copy in between"
    other = exposure(facts, AT_REST)[GROUP]
    assert (other.after_return, other.on_slave) == (shown.after_return, shown.on_slave)
    assert told == (shown.after_return, shown.on_slave)

    expected = int(shown.after_return if after_return else shown.on_slave or 0)
    assert expected > 0
    if after_return:
        master.start()
    before = set(group.handled)
    await group.consume(done + expected)
    again = group.handled[done:]
    assert len(again) == expected
    assert set(again) <= before
    assert len(set(again)) == expected, "each of them once"


async def settled(admin: AdminClient, master: Broker, slave: Broker) -> None:
    """Wait until the slave has copied what the master knows and holds all messages."""
    deadline = asyncio.get_running_loop().time() + 60 * SCALE
    entry = f"{TOPIC}@{GROUP}"
    while True:
        try:
            tables = [await admin.all_offsets(each.address) for each in (master, slave)]
        except RemotingError:  # the connection to the master's earlier life
            continue
        if tables[0].get(entry) and tables[0].get(entry) == tables[1].get(entry):
            return
        assert asyncio.get_running_loop().time() < deadline, tables
        await asyncio.sleep(0.05)


async def figure(ns: NameServer, master: Broker) -> GroupExposure:
    """As the exporter has it; the group is at rest."""
    async with RemotingClient() as client:
        survey = await Surveyor([ns.address], client=client).survey()
    file = in_store(master.store)
    assert file is not None
    facts = pair_facts(survey, survey.brokers, {(master.name, 0): file}, lambda _: None)
    return exposure(facts, AT_REST)[GROUP]


async def seen_by_dashboard(admin: AdminClient, master: Broker, slave: Broker) -> PairFacts:
    members = [
        await look_at(admin, MemberRef(each.name, "", each.address, store=str(each.store)), None)
        for each in (master, slave)
    ]
    return PairFacts(
        master.name, tuple(members), members[0].at, members[0].ends, members[0].begins,
        members[0].consumers.members,
    )  # fmt: skip


def explained(ns: NameServer, capsys: pytest.CaptureFixture[str]) -> tuple[int, int]:
    """What ``explain-offset`` says of the queues, added up."""
    capsys.readouterr()
    sums = [0, 0]
    for queue in range(QUEUES):
        ask = ("explain-offset", GROUP, TOPIC, str(queue), "--live", "--json")
        assert main((*ask, "--namesrv", ns.address)) == 0
        said = json.loads(capsys.readouterr().out)["exposure"]
        sums = [sums[0] + said["after_return"], sums[1] + said["on_slave"]]
    return sums[0], sums[1]
