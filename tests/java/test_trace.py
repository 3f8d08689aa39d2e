"""A group of unmodified Java consumers, counted by itself and by its message trace."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from failback.analytics.observe.asking import Asker
from failback.analytics.observe.folder import seconds
from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from failback.analytics.trace.ingest import Request, ingest
from failback.analytics.trace.records import TRACE_TOPIC
from failback.analytics.trace.run import Written
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.route import TopicConfig
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import got_by
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import TestProcess

TOPIC, GROUP = "JavaTopic", "traced-group"
FIRST, HELD, ALL = 30, 60, 200
"""Messages sent before the outage to be handled whole, begun before the kill, and sent at all."""
QUICK: dict[str, object] = {"failbackTimeScale": 0.2}
COUNTED = ("delivered", "distinct", "retry", "dup", "dup_after_success")


async def test_the_trace_counts_the_duplicates_that_the_java_program_counts(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handover: two members read on from the slave, a third one asks the returned master."""
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)
    ns = lab.namesrv()
    master = lab.broker("failback", ns, settings=QUICK)
    slave = lab.broker("failback", ns, broker_id=1, role="SLAVE", settings=QUICK)
    keeper = lab.broker("failback", ns, name="broker-b", settings={"traceTopicEnable": "true"})
    for broker in (master, slave, keeper):
        broker.start()
    request = Request([ns.address], tmp_path / "run", "java")
    async with AdminClient([ns.address]) as admin:
        await admin.create_topic(master.address, TopicConfig(TOPIC, 2, 2))
        await _until_known(admin, slave.address)
        group = lab.program("TracedGroup", ns, topic=TOPIC, handler=5, fail=10)
        group.wait_for("ready", 120)
        _do(group, "start a", "joined a")
        _do(group, "start b", "joined b")
        _do(group, f"send 0 {FIRST}", "sent 0")
        _until_handled(group, FIRST + FIRST // 10, distinct=FIRST)
        group.tell(f"hold {HELD}")
        _do(group, f"send {FIRST} {ALL - FIRST}", f"sent {FIRST}")
        await _until_equal(admin, master.address, slave.address)
        wait_until(lambda: _counts(group)[1] >= HELD, "handlers are held", 90)
        master.kill()
        group.tell("go")
        _until_handled(group, ALL, distinct=ALL)
        for member in ("a", "b"):
            await _until_traced(request, group)
            _do(group, f"stop {member}", f"left {member}")
        master.start()
        _do(group, "start c", "joined c")
        await _until_consumed(admin, master.address)
        await _until_traced(request, group)
        _do(group, "stop c", "left c")
        written = await _until_traced(request, group)
    counts = dict(zip(COUNTED, _counts(group), strict=False))
    assert counts["distinct"] == ALL
    assert counts["dup"] >= ALL - 2 * HELD
    assert counts["dup_after_success"] > 0
    assert counts["retry"] >= FIRST // 10
    assert group.end_input() == 0
    assert (written.gaps, written.groups, written.counts.unplaced) == ((), (GROUP,), 0)
    assert written.sends == ALL
    document = read_report(report(tmp_path / "run", "local").json)
    assert {name: document["totals"][name] for name in COUNTED} == counts
    (shown,) = document["groups"]
    assert (shown["unattributed"], shown["topic"]) == (counts["dup"], TOPIC)
    assert shown["wasted_seconds"] > 0
    queues = document["queues"]
    assert {queue["broker"] for queue in queues if queue["topic"] == TOPIC} == {"broker-a"}
    assert sum(queue["dup"] for queue in queues) == counts["dup"]
    assert document["verdict"]["value"] == "Inconclusive"


@pytest.mark.soak
async def test_instances_are_told_apart_and_the_channel_cloud_is_read(
    lab: Lab, tmp_path: Path
) -> None:
    """One group and topic in two instances of Apache 4.9.7; the clients of one have CLOUD."""
    ns = lab.namesrv("apache")
    broker = lab.broker("apache", ns, settings={"traceTopicEnable": "true"})
    broker.start()
    members = {
        instance: lab.program(
            "PushConsumer", ns, topic=TOPIC, group=GROUP, namespace=instance, trace=TRACE_TOPIC,
            channel=channel, fail=fail,
        )
        for instance, channel, fail in (("MQ_INST_a", "LOCAL", 1), ("MQ_INST_b", "CLOUD", 0))
    }  # fmt: skip
    sent = {"MQ_INST_a": 10, "MQ_INST_b": 25}
    for instance, count in sent.items():
        members[instance].wait_for("started")
        lab.program("Producer", ns, topic=TOPIC, namespace=instance, count=count).wait_for("done")
    wanted = {"MQ_INST_a": 2 * sent["MQ_INST_a"], "MQ_INST_b": sent["MQ_INST_b"]}
    for instance, count in wanted.items():
        _until_got(members[instance], count)
    request = Request([ns.address], tmp_path / "run", "instances")
    deadline = time.monotonic() + 60 * SCALE
    while True:
        written = await ingest(request)
        if written.deliveries >= sum(wanted.values()) and not written.counts.missing_end:
            break
        assert time.monotonic() < deadline, written
        await asyncio.sleep(1)
    assert (written.gaps, written.counts.unplaced) == ((), 0)
    document = read_report(report(tmp_path / "run", "local").json)
    assert {row["group"]: (row["delivered"], row["distinct"], row["retry"], row["dup"])
            for row in document["groups"]} == {
        f"MQ_INST_a%{GROUP}": (20, 10, 10, 0), f"MQ_INST_b%{GROUP}": (25, 25, 0, 0),
    }  # fmt: skip
    async with RemotingClient() as client:
        asker = Asker([ns.address], client, zero=seconds(), groups={GROUP})
        (look,) = (await asker.look(closely=True)).brokers
    assert {f"MQ_INST_a%{GROUP}", f"MQ_INST_b%{GROUP}"} == set(look.members or {})


def _until_got(member: TestProcess, count: int) -> None:
    wait_until(lambda: len(got_by(member)) >= count, f"{count} deliveries", 90)


def _do(group: TestProcess, command: str, answer: str) -> None:
    group.tell(command)
    group.wait_for(answer, 90)


def _counts(group: TestProcess) -> tuple[int, ...]:
    """Deliveries, distinct, retries, duplicates, those after success, and running handlers."""
    before = len([line for line in group.lines() if line.startswith("counted ")])
    group.tell("count")

    def answers() -> list[str]:
        return [line for line in group.lines() if line.startswith("counted ")]

    wait_until(lambda: len(answers()) > before, "the program says its counts", 60)
    return tuple(map(int, answers()[-1].split()[1:]))


def _until_handled(group: TestProcess, deliveries: int, *, distinct: int) -> None:
    """Wait until so much was handed out and nothing is under way."""

    def reached() -> bool:
        found = _counts(group)
        return found[0] >= deliveries and found[1] >= distinct and found[-1] == 0

    wait_until(reached, f"{deliveries} deliveries of {distinct} messages", 120)


async def _until_traced(request: Request, group: TestProcess) -> Written:
    """Read on until the trace has the end of everything that the program was handed."""
    deadline = time.monotonic() + 90 * SCALE
    while True:
        written = await ingest(request)
        found = _counts(group)
        if written.deliveries == found[0] and not written.counts.missing_end and not found[-1]:
            return written
        assert time.monotonic() < deadline, (written, found)
        await asyncio.sleep(0.3)


async def _until_known(admin: AdminClient, slave: str) -> None:
    await _until(admin, "the slave knows the topic", _knows_topic, slave)


async def _until_equal(admin: AdminClient, master: str, slave: str) -> None:
    await _until(admin, "the slave has every message", _has_all, master, slave)


async def _until_consumed(admin: AdminClient, master: str) -> None:
    await _until(admin, "the group is at the end of every queue", _is_at_end, master)


async def _until(admin: AdminClient, what: str, is_so: object, *where: str) -> None:
    deadline = time.monotonic() + 120 * SCALE
    while True:
        try:
            if await is_so(admin, *where):  # type: ignore[operator]
                return
        except (BrokerError, RemotingError, ProtocolError):
            pass  # not serving yet
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.1)


async def _knows_topic(admin: AdminClient, slave: str) -> bool:
    return TOPIC in (await admin.all_topic_config(slave)).topic_config_table


async def _has_all(admin: AdminClient, master: str, slave: str) -> bool:
    ends = [
        [await admin.max_offset(addr, TOPIC, queue) for queue in range(2)]
        for addr in (master, slave)
    ]
    return ends[0] == ends[1] and sum(ends[0]) >= ALL


async def _is_at_end(admin: AdminClient, master: str) -> bool:
    offsets = await admin.all_offsets(master)
    for topic in (TOPIC, f"%RETRY%{GROUP}"):
        known = offsets.get(f"{topic}@{GROUP}", {})
        queues = (await admin.topic_stats(master, topic)).offset_table
        if any(known.get(q.queue_id, 0) != limits.max_offset for q, limits in queues.items()):
            return False
    return True
