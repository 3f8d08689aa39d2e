"""A master that comes back knows less of what was consumed than its slave, which copies it soon.

The slave asks the name server who its master is once per registration, and copies its master's
offsets after that. The master is let back in right after such a registration, so that the test
knows how long nothing is overwritten yet.
"""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress

import pytest

from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.protocol.errors import ProtocolError
from failback.protocol.message import MessageExt
from failback.protocol.route import parse_offset_table
from tests.support.common.polling import wait_until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import OperatorProcess, condition_of, operator
from tests.support.operator.quick_pair import QUICK, QuickPair

TOPIC, GROUP = "PAID", "billing"
KEY = f"{TOPIC}@{GROUP}"
SENT, FIRST = 200, 60
MASTER, SLAVE = 0, 1
TIME_SCALE = 0.3
PERIOD_SECONDS = 30 * TIME_SCALE
"""Between two registrations of a broker."""
_LEARNT = re.compile(r"master address None, was \S+")
_AHEAD = re.compile(r'^failback_operator_slave_ahead_messages\{.*member="1".*\} (\S+)$', re.M)
Table = dict[int, int]


@pytest.mark.soak
async def test_a_slave_that_is_ahead_is_told_of_before_it_is_overwritten(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace, **QUICK) as running:
        pair = QuickPair(namespace)
        pair.create(time_scale=TIME_SCALE)
        pair.create_topic(TOPIC, GROUP)
        await consume_a_part(pair, node)

        pair.kill_and_hold(MASTER)
        learnt_at = await the_slave_learns_of_it(pair, node)
        ahead = await consume(pair, SLAVE, SENT)
        await asyncio.sleep(-(time.monotonic() - learnt_at) % PERIOD_SECONDS + 0.5)
        pair.release(MASTER)

        cluster = await asyncio.to_thread(
            pair.api.wait, "BrokerCluster", "orders", is_ahead, seconds=60
        )
        told = await asyncio.to_thread(pair.wait_event, "SlaveAheadOfMaster", "orders")
        assert await pair.offsets(SLAVE, KEY) == ahead, "it is told before it is too late"
        assert told == condition_of(cluster, "MetadataSynced")["message"] == f"orders-0-1: {KEY}"
        known = await pair.offsets(MASTER, KEY)
        assert sum(known.values()) < SENT
        assert messages_ahead(running) == SENT - sum(known.values())

        assert await overwritten(pair, ahead) == known
        assert await pair.offsets(MASTER, KEY) == known, "by these rules nothing is taken over"
        pair.wait_settled()
        assert len(pair.events("SlaveAheadOfMaster")) == 1


@pytest.mark.soak
async def test_by_guarded_rules_the_master_takes_what_its_slave_knows(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace, **QUICK):
        pair = QuickPair(namespace)
        pair.create(engine={"type": "Failback", "rules": "guarded"})
        pair.create_topic(TOPIC, GROUP)
        await consume_a_part(pair, node)

        pair.kill_and_hold(MASTER)
        await the_slave_learns_of_it(pair, node)
        ahead = await consume(pair, SLAVE, SENT)
        pair.release(MASTER)

        pair.wait_settled()
        assert await pair.registered() == {0: pair.address(MASTER), 1: pair.address(SLAVE)}
        assert await pair.offsets(MASTER, KEY) == ahead
        assert await pair.offsets(SLAVE, KEY) == ahead


def is_ahead(item: dict[str, object]) -> bool:
    return bool(condition_of(item, "MetadataSynced")["reason"] == "SlaveAheadOfMaster")


def messages_ahead(running: OperatorProcess) -> float:
    """Return by how many messages the operator says that the slave is ahead."""
    found = _AHEAD.findall(running.get("/metrics"))
    assert len(found) == 1, found
    return float(found[0])


async def send(pair: QuickPair, count: int) -> None:
    async with Producer("shop", pair.settings()) as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number))


async def consume_a_part(pair: QuickPair, node: NodeProcess) -> None:
    """Consume some messages, have that outlive a kill, and leave others on both members."""
    await send(pair, FIRST)
    table = await consume(pair, MASTER, FIRST)
    await send(pair, SENT - FIRST)
    end = await pair.end_of(MASTER)
    for _ in range(600):
        if await pair.end_of(SLAVE) == end and await pair.offsets(SLAVE, KEY) == table:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("the slave does not follow")
    await asyncio.to_thread(
        wait_until, lambda: persisted(pair, node) == table, "the master's persist", 60
    )
    pair.wait_settled()


def persisted(pair: QuickPair, node: NodeProcess) -> Table:
    """Return what the master's file says of the group."""
    pods = node.pod_folder(pair.namespace.name, pair.pod(MASTER)).parent
    claim = f"{pair.namespace.name}_data-{pair.pod(MASTER)}_*"
    for file in pods.with_name("claims").glob(f"{claim}/config/consumerOffset.json"):
        with suppress(OSError, ProtocolError):  # it is replaced in two steps
            return dict(parse_offset_table(file.read_text()).get(KEY, {}))
    return {}


async def consume(pair: QuickPair, member: int, enough: int) -> Table:
    """Consume until so many messages are committed to a member; return its table."""

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(GROUP, pair.settings(), handle, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    async with consumer:
        for _ in range(1200):
            table = await pair.offsets(member, KEY)
            if sum(table.values()) == enough:
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError(f"only {table} is committed")
    return await pair.offsets(member, KEY)


async def the_slave_learns_of_it(pair: QuickPair, node: NodeProcess) -> float:
    """Wait until the slave was told that there is no master; return when that was."""
    for _ in range(1200):
        folder = node.pod_folder(pair.namespace.name, pair.pod(SLAVE)) / "broker"
        if any(_LEARNT.search(file.read_text()) for file in folder.glob("*.log")):
            return time.monotonic()
        await asyncio.sleep(0.1)
    raise AssertionError("the slave goes on believing in its master")


async def overwritten(pair: QuickPair, ahead: Table) -> Table:
    """Wait until the slave's table has lost what it had; return it."""
    for _ in range(600):
        found = await pair.offsets(SLAVE, KEY)
        if found != ahead:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError("the slave keeps what it has")
