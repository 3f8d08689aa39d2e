"""Where a newly taken queue begins: every answer of the store under every rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from failback.client.consumelog.hook import StartOffset
from failback.client.model import ConsumeFrom, retry_topic
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from tests.support.clients.client_lab import GROUP, TOPIC, Lab
from tests.support.clients.fake_cluster import FakeBroker
from tests.support.common.virtual_time import until, virtual_time

RETRY = retry_topic(GROUP)
LAST, FIRST, STAMP = ConsumeFrom.LAST_OFFSET, ConsumeFrom.FIRST_OFFSET, ConsumeFrom.TIMESTAMP
STORED = 3
END = 6

Setup = Callable[[FakeBroker], None]


def stored(master: FakeBroker) -> None:
    master.offsets[(GROUP, TOPIC, 0)] = STORED
    master.offsets[(GROUP, RETRY, 0)] = STORED


def not_found(master: FakeBroker) -> None:
    master.refuse(RequestCode.QUERY_CONSUMER_OFFSET, 22)


def busy(master: FakeBroker) -> None:
    master.refuse(RequestCode.QUERY_CONSUMER_OFFSET, 2)


def silent(master: FakeBroker) -> None:
    master.ignore(RequestCode.QUERY_CONSUMER_OFFSET)


async def begin_of(
    topic: str, consume_from: ConsumeFrom, setup: Setup, **switches: object
) -> StartOffset | None:
    """Start a member on a queue of six messages; how does it begin within the first round?"""
    async with Lab(**switches) as lab:
        (master,) = lab.pair()
        for name in (TOPIC, RETRY):
            lab.cluster.fill(master, name, 0, END)
        setup(master)
        member = await lab.start(consume_from=consume_from)
        await asyncio.sleep(15)  # two offset timeouts, and less than the next tick
        rows = member.hook.of("assign", queue=MessageQueue(topic, "broker-a", 0))
        assert len(rows) <= 1
        return rows[0].start if rows else None


@pytest.mark.parametrize("topic", [TOPIC, RETRY])
@pytest.mark.parametrize("consume_from", [LAST, FIRST, STAMP])
@virtual_time
async def test_a_stored_offset_wins_under_every_rule(topic: str, consume_from: ConsumeFrom) -> None:
    start = await begin_of(topic, consume_from, stored)
    assert start is not None
    assert (start.offset, start.source, start.broker_id, start.code) == (STORED, "STORE", 0, 0)


@pytest.mark.parametrize("answer", [not_found, busy])
@pytest.mark.parametrize(
    ("topic", "consume_from", "offset", "source", "branch"),
    [
        (TOPIC, LAST, END, "MAX", "LAST_MAX"),
        (RETRY, LAST, 0, "MIN", "LAST_RETRY_ZERO"),
        (TOPIC, FIRST, 0, "MIN", "FIRST_ZERO"),
        (RETRY, FIRST, 0, "MIN", "FIRST_ZERO"),
        (TOPIC, STAMP, 0, "TIMESTAMP", "TIMESTAMP_SEARCH"),
        (RETRY, STAMP, END, "MAX", "TIMESTAMP_RETRY_MAX"),
    ],
)
@virtual_time
async def test_any_error_code_means_no_offset_as_in_4_9(
    answer: Setup,
    topic: str,
    consume_from: ConsumeFrom,
    offset: int,
    source: str,
    branch: str,
) -> None:
    """H1: a broker that was only busy makes LAST skip the queue and FIRST replay it."""
    start = await begin_of(topic, consume_from, answer)
    assert start is not None
    assert (start.offset, start.source, start.branch) == (offset, source, branch)
    assert start.code == (22 if answer is not_found else 2)


@virtual_time
async def test_without_ref_bugs_only_not_found_means_no_offset() -> None:
    assert await begin_of(TOPIC, FIRST, busy, ref_bugs=False) is None
    start = await begin_of(TOPIC, FIRST, not_found, ref_bugs=False)
    assert start is not None
    assert start.offset == 0


@pytest.mark.parametrize("consume_from", [LAST, FIRST, STAMP])
@virtual_time
async def test_no_answer_leaves_the_queue_for_the_next_round(consume_from: ConsumeFrom) -> None:
    assert await begin_of(TOPIC, consume_from, silent) is None


@virtual_time
async def test_an_unknown_offset_is_asked_for_again_at_the_next_tick() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        silent(master)
        member = await lab.start()
        await asyncio.sleep(15)
        master.overrides.clear()
        stored(master)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        await until(lambda: member.hook.of("assign", queue=queue), within=25)
        assert member.hook.of("assign", queue=queue)[0].start.offset == STORED


@virtual_time
async def test_a_young_queue_begins_at_0_because_the_broker_says_so() -> None:
    """H2: no entry on a queue whose begin is still there is answered 0, under LAST too."""
    start = await begin_of(TOPIC, LAST, lambda master: None)
    assert start is not None
    assert (start.offset, start.source, start.code) == (0, "STORE", 0)


@pytest.mark.parametrize(("consume_from", "begins"), [(LAST, False), (FIRST, True), (STAMP, False)])
@virtual_time
async def test_with_only_the_slave_left_last_and_timestamp_wait_for_the_master(
    consume_from: ConsumeFrom, begins: bool
) -> None:
    async with Lab() as lab:
        master, slave = lab.pair(slaves=1)
        lab.cluster.fill(master, TOPIC, 0, END)
        not_found(slave)
        not_found(master)
        master.kill()
        member = await lab.start(consume_from=consume_from)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        await asyncio.sleep(50)
        assert bool(member.hook.of("assign", queue=queue)) is begins
        master.boot()
        await until(lambda: member.hook.of("assign", queue=queue), within=25)
        start = member.hook.of("assign", queue=queue)[0].start
        assert (start.broker_id, start.offset) == {
            LAST: (0, END),
            FIRST: (1, 0),
            STAMP: (0, 0),
        }[consume_from]


@virtual_time
async def test_without_a_master_the_slave_answers_with_its_own_table() -> None:
    async with Lab() as lab:
        master, slave = lab.pair(slaves=1)
        lab.cluster.fill(master, TOPIC, 0, END)
        master.offsets[(GROUP, TOPIC, 0)] = 5
        slave.offsets[(GROUP, TOPIC, 0)] = 2
        master.kill()
        member = await lab.start()
        queue = MessageQueue(TOPIC, "broker-a", 0)
        await until(lambda: member.hook.of("assign", queue=queue))
        start = member.hook.of("assign", queue=queue)[0].start
        assert (start.offset, start.broker_id, start.addr) == (2, 1, slave.addr)


@virtual_time
async def test_what_the_store_says_replaces_what_is_in_memory() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, END)
        stored(master)
        member = await lab.start(handler=lambda messages: None)  # nothing is ever finished
        queue = MessageQueue(TOPIC, "broker-a", 0)
        await until(lambda: queue in member.consumer.held_queues)
        store = member.consumer.offset_store
        store.update(queue, 99, increase_only=False)
        answer = await store.read_store(queue)
        assert (answer.value, store.memory(queue)) == (STORED, STORED)


@virtual_time
async def test_a_leftover_in_memory_does_not_pass_for_progress_of_the_new_life() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        not_found(master)
        member = await lab.start(handler=lambda messages: None, consume_from=FIRST)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        await until(lambda: queue in member.consumer.held_queues)
        await member.consumer._parts.rebalancer.remove(queue, "REMOVE", "RESET")  # type: ignore[union-attr]
        member.consumer.offset_store.update(queue, 99, increase_only=False)
        member.consumer.instance.wake_rebalance("test")
        await until(lambda: queue in member.consumer.held_queues)
        assert member.consumer.offset_store.memory(queue) == -1


@virtual_time
async def test_monotonic_start_does_not_fall_below_what_this_client_knew() -> None:
    async with Lab(monotonic_start=True) as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, END)
        first = await lab.start(2, consume_from=FIRST)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        await until(lambda: len(first.handler.got) == END)
        second = await lab.start(1)  # takes the queue
        await until(lambda: queue in second.consumer.held_queues)
        await until(lambda: queue not in first.consumer.held_queues)
        await second.consumer.shutdown()
        master.offsets[(GROUP, TOPIC, 0)] = 1  # the broker fell back meanwhile
        await until(lambda: queue in first.consumer.held_queues)
        start = first.hook.of("assign", queue=queue)[-1].start
        assert (start.offset, start.source, start.branch) == (END, "MEMORY", "LAST_KNOWN")
