"""Our producer and push consumer on an unmodified Apache broker, through kill -9 of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message, SendStatus
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import FailbackError
from failback.protocol.message import MessageExt
from failback.protocol.route import TopicConfig
from tests.support.brokers.namesrv_process import NamesrvProcess
from tests.support.common.polling import until
from tests.support.java.apache import Broker

TOPIC, GROUP = "orders", "billing"


class Handled:
    """Counts deliveries by body; the first of ``failing`` is answered by "later"."""

    def __init__(self, failing: bytes = b"none") -> None:
        self.by_body: Counter[bytes] = Counter()
        self.messages: list[MessageExt] = []
        self._failing = failing

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        (message,) = messages
        self.by_body[message.body] += 1
        self.messages.append(message)
        if message.body == self._failing and message.reconsume_times == 0:
            return ConsumeResult.RECONSUME_LATER
        return ConsumeResult.SUCCESS


def consumer(settings: ClientSettings, handled: Handled) -> PushConsumer:
    made = PushConsumer(GROUP, settings, handled, consume_from=ConsumeFrom.FIRST_OFFSET)
    made.subscribe(TOPIC)
    return made


@pytest.mark.soak
async def test_sends_batches_retries_and_offsets_on_an_apache_broker(tmp_path: Path) -> None:
    with NamesrvProcess(tmp_path) as namesrv:
        broker = Broker("apache", tmp_path / "broker", namesrv.addr)
        broker.start()
        try:
            settings = ClientSettings(namesrv_addrs=(namesrv.addr,), client_ip="127.0.0.1")
            async with AdminClient([namesrv.addr]) as admin:
                await admin.create_topic(broker.address, TopicConfig(TOPIC, 4, 4))
                await _everything_once(admin, broker, settings)
        finally:
            broker.process.dispose()


async def _everything_once(admin: AdminClient, broker: Broker, settings: ClientSettings) -> None:
    handled = Handled(failing=b"single-3")
    async with Producer("shop", settings) as producer:
        for number in range(8):
            result = await producer.send(Message(TOPIC, b"single-%d" % number, tags="t"))
            assert result.status is SendStatus.SEND_OK
        big = bytes(10_000)
        await producer.send(Message(TOPIC, big))
        await producer.send_batch([Message(TOPIC, b"batch-%d" % n) for n in range(5)])
        async with consumer(settings, handled) as member:
            expected = {
                *(b"single-%d" % n for n in range(8)),
                *(b"batch-%d" % n for n in range(5)),
                big,
            }
            await until(lambda: set(handled.by_body) == expected, "every message", 30)
            # The retry topic is new: its queue is taken at the next route poll, then the copy
            # appears after the 10 s of level 3.
            await until(lambda: handled.by_body[b"single-3"] == 2, "the retry", 70)
            again = handled.messages[-1]
            assert (again.topic, again.reconsume_times) == (TOPIC, 1)
            first = next(m for m in handled.messages if m.body == b"single-3")
            assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_msg_id
            assert max(n for body, n in handled.by_body.items() if body != b"single-3") == 1
            members = await admin.consumer_connection(broker.address, GROUP)
            assert [c.client_id for c in members.connection_set] == [member.client_id]
        table = await admin.all_offsets(broker.address)
        assert sum(table[f"{TOPIC}@{GROUP}"].values()) == 14
        assert table[f"%RETRY%{GROUP}@{GROUP}"] == {0: 1}


@pytest.mark.soak
async def test_a_lone_member_repeats_nothing_over_a_killed_apache_master(tmp_path: Path) -> None:
    with NamesrvProcess(tmp_path) as namesrv:
        broker = Broker("apache", tmp_path / "broker", namesrv.addr)
        broker.start()
        try:
            settings = ClientSettings(
                namesrv_addrs=(namesrv.addr,), client_ip="127.0.0.1", fail_inflight_on_eof=True
            )
            async with AdminClient([namesrv.addr]) as admin:
                await admin.create_topic(broker.address, TopicConfig(TOPIC, 4, 4))
            handled = Handled()
            async with Producer("shop", settings) as producer, consumer(settings, handled):
                await _send(producer, range(200))
                await until(lambda: len(handled.by_body) == 200, "the first half", 30)
                broker.kill()
                await asyncio.to_thread(broker.start)
                await _send(producer, range(200, 400))
                # Until the next heartbeat tick the broker refuses pulls with 24.
                await until(lambda: len(handled.by_body) == 400, "the second half", 60)
            assert set(handled.by_body.values()) == {1}
        finally:
            broker.process.dispose()


async def _send(producer: Producer, numbers: range) -> None:
    """Send each number; an error is answered by another try with the same object."""
    for number in numbers:
        message = Message(TOPIC, b"%d" % number)
        while True:
            try:
                await producer.send(message)
                break
            except FailbackError:
                await asyncio.sleep(0.2)
