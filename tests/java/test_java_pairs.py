"""Mixed pairs: an Apache broker replicates ours, and ours an Apache broker."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from failback.client.admin.admin import AdminClient
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.route import (
    DelayOffsetTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    parse_offset_table,
)
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import LOG_FILE_BYTES, Broker, Engine, got_by, sent_by
from tests.support.java.java_lab import Lab

TOPIC = "PairTopic"
GROUP = "java-consumer"
PAIRS: list[tuple[Engine, Engine]] = [("apache", "failback"), ("failback", "apache")]


def log_bytes(broker: Broker, end: int) -> bytes:
    """Return the commit log below physical offset ``end``, zeros of unused tails included."""
    files = sorted(path for path in (broker.store / "commitlog").iterdir())
    assert int(files[0].name) == 0
    return b"".join(path.read_bytes() for path in files)[:end]


def config_text(broker: Broker, name: str) -> str:
    path = broker.store / "config" / name
    return path.read_text() if path.exists() else ""


def queue_bytes(broker: Broker) -> dict[str, bytes]:
    """Return the consume queues that hold anything, without their unused tails."""
    root = broker.store / "consumequeue"
    return {
        str(path.relative_to(root)): data
        for path in sorted(root.glob("*/*/" + "?" * 20))
        if (data := path.read_bytes().rstrip(b"\0"))
    }


@pytest.mark.parametrize(
    "kills", [pytest.param(1), pytest.param(3, marks=pytest.mark.soak)], ids="{}-of-each".format
)
@pytest.mark.parametrize(
    ("master_engine", "slave_engine"), [PAIRS[0], pytest.param(*PAIRS[1], marks=pytest.mark.soak)]
)
@pytest.mark.soak
async def test_a_mixed_pair_killed_under_load_holds_the_same_and_the_slave_takes_over(
    lab: Lab, master_engine: Engine, slave_engine: Engine, kills: int
) -> None:
    rng = random.Random(f"{master_engine} {kills}")
    ns = lab.namesrv()
    # A slave that looked while its master was dead copies nothing before it registers again.
    settings: dict[str, object] = {"registerNameServerPeriod": 10_000}
    if kills == 1:  # an Apache slave asks for its log only this long after it has connected
        settings["haSendHeartbeatInterval"] = 1000
    master = lab.broker(master_engine, ns, settings=settings)
    slave = lab.broker(slave_engine, ns, broker_id=1, role="SLAVE", settings=settings)
    master.start()
    slave.start()
    # An empty slave is sent to the master's last file: it has to come while that is the first.
    first = lab.program("Producer", ns, topic=TOPIC, first=10_000_000, count=10)
    first.wait_for("done")
    await _until_equal(slave, master)

    load = lab.program("Producer", ns, topic=TOPIC, size=3000, interval=2)
    consumer = lab.program("PushConsumer", ns, topic=TOPIC)
    victims = [master, slave] * kills
    rng.shuffle(victims)
    for victim in victims:
        await asyncio.sleep(rng.uniform(0, 1))  # any instant will do: that is what is tried
        victim.kill()
        await asyncio.sleep(rng.uniform(0, 1))
        victim.start()
        await _until_beyond(slave, await _end_of(master))
    load.end_input()

    # More than one log file, records cut by frames, a blank record at the file's end.
    missing = max(0, LOG_FILE_BYTES - await _end_of(master)) // 3000 + 10
    rest = lab.program("Producer", ns, topic=TOPIC, first=20_000_000, size=3000, count=missing)
    rest.wait_for("done")
    late = lab.program("Producer", ns, topic=TOPIC, first=30_000_000, count=3, delayLevel=1)
    late.wait_for("done")
    sent = {one.number for each in (first, load, rest, late) for one in sent_by(each)}
    assert len(sent) > 1000
    wait_until(lambda: sent <= {one.number for one in got_by(consumer)}, "all delivered", 120)
    consumer.end_input()

    async with AdminClient([ns.address]) as admin:
        assert (await admin.delay_offsets(master.address))[1] == 3
        await _until_copied(admin, slave, master)
        end = await _until_equal(slave, master)
        assert end > LOG_FILE_BYTES
        assert log_bytes(slave, end) == log_bytes(master, end)
        assert queue_bytes(slave) == queue_bytes(master)
        master.kill()
        stats = await admin.topic_stats(slave.address, TOPIC)
    held = {
        (queue.queue_id, offset)
        for queue, place in stats.offset_table.items()
        for offset in range(place.max_offset)
    }
    assert len(held) >= len(sent)
    other = lab.program("PushConsumer", ns, topic=TOPIC, group="another-group")
    wait_until(lambda: len(got_by(other)) >= len(held), "everything from the slave", 120)
    got = got_by(other)
    assert {(one.queue_id, one.queue_offset) for one in got} == held
    assert sent <= {one.number for one in got}
    other.end_input()


async def _until_beyond(slave: Broker, end: int) -> None:
    """Wait until the slave has replicated something behind ``end``."""
    deadline = time.monotonic() + 120 * SCALE
    while (held := await _end_of(slave)) <= end:
        assert time.monotonic() < deadline, f"the slave holds {held} bytes, its master had {end}"
        await asyncio.sleep(0.1)


async def _until_copied(admin: AdminClient, slave: Broker, master: Broker) -> None:
    """Wait until the four tables of the slave are its master's, in its files and in memory."""
    deadline = time.monotonic() + 120 * SCALE
    while True:
        wanted = (
            await admin.all_topic_config(master.address),
            await admin.all_offsets(master.address),
            await admin.delay_offsets(master.address),
            await admin.all_groups(master.address),
        )
        held = _tables_in_files(slave)
        if held == wanted and await admin.all_offsets(slave.address) == wanted[1]:
            break
        assert time.monotonic() < deadline, f"the slave has {held}, its master {wanted}"
        await asyncio.sleep(0.5)
    assert TOPIC in wanted[0].topic_config_table
    assert f"{TOPIC}@{GROUP}" in wanted[1]
    assert GROUP in wanted[3].subscription_group_table


