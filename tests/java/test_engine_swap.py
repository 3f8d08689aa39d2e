"""One store, three brokers in turn: failback, Apache, failback. Nothing is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import PULL_SUBSCRIPTION, RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
    from_ext,
)
from failback.protocol.message import MessageExt, decode_records
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker, Engine
from tests.support.java.java_lab import Lab

TOPIC, QUEUES = "Swapped", 4
GROUPS = ("early", "late")
ROUND = 100
"""Messages that are sent to every broker in turn."""
TIMEOUT_MS = 10_000 * SCALE
Place = tuple[int, int]
"""Queue id and queue offset of a message."""


@dataclass
class Expected:
    """What was acknowledged so far, by any of the brokers."""

    bodies: dict[Place, bytes] = field(default_factory=dict)
    marks: dict[Place, str] = field(default_factory=dict)
    """Key, tag and flag."""
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """Group and queue id → the offset that was committed last."""


class Visitor:
    """A client of whichever broker has the store now."""

    def __init__(self, broker: Broker, admin: AdminClient, client: RemotingClient) -> None:
        self.address = broker.address
        self.admin = admin
        self.client = client

    async def send(self, expected: Expected, first: int) -> None:
        """Store one more round, spread over the queues."""
        for number in range(first, first + ROUND):
            header = SendMessageRequestHeader(
                producer_group="PG",
                topic=TOPIC,
                default_topic="TBW102",
                default_topic_queue_nums=QUEUES,
                queue_id=number % QUEUES,
                sys_flag=0,
                born_timestamp=1_700_000_000_000 + number,
                flag=number,
                properties=f"KEYS\x01key-{number}\x02TAGS\x01Tag{number % 3}\x02WAIT\x01true",
                reconsume_times=0,
                batch=False,
            )
            body = b"%d" % number * (1 + number % 40)
            request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header.to_v2(), body)
            answer = await self.client.invoke(self.address, request, TIMEOUT_MS)
            assert answer.code == ResponseCode.SUCCESS
            stored = from_ext(SendMessageResponseHeader, answer.ext_fields)
            place = (stored.queue_id, stored.queue_offset)
            assert place not in expected.bodies
            expected.bodies[place] = body
            expected.marks[place] = f"key-{number} Tag{number % 3} {number}"

    async def commit(self, expected: Expected, share: float) -> None:
        """Let each group have consumed a share of every queue; the second is always behind."""
        for step, group in enumerate(GROUPS):
            for queue_id in range(QUEUES):
                end = 1 + max(offset for queue, offset in expected.bodies if queue == queue_id)
                offset = int(end * share) - step
                await self.admin.update_offset(self.address, group, TOPIC, queue_id, offset)
                expected.offsets[group, queue_id] = offset

    async def check(self, expected: Expected) -> None:
        """Read everything back, from the first message of every queue."""
        found = await self._all(expected)
        assert {place: item.body for place, item in found.items()} == expected.bodies
        marks = {place: f"{item.keys} {item.tags} {item.flag}" for place, item in found.items()}
        assert marks == expected.marks
        offsets = {
            (group, queue_id): await self.admin.query_offset(self.address, group, TOPIC, queue_id)
            for group in GROUPS
            for queue_id in range(QUEUES)
        }
        assert offsets == expected.offsets
        topics = (await self.admin.all_topic_config(self.address)).topic_config_table
        assert topics[TOPIC].read_queue_nums == QUEUES
        groups = (await self.admin.all_groups(self.address)).subscription_group_table
        assert {name: groups[name].retry_max_times for name in GROUPS} == {"early": 3, "late": 4}

    async def _all(self, expected: Expected) -> dict[Place, MessageExt]:
        found: dict[Place, MessageExt] = {}
        for queue_id in range(QUEUES):
            end = await self._end(expected, queue_id)
            offset = await self.admin.min_offset(self.address, TOPIC, queue_id)
            assert offset == 0
            while offset < end:
                answer = await self._pull(queue_id, offset)
                for item in decode_records(answer.body):
                    found[item.queue_id, item.queue_offset] = item
                offset = from_ext(PullMessageResponseHeader, answer.ext_fields).next_begin_offset
        return found

    async def _end(self, expected: Expected, queue_id: int) -> int:
        """Return the queue's end, once all that was acknowledged can be pulled."""
        wanted = 1 + max(offset for queue, offset in expected.bodies if queue == queue_id)
        for _ in range(200):
            end = await self.admin.max_offset(self.address, TOPIC, queue_id)
            if end >= wanted:
                return end
            await asyncio.sleep(0.05 * SCALE)
        raise AssertionError(f"queue {queue_id} never reached {wanted}")

    async def _pull(self, queue_id: int, offset: int) -> RemotingCommand:
        header = PullMessageRequestHeader(
            "reader", TOPIC, queue_id, offset, 32, PULL_SUBSCRIPTION, 0, 0, 0, "*"
        )
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await self.client.invoke(self.address, request, TIMEOUT_MS)
        assert answer.code == ResponseCode.SUCCESS
        return answer


@asynccontextmanager
async def visiting(broker: Broker, engine: Engine) -> AsyncIterator[Visitor]:
    """Start the broker with an engine, and stop it cleanly at the end."""
    broker.engine = engine
    await asyncio.to_thread(broker.start)
    async with AdminClient([], timeout_ms=TIMEOUT_MS) as admin, RemotingClient() as client:
        yield Visitor(broker, admin, client)
    await asyncio.to_thread(broker.stop)
    assert not (broker.store / "abort").exists()


@pytest.mark.soak
async def test_messages_and_offsets_survive_apache_and_the_way_back(lab: Lab) -> None:
    broker = lab.broker("failback", lab.namesrv())
    expected = Expected()
    async with visiting(broker, "failback") as first:
        await first.admin.create_topic(first.address, TopicConfig(TOPIC, QUEUES, QUEUES))
        for tries, group in enumerate(GROUPS, 3):
            config = SubscriptionGroupConfig(group, retry_max_times=tries)
            await first.admin.create_group(first.address, config)
        await first.send(expected, 0)
        await first.commit(expected, 0.3)
        await first.check(expected)
    async with visiting(broker, "apache") as second:
        await second.check(expected)
        await second.send(expected, ROUND)
        await second.commit(expected, 0.6)
        await second.check(expected)
    async with visiting(broker, "failback") as third:
        await third.check(expected)
        await third.send(expected, 2 * ROUND)
        await third.commit(expected, 0.9)
        await third.check(expected)
    assert len(expected.bodies) == 3 * ROUND
