"""SQL92 subscriptions of the unmodified Java client, on either engine."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from failback.broker.filters.consumer_filters import ConsumerFilterManager, bits_of
from failback.broker.filters.subscription import of_heartbeat
from failback.client.admin.admin import AdminClient
from failback.protocol.clients import ConsumerData, HeartbeatData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.headers import SendMessageRequestHeader
from failback.protocol.route import TopicConfig
from tests.support.common.polling import wait_until
from tests.support.java.apache import Broker, Engine, NameServer, client_folders, java
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import ROOT, TestProcess

ENGINES = ["failback", pytest.param("apache", marks=pytest.mark.soak)]
"""What Apache's broker does is the measure, and need not be taken every time."""

TOPIC = "AskedTopic"
FILTER = "a > 2 AND (b IS NULL OR b IN ('x', 'y')) AND a NOT BETWEEN 15 AND 17"


def java_tool(program: str, *arguments: str) -> list[str]:
    jars, _ = client_folders()
    command = [java(), "-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-Drocketmq.client.logLevel=WARN", "-cp", f"{jars}/*"]
    return [*command, str(ROOT / f"tests/java/tools/{program}.java"), *arguments]


async def make(broker: Broker, messages: int) -> None:
    """Make the topic, and send messages with the property ``a`` and, some of them, ``b``."""
    async with AdminClient([]) as admin:
        await admin.create_topic(broker.address, TopicConfig(TOPIC, 2, 2))
        for number in range(messages):
            properties = f"a\x01{number}" + ("\x02b\x01x" if number % 2 else "")
            properties += "\x02b\x01z" if number % 5 == 4 and not number % 2 else ""
            header = SendMessageRequestHeader(
                "PG", TOPIC, "TBW102", 4, number % 2, 0, 1_700_000_000_000, 0, properties
            )
            await admin.ask(broker.address, RequestCode.SEND_MESSAGE, header, b"%d" % number)


def consumer_of(folder: Path, ns: NameServer) -> TestProcess:
    command = java_tool("SqlConsumer", ns.address, TOPIC, FILTER)
    return TestProcess("sqlconsumer", command, folder)


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_filter_hands_out_what_matches(lab: Lab, tmp_path: Path, engine: Engine) -> None:
    ns = lab.namesrv()
    broker = lab.broker(engine, ns, settings={"enablePropertyFilter": "true"})
    broker.start()
    await make(broker, 20)
    wanted = {
        number
        for number in range(3, 20)
        if not (number % 5 == 4 and not number % 2) and not 15 <= number <= 17
    }
    consumer = consumer_of(tmp_path / "java", ns)
    try:
        consumer.start()
        consumer.wait_for("started")
        wait_until(lambda: got(consumer) >= wanted, "every message that matches")
        consumer.end_input()
        assert got(consumer) == wanted
    finally:
        consumer.dispose()


def got(consumer: TestProcess) -> set[int]:
    return {int(line.split()[1]) for line in consumer.lines() if line.startswith("got ")}


@pytest.mark.parametrize("engine", ENGINES)
async def test_without_filters_the_consumer_is_told_so_at_its_start(
    lab: Lab, tmp_path: Path, engine: Engine
) -> None:
    ns = lab.namesrv()
    broker = lab.broker(engine, ns)
    broker.start()
    await make(broker, 0)
    consumer = consumer_of(tmp_path / "java", ns)
    try:
        consumer.start()
        said = consumer.wait_for("refused")
    finally:
        consumer.dispose()
    assert "The broker does not support consumer to filter message by SQL92" in said


async def test_the_file_of_filters_is_exchanged_with_apache(lab: Lab) -> None:
    """An Apache broker keeps ours, which it drops if a bit is missing, and adds one like ours."""
    broker = lab.broker("apache", lab.namesrv(), settings={"enablePropertyFilter": "true"})
    path = broker.store / "config" / "consumerFilter.json"
    data = SubscriptionData(TOPIC, "a > 2", sub_version=7, expression_type="SQL92")
    ours = ConsumerFilterManager(path, now_ms)
    ours.register("Ours", [of_heartbeat(data)])
    ours.persist()
    broker.start()
    async with AdminClient([]) as admin:
        consumer = ConsumerData("Theirs", subscription_data_set=[data])
        beat = HeartbeatData("c1", [], [consumer]).to_json()
        await admin.ask(broker.address, RequestCode.HEART_BEAT, None, beat)
    await asyncio.to_thread(broker.stop)
    theirs = ConsumerFilterManager(path, now_ms)
    theirs.load()
    kept, before = theirs.get(TOPIC, "Ours"), ours.get(TOPIC, "Ours")
    added = theirs.get(TOPIC, "Theirs")
    assert kept is not None
    assert before is not None
    assert added is not None
    assert kept.is_dead
    kept.dead_time = before.dead_time
    assert kept == before
    assert added.bloom_filter_data is not None
    assert added.bloom_filter_data.bit_pos == bits_of("Theirs", TOPIC)
    assert (added.expression, added.client_version) == ("a > 2", 7)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