def _tables_in_files(slave: Broker) -> object:
    """Return topics, consumer offsets, delay offsets and groups; ``None`` while one is missing."""
    names = ("topics", "consumerOffset", "delayOffset", "subscriptionGroup")
    topics, offsets, delays, groups = (config_text(slave, f"{name}.json") for name in names)
    try:
        return (
            TopicConfigSerializeWrapper.from_json(topics),
            parse_offset_table(offsets),
            DelayOffsetTable.from_json(delays).offset_table,
            SubscriptionGroupWrapper.from_json(groups),
        )
    except ProtocolError:  # not there yet, or read while it was written
        return None


async def _end_of(broker: Broker) -> int:
    """Ask until it answers where its log ends: an Apache broker can't in its first second."""
    deadline = time.monotonic() + 30 * SCALE
    while True:
        try:
            async with AdminClient([]) as admin:
                status = await admin.runtime_info(broker.address)
                return int(status["commitLogMaxOffset"]) - int(status["dispatchBehindBytes"])
        except (BrokerError, RemotingError):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


async def _until_equal(slave: Broker, master: Broker) -> int:
    """Wait until both logs end, dispatched, at one offset, and return it."""
    deadline = time.monotonic() + 60 * SCALE
    while (held := await _end_of(slave)) != (end := await _end_of(master)):
        assert time.monotonic() < deadline, f"the slave holds {held} of {end} bytes"
        await asyncio.sleep(0.1)
    return end


@pytest.mark.sample
@pytest.mark.few(1)
@pytest.mark.parametrize(("master_engine", "slave_engine"), PAIRS)
def test_a_synchronous_master_waits_for_the_other_engines_slave(
    lab: Lab, master_engine: Engine, slave_engine: Engine
) -> None:
    ns = lab.namesrv()
    master = lab.broker(master_engine, ns, role="SYNC_MASTER", settings={"slaveTimeout": 8000})
    slave = lab.broker(slave_engine, ns, broker_id=1, role="SLAVE")
    master.start()
    alone = lab.program("Producer", ns, topic=TOPIC, count=1, retries=0)
    alone.wait_for("done")
    assert [one.status for one in sent_by(alone)] == ["SLAVE_NOT_AVAILABLE"]
    slave.start()

    def replicated() -> bool:
        probe = lab.program("Producer", ns, topic=TOPIC, count=20, retries=0, timeout=10_000)
        probe.wait_for("done")
        return [one.status for one in sent_by(probe)] == ["SEND_OK"] * 20

    wait_until(replicated, "sends to be replicated", seconds=60)
