"""The unmodified Java transaction producer on our broker, and on one of ours after Apache's."""

from __future__ import annotations

import asyncio
import time

import pytest

from failback.client.admin.admin import AdminClient
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import Engine, got_by, sent_by
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import TestProcess

TOPIC = "JavaTopic"
COUNT = 9
COMMITTED = {number for number in range(COUNT) if number % 3 != 1}
ENDED = {number for number in range(COUNT) if number % 3 != 2}
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
QUICK: dict[str, object] = {"transactionCheckInterval": 2000, "transactionTimeOut": 1000}


def checked_by(producer: TestProcess) -> set[int]:
    return {int(line.split()[1]) for line in producer.lines() if line.startswith("checked ")}


async def ended(ns: str, broker: str, numbers: set[int]) -> None:
    """Wait until the broker has ended these transactions: the client asks for no answer."""
    deadline = time.monotonic() + 30 * SCALE
    async with AdminClient([ns]) as admin:
        while await admin.max_offset(broker, OP_TOPIC, 0) != len(numbers):
            assert time.monotonic() < deadline, "not all were ended"
            await asyncio.sleep(0.05)


async def test_commit_rollback_and_check(lab: Lab) -> None:
    ns = lab.namesrv()
    broker = lab.broker("failback", ns, settings=QUICK)
    broker.start()
    producer = lab.program("TransactionProducer", ns, topic=TOPIC, count=COUNT)
    producer.wait_for("done")
    assert {sent.status for sent in sent_by(producer)} == {"SEND_OK"}
    consumer = lab.program("PushConsumer", ns, topic=TOPIC)
    wait_until(lambda: {got.number for got in got_by(consumer)} == COMMITTED, "what was committed")
    assert checked_by(producer) == {2, 5, 8}
    producer.end_input()
    consumer.end_input()
    assert sorted(got.number for got in got_by(consumer)) == sorted(COMMITTED)
    async with AdminClient([ns.address]) as admin:
        assert await admin.max_offset(broker.address, OP_TOPIC, 0) == COUNT


@pytest.mark.parametrize(
    "engines",
    [
        pytest.param(("apache", "failback"), marks=pytest.mark.soak),
        ("failback", "apache"),
    ],
    ids=lambda pair: "-".join(pair),
)
async def test_what_one_engine_prepared_the_other_asks_about(
    lab: Lab, engines: tuple[Engine, Engine]
) -> None:
    ns = lab.namesrv()
    broker = lab.broker(engines[0], ns, settings={"transactionTimeOut": 1000})
    broker.start()
    producer = lab.program("TransactionProducer", ns, topic=TOPIC, count=COUNT)
    producer.wait_for("done")
    await ended(ns.address, broker.address, ENDED)
    broker.kill()
    broker.engine = engines[1]
    broker.settings |= QUICK
    broker.start()
    consumer = lab.program("PushConsumer", ns, topic=TOPIC)
    wait_until(
        lambda: {got.number for got in got_by(consumer)} == COMMITTED, "what was committed", 120
    )
    assert checked_by(producer) == {2, 5, 8}
    producer.end_input()
    consumer.end_input()
    assert sorted(got.number for got in got_by(consumer)) == sorted(COMMITTED)
