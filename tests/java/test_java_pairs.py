"""Mixed pairs: an Apache broker replicates ours, and ours an Apache broker."""

from __future__ import annotations

import asyncio
import time

import pytest

from failback.broker.offsets.consumer_offset_manager import decode_offset_table
from failback.client.admin import AdminClient
from failback.protocol.errors import BrokerError, RemotingError
from failback.protocol.route import (
    DelayOffsetTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from tests.support.apache import LOG_FILE_BYTES, Broker, Engine, got_by, sent_by
from tests.support.java_lab import Lab
from tests.support.polling import SCALE, wait_until

pytestmark = pytest.mark.java

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


@pytest.mark.parametrize(("master_engine", "slave_engine"), PAIRS)
async def test_a_mixed_pair_holds_the_same_and_the_slave_takes_over(
    lab: Lab, master_engine: Engine, slave_engine: Engine
) -> None:
    ns = lab.namesrv()
    master = lab.broker(master_engine, ns)
    slave = lab.broker(slave_engine, ns, broker_id=1, role="SLAVE")
    master.start()
    slave.start()

    # An empty slave is sent to the master's last file: it has to come while that is the first.
    first = lab.program("Producer", ns, topic=TOPIC, first=20_000, count=10)
    first.wait_for("done")
    await _until_equal(slave, master)

    # More than one log file, records cut by frames, a blank record at the file's end.
    big = lab.program("Producer", ns, topic=TOPIC, size=4000, count=LOG_FILE_BYTES // 4000)
    big.wait_for("done")
    small = lab.program("Producer", ns, topic=TOPIC, first=10_000, count=200)
    small.wait_for("done")
    delayed = 3
    late = lab.program("Producer", ns, topic=TOPIC, first=30_000, count=delayed, delayLevel=1)
    late.wait_for("done")
    numbers = {one.number for each in (first, big, small, late) for one in sent_by(each)}
    assert len(numbers) == 10 + LOG_FILE_BYTES // 4000 + 200 + delayed
    consumer = lab.program("PushConsumer", ns, topic=TOPIC)
    wait_until(lambda: {one.number for one in got_by(consumer)} == numbers, "all delivered")
    consumer.end_input()

    async with AdminClient([ns.address]) as admin:
        end = await _until_equal(slave, master)
        assert end > LOG_FILE_BYTES
        offsets = await admin.all_offsets(master.address)
        delays = await admin.delay_offsets(master.address)
        assert delays == {1: delayed}
        _until_copied(slave, offsets, delays)

        assert log_bytes(slave, end) == log_bytes(master, end)
        assert queue_bytes(slave) == queue_bytes(master)
        topics = await admin.all_topic_config(master.address)
        copied = TopicConfigSerializeWrapper.from_json(config_text(slave, "topics.json"))
        assert copied == topics
        assert TOPIC in copied.topic_config_table
        groups = await admin.all_groups(master.address)
        held = SubscriptionGroupWrapper.from_json(config_text(slave, "subscriptionGroup.json"))
        assert held == groups
        assert GROUP in held.subscription_group_table
        assert decode_offset_table(config_text(slave, "consumerOffset.json")) == offsets
        assert await admin.all_offsets(slave.address) == offsets

    master.kill()
    other = lab.program("PushConsumer", ns, topic=TOPIC, group="another-group")
    wait_until(lambda: {one.number for one in got_by(other)} == numbers, "all from the slave")
    assert len(got_by(other)) == len(numbers)
    other.end_input()


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


def _until_copied(slave: Broker, offsets: object, delays: object) -> None:
    def copied() -> bool:
        texts = config_text(slave, "consumerOffset.json"), config_text(slave, "delayOffset.json")
        return (
            all(texts)
            and decode_offset_table(texts[0]) == offsets
            and DelayOffsetTable.from_json(texts[1]).offset_table == delays
        )

    wait_until(copied, "the master's offsets on the slave", seconds=60)


@pytest.mark.parametrize(("master_engine", "slave_engine"), PAIRS)
async def test_each_side_of_a_mixed_pair_finds_the_other_again(
    lab: Lab, master_engine: Engine, slave_engine: Engine
) -> None:
    ns = lab.namesrv()
    master = lab.broker(master_engine, ns)
    slave = lab.broker(slave_engine, ns, broker_id=1, role="SLAVE")
    master.start()
    slave.start()
    lab.program("Producer", ns, topic=TOPIC, count=100).wait_for("done")
    await _until_equal(slave, master)
    slave.kill()
    lab.program("Producer", ns, topic=TOPIC, first=100, count=100).wait_for("done")
    slave.start()
    await _until_equal(slave, master)
    master.kill()
    master.start()
    lab.program("Producer", ns, topic=TOPIC, first=200, count=100).wait_for("done")
    end = await _until_equal(slave, master)
    assert log_bytes(slave, end) == log_bytes(master, end)
    assert queue_bytes(slave) == queue_bytes(master)


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
