"""A planned role switch over real brokers: who takes over, and what is re-consumed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.protocol.message import MessageExt
from failback.protocol.route import TopicConfig
from tests.integration.operator.real_pair import RealPair
from tests.support.common.polling import until
from tests.support.operator.switch_world import is_over

TOPIC, GROUP = "paid", "billing"
SENT, ENOUGH = 400, 150


class Handled:
    """A handler that notes queue and offset of what it gets."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        self.seen |= {(message.queue_id, message.queue_offset) for message in messages}
        await asyncio.sleep(0.01)
        return ConsumeResult.SUCCESS


def consumer(pair: RealPair, handler: Handled) -> PushConsumer:
    made = PushConsumer(GROUP, pair.settings(), handler, consume_from=ConsumeFrom.FIRST_OFFSET)
    made.subscribe(TOPIC)
    return made


async def consume_until(pair: RealPair, handled: Handled, number: int) -> None:
    async with consumer(pair, handled):
        await until(lambda: len(handled.seen) >= number, f"{number} messages", 60)


async def send(pair: RealPair, count: int) -> None:
    async with Producer("shop", pair.settings()) as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number))


async def stored_by(admin: AdminClient, address: str) -> dict[int, int]:
    table = await admin.all_offsets(address)
    return table.get(f"{TOPIC}@{GROUP}", {})


@pytest.mark.sample
@pytest.mark.few(1)
@pytest.mark.parametrize(("policy", "safe"), [("CopyMax", "Safe"), ("None", "OffsetPolicyNone")])
async def test_a_group_goes_on_where_the_new_master_says(
    tmp_path: Path, policy: str, safe: str
) -> None:
    with RealPair(tmp_path) as pair:
        async with AdminClient([pair.name_server]) as admin:
            await admin.create_topic(pair.address(0), TopicConfig(TOPIC, 4, 4))
            await send(pair, SENT)
            pair.ask(offsetPolicy=policy)
            await pair.drive(lambda at: at.step == "SyncOffsets")
            before, after = Handled(), Handled()
            await consume_until(pair, before, ENOUGH)
            committed = await stored_by(admin, pair.address(0))
            await pair.drive(is_over)
            assert (pair.phase, pair.reason("Safe")) == ("Complete", safe)
            assert [pair.role_of(number) for number in (0, 1)] == ["SLAVE", "ASYNC_MASTER"]
            start = await stored_by(admin, pair.address(1))
            await send(pair, 10)
            ends = {
                queue: await admin.max_offset(pair.address(1), TOPIC, queue) for queue in range(4)
            }
        assert sum(ends.values()) == SENT + 10, "the new master has every message"
        await consume_until(pair, after, SENT + 10 - sum(start.values()))
    assert after.seen == {
        (queue, offset) for queue in range(4) for offset in range(start.get(queue, 0), ends[queue])
    }
    if policy == "CopyMax":
        assert sum(committed.values()) >= ENOUGH / 2
        assert start == committed, "only what was handled and not committed is re-consumed"
    else:
        assert all(start.get(queue, 0) <= offset for queue, offset in committed.items())


@pytest.mark.soak
async def test_an_operator_that_dies_after_every_effect_still_switches_real_brokers(
    tmp_path: Path,
) -> None:
    with RealPair(tmp_path) as pair:
        async with AdminClient([pair.name_server]) as admin:
            await admin.create_topic(pair.address(0), TopicConfig(TOPIC, 4, 4))
            await send(pair, 40)
            await consume_until(pair, Handled(), 40)
            committed = await stored_by(admin, pair.address(0))
            pair.ask()
            await pair.drive(is_over, dying=True)
            assert (pair.phase, pair.reason("Safe")) == ("Complete", "Safe")
            assert [pair.role_of(number) for number in (0, 1)] == ["SLAVE", "ASYNC_MASTER"]
            assert await stored_by(admin, pair.address(1)) == committed
            assert (await admin.broker_config(pair.address(1)))["brokerPermission"] == "6"
        await send(pair, 10)
