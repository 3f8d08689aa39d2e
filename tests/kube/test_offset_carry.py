"""A master of Apache that returns in a pod delivers again nothing that its slave was told.

The control has the same brokers without `offsetCarry`. Timers are real: Apache's cannot be scaled.
"""

from __future__ import annotations

import asyncio

import pytest

from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.protocol.errors import FailbackError
from failback.protocol.message import MessageExt
from tests.kube.test_slave_ahead import (
    FIRST,
    GROUP,
    KEY,
    MASTER,
    SENT,
    SLAVE,
    TOPIC,
    consume,
    consume_a_part,
    send,
)
from tests.support.common.polling import wait_until
from tests.support.java.apache import LOG_FILE_BYTES, server_home
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, is_true, operator
from tests.support.operator.quick_pair import QUICK, QuickPair
from tests.support.operator.resources import resource

pytestmark = pytest.mark.long

FRUGAL = "-Xms256m -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
NEW, LATER = 16, 48
"""Messages sent after a return, and before the second outage: of each queue the same."""


@pytest.mark.parametrize(
    ("mode", "again"),
    [
        ("Auto", (0, 0)),
        pytest.param("Off", (SENT - FIRST, LATER), marks=pytest.mark.soak),
    ],
)
async def test_a_killed_broker_and_a_deleted_pod(
    namespace: Namespace, node: NodeProcess, mode: str, again: tuple[int, int]
) -> None:
    server_home()
    with operator(namespace, **QUICK):
        pair = QuickPair(namespace)
        create(pair, mode)
        pair.create_topic(TOPIC, GROUP)
        await consume_a_part(pair, node)

        shell(namespace, "echo test >/run/failback/hold")
        node.kill_program(namespace.name, pair.pod(MASTER))
        await consume(pair, SLAVE, SENT)
        shell(namespace, "rm /run/failback/hold")
        pair.api.wait("Pod", pair.pod(MASTER), restarted, seconds=240)
        assert await delivered_again(pair) == again[0]

        await send(pair, LATER)
        await follows(pair)
        pair.annotate(hold_member="orders-0-0")
        pair.api.wait_gone("Pod", pair.pod(MASTER), seconds=240)
        await consume(pair, SLAVE, SENT + NEW + LATER)
        pair.annotate(hold_member=None)
        pair.api.wait("Pod", pair.pod(MASTER), is_true("Ready"), seconds=240)
        assert await delivered_again(pair) == again[1]

        if mode == "Auto":
            pair.api.wait("BrokerCluster", "orders", is_true("OffsetsCarried"), seconds=60)
            told = {event["message"] for event in pair.events("OffsetsCarried", "orders")}
            assert told == {text(SENT - FIRST), text(LATER)}
            found = pair.api.get("BrokerCluster", "orders")
            assert condition_of(found, "OffsetsCarried")["message"] == text(LATER)
            carried = found["status"]["pairs"][0]["members"][MASTER]["carried"]
            assert (carried["outcome"], carried["messages"]) == ("Carried", LATER)
        else:
            assert not pair.events("OffsetsCarried")


def text(messages: int) -> str:
    return (
        f"orders-0-0: 8 offsets of 1 groups raised, {messages} messages not delivered again, "
        "0 cut at the end of this log"
    )


def create(pair: QuickPair, mode: str) -> None:
    pair.api.create(resource("NameServer", "main", replicas=1))
    pair.api.create(
        resource(
            "BrokerCluster",
            "orders",
            nameServerRef={"name": "main"},
            engine={"type": "Apache", "version": "4.9.7", "javaOptions": FRUGAL},
            config={"mappedFileSizeCommitLog": str(LOG_FILE_BYTES)},
            offsetCarry={"mode": mode},
        )
    )


def shell(namespace: Namespace, command: str) -> None:
    """Run a command in the broker's container, once there is one."""
    words = ("exec", "orders-0-0-0", "-c", "broker", "--", "sh", "-c", command)
    wait_until(lambda: namespace.kubectl(*words, check=False).code == 0, command, 60)


def restarted(pod: Object) -> bool:
    return bool(is_true("Ready")(pod)) and pod["status"]["containerStatuses"][0]["restartCount"] > 0


async def follows(pair: QuickPair) -> None:
    """Wait until the slave has all of its master's log and offsets."""
    for _ in range(600):
        seen = [
            (await pair.end_of(each), await pair.offsets(each, KEY)) for each in (SLAVE, MASTER)
        ]
        if seen[0] == seen[1]:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the slave does not follow")


async def ends(pair: QuickPair) -> dict[int, int]:
    """Return where the master's queues end."""
    async with pair.admin() as admin:
        address = pair.address(MASTER)
        return {queue: await admin.max_offset(address, TOPIC, queue) for queue in range(8)}


async def delivered_again(pair: QuickPair) -> int:
    """Send some messages to the returned master; return how many others a new member gets."""
    new: set[bytes] = set()
    others: set[tuple[int, int]] = set()

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        for each in messages:
            if each.body.startswith(b"new"):
                new.add(each.body)
            else:
                others.add((each.queue_id, each.queue_offset))
        return ConsumeResult.SUCCESS

    async with Producer("shop", pair.settings()) as producer, asyncio.timeout(120):
        for number in range(NEW):
            while True:
                try:
                    await producer.send(Message(TOPIC, b"new %d" % number))
                    break
                except FailbackError:  # the route of the returned master is on its way
                    await asyncio.sleep(0.2)
    consumer = PushConsumer(GROUP, pair.settings(), handle, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    async with consumer:
        for _ in range(900):
            table = await pair.offsets(MASTER, KEY)
            if len(new) == NEW and table == await ends(pair):
                return len(others)
            await asyncio.sleep(0.2)
    raise AssertionError(f"{len(new)} new messages came, committed is {table}")
