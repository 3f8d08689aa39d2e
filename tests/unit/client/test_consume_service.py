"""Handlers and what follows from their answers: offsets, retries, discarded results."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from failback.client.model import Consumed, ConsumeFrom, ConsumeResult, retry_topic
from failback.client.remoting.settings import ClientSettings
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from failback.protocol.message import MessageExt, decode_properties
from tests.support.clients.client_lab import GROUP, TOPIC, Collector, Lab, Member
from tests.support.common.virtual_time import now, until, virtual_time

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
RETRY = MessageQueue(retry_topic(GROUP), "broker-a", 0)
FIRST = ConsumeFrom.FIRST_OFFSET
SUCCESS, LATER = ConsumeResult.SUCCESS, ConsumeResult.RECONSUME_LATER


def memory(member: Member, queue: MessageQueue = QUEUE) -> int:
    return member.consumer.offset_store.memory(queue)


@virtual_time
async def test_the_offset_follows_the_lowest_unfinished_message() -> None:
    gates = {offset: asyncio.Event() for offset in range(4)}
    handler = Collector()

    async def wait(message: MessageExt) -> ConsumeResult:
        await gates[message.queue_offset].wait()
        return SUCCESS

    handler.answer = wait
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 4)
        member = await lab.start(handler=handler, consume_from=FIRST)
        await until(lambda: len(handler.got) == 4)
        for offset, expected in ((2, 0), (0, 1), (3, 1), (1, 4)):
            gates[offset].set()
            await asyncio.sleep(0.1)
            assert memory(member) == expected
        ends = {row.did: row.remove_result for row in member.hook.of("deliver_end")}
        assert list(ends.values()) == [0, 1, 1, 4]


@virtual_time
async def test_at_most_as_many_handlers_run_as_there_are_threads() -> None:
    running = most = 0

    async def handler(messages: list[MessageExt]) -> ConsumeResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.5)
        running -= 1
        return SUCCESS

    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 30)
        member = await lab.start(handler=handler, consume_from=FIRST, consume_threads=3)
        await until(lambda: member.consumer.handled == 30)
        assert most == 3


@virtual_time
async def test_a_plain_function_is_a_handler_too() -> None:
    got: list[int] = []

    def handler(messages: list[MessageExt]) -> ConsumeResult:
        got.extend(message.queue_offset for message in messages)
        return SUCCESS

    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(handler=handler, consume_from=FIRST)
        await until(lambda: memory(member) == 3)
        assert got == [0, 1, 2]


@virtual_time
async def test_batches_and_ack_index() -> None:
    """Of a batch of four with ack index 1, the last two are re-consumed from the retry topic."""
    calls: list[list[int]] = []

    async def handler(messages: list[MessageExt]) -> Any:
        calls.append([message.queue_offset for message in messages])
        return Consumed(SUCCESS, ack_index=1 if len(messages) == 4 else None)

    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 5)
        member = await lab.start(
            handler=handler, consume_from=FIRST, consume_message_batch_max_size=4
        )
        await until(lambda: memory(member) == 5)
        assert calls == [[0, 1, 2, 3], [4]]
        sent = [(r.offset, r.path, r.ok) for r in member.hook.of("sendback")]
        assert sent == [(2, "BROKER", True), (3, "BROKER", True)]
        ends = [r.status for r in member.hook.of("deliver_end")]
        assert sorted(ends) == ["LATER"] * 2 + ["SUCCESS"] * 3


@pytest.mark.parametrize(
    ("answer", "status"), [(LATER, "LATER"), (None, "NULL"), (ValueError("no"), "EXC")]
)
@virtual_time
async def test_a_failed_message_comes_back_after_10_s_as_a_retry(answer: Any, status: str) -> None:
    handler = Collector()

    def reply(message: MessageExt) -> Any:
        if message.reconsume_times:
            return SUCCESS
        if isinstance(answer, Exception):
            raise answer
        return answer

    handler.answer = reply
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 1)
        member = await lab.start(handler=handler, consume_from=FIRST)
        await until(lambda: len(handler.got) == 2)
        (t0, first), (t1, again) = handler.got
        assert 10 <= t1 - t0 < 10.1
        assert (again.reconsume_times, again.topic) == (1, TOPIC)  # the original topic is shown
        assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_msg_id
        assert again.body == first.body
        begins = member.hook.of("deliver_begin")
        assert [row.queue for row in begins] == [QUEUE, RETRY]  # the log has the physical one
        assert [row.status for row in member.hook.of("deliver_end")] == [status, "SUCCESS"]
        await until(lambda: memory(member, RETRY) == 1)
        assert memory(member) == 1


@virtual_time
async def test_a_delay_level_of_minus_1_goes_to_the_dead_letter_queue() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 1)
        member = await lab.start(
            handler=lambda messages: Consumed(LATER, delay_level=-1), consume_from=FIRST
        )
        await until(lambda: memory(member) == 1)
        assert len(master.log.queue(f"%DLQ%{GROUP}", 0)) == 1


@virtual_time
async def test_the_result_of_a_queue_given_up_meanwhile_is_discarded() -> None:
    """Even a success: no offset, no send-back; the next owner handles the message again."""
    release = asyncio.Event()
    handler = Collector()

    async def wait(message: MessageExt) -> ConsumeResult:
        await release.wait()
        return SUCCESS if message.queue_offset % 2 else LATER

    handler.answer = wait
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 2)
        first = await lab.start(2, handler=handler, consume_from=FIRST)
        await until(lambda: len(handler.got) == 2)
        second = await lab.start(1, consume_from=FIRST)
        await until(lambda: len(second.handler.got) == 2)
        release.set()
        await asyncio.sleep(6)
        ends = first.hook.of("deliver_end")
        assert [(r.status, r.applied, r.remove_result) for r in ends] == [
            ("LATER", False, None),
            ("SUCCESS", False, None),
        ]
        assert first.hook.of("sendback") == []
        assert memory(first) == -1


@virtual_time
async def test_a_queue_dropped_before_the_handler_runs_is_skipped_silently() -> None:
    release = asyncio.Event()
    handler = Collector()

    async def wait(message: MessageExt) -> ConsumeResult:
        await release.wait()
        return SUCCESS

    handler.answer = wait
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 5)
        first = await lab.start(2, handler=handler, consume_from=FIRST, consume_threads=1)
        await until(lambda: len(handler.got) == 1)
        await lab.start(1, consume_from=FIRST)
        await until(lambda: QUEUE not in first.consumer.held_queues)
        release.set()
        await asyncio.sleep(5)
        assert len(handler.got) == 1


@virtual_time
async def test_when_send_back_fails_the_inner_producer_sends_a_copy() -> None:
    handler = Collector()
    handler.answer = lambda message: SUCCESS if message.reconsume_times else LATER
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 1)
        master.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, 1)
        member = await lab.start(handler=handler, consume_from=FIRST)
        await until(lambda: len(handler.got) == 2)
        (_, first), (_, again) = handler.got
        assert (again.reconsume_times, again.topic, again.body) == (1, TOPIC, first.body)
        assert "ORIGIN_MESSAGE_ID" not in again.properties  # wiped by the property copy
        assert again.properties["UNIQ_KEY"] == first.properties["UNIQ_KEY"]
        rows = [(r.path, r.ok, r.rt_next) for r in member.hook.of("sendback")]
        assert rows == [("BROKER", False, 1), ("PRODUCER", True, 1)]
        (send,) = master.of(RequestCode.SEND_MESSAGE_V2)
        assert (send.ext["a"], send.ext["b"]) == ("CLIENT_INNER_PRODUCER", retry_topic(GROUP))
        assert (send.ext["j"], send.ext["l"]) == ("1", "16")
        assert decode_properties(send.ext["i"])["DELAY"] == "3"
        assert memory(member) == 1


@virtual_time
async def test_when_both_ways_fail_the_message_is_retried_here_and_blocks_the_offset() -> None:
    handler = Collector()
    handler.answer = lambda message: (
        LATER if message.queue_offset == 0 and message.reconsume_times < 2 else SUCCESS
    )
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 2)
        for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
            master.refuse(code, 2)
        member = await lab.start(handler=handler, consume_from=FIRST)
        await until(lambda: len(handler.got) == 3)
        assert memory(member) == 0
        await until(lambda: len(handler.got) == 4)
        times = [round(t, 1) for t, m in handler.got if m.queue_offset == 0]
        assert [round(b - a, 1) for a, b in pairwise(times)] == [5.0, 5.0]
        last = handler.got[-1][1]
        assert last.reconsume_times == 2
        # The failed copy shares the original's property map, as in the reference.
        assert (last.properties["RETRY_TOPIC"], last.properties["DELAY"]) == (TOPIC, "4")
        assert not {"RECONSUME_TIME", "MAX_RECONSUME_TIMES"} & last.properties.keys()
        await until(lambda: memory(member) == 2)
        local = [r.rt_next for r in member.hook.of("sendback", path="LOCAL")]
        assert local == [1, 2]
        # The same copy in the same life of the queue: a retry, and no rollback.
        assert {row.pqe for row in member.hook.of("deliver_begin", queue=QUEUE)} == {
            member.hook.of("assign", queue=QUEUE)[0].pqe
        }


@virtual_time
async def test_a_queue_given_up_while_a_message_is_sent_back_keeps_no_offset() -> None:
    handler = Collector()
    handler.answer = lambda message: LATER
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 1)
        for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
            master.ignore(code)
        first = await lab.start(2, handler=handler, consume_from=FIRST)
        await until(lambda: master.of(RequestCode.CONSUMER_SEND_MSG_BACK))
        master.overrides.clear()
        await lab.start(1)
        await until(lambda: QUEUE not in first.consumer.held_queues)
        await asyncio.sleep(8)  # the send-back times out, the copy is sent
        assert first.hook.of("sendback", path="PRODUCER", ok=True)
        assert memory(first) == -1


@virtual_time
async def test_finishing_a_message_never_lowers_the_offset() -> None:
    release = asyncio.Event()
    handler = Collector()

    async def wait(message: MessageExt) -> ConsumeResult:
        await release.wait()
        return SUCCESS

    handler.answer = wait
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 1)
        member = await lab.start(handler=handler, consume_from=FIRST)
        await until(lambda: handler.got)
        member.consumer.offset_store.update(QUEUE, 100, increase_only=False)
        release.set()
        await until(lambda: member.hook.of("deliver_end"))
        assert memory(member) == 100


@virtual_time
async def test_without_a_known_master_send_back_goes_to_the_name_server_and_costs_5_s() -> None:
    handler = Collector()
    handler.answer = lambda message: LATER if not message.reconsume_times else SUCCESS
    async with Lab() as lab:
        master, _ = lab.pair(slaves=1)
        member = await lab.start(handler=handler, consume_from=FIRST)
        await until(lambda: QUEUE in member.consumer.held_queues)
        master.kill()
        await member.consumer.instance.poll_routes()
        lab.cluster.fill(master, TOPIC, 0, 1)
        await until(lambda: member.hook.of("sendback"), within=60)
        broker, producer = member.hook.of("sendback")[:2]
        assert (broker.path, broker.ok, broker.addr) == ("BROKER", False, None)
        assert broker.t1 - broker.t0 == pytest.approx(5e9, rel=0.01)
        assert (producer.path, producer.ok) == ("PRODUCER", False)
        assert lab.name_server.of(RequestCode.CONSUMER_SEND_MSG_BACK)
        # The way through a slave's queue is blocked; the local retry goes on every 5 s.
        assert memory(member) in (-1, 0)


@virtual_time
async def test_a_handler_that_runs_15_minutes_has_its_message_sent_back_meanwhile() -> None:
    """Level 3, to the host that stored it; the handler goes on and its success comes too late."""
    handler = Collector()

    async def slow(message: MessageExt) -> ConsumeResult:
        if not message.reconsume_times:
            await asyncio.sleep(40 * 60)
        return SUCCESS

    handler.answer = slow
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 20)
        member = await lab.start(handler=handler, consume_from=FIRST, consume_threads=30)
        await until(lambda: len(handler.got) == 20)
        await asyncio.sleep(31 * 60 - now())
        backs = master.of(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert len(backs) == 16  # heads per scan and queue
        assert {r.ext["delayLevel"] for r in backs} == {"3"}
        assert {round(r.time) for r in backs} == {30 * 60}
        assert {r.reason for r in member.hook.of("sendback")} == {"EXPIRE"}
        assert {r.addr for r in member.hook.of("sendback")} == {master.addr}
        assert len([m for _, m in handler.got if m.reconsume_times == 1]) == 16
        assert len(member.consumer.held_queues[QUEUE]) == 4
        assert memory(member) in (-1, 0)  # no offset moves here


@virtual_time
async def test_broadcasting_logs_failures_and_goes_on(tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("offsets")
    async with Lab(local_offset_store_dir=folder) as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 2)
        member = await lab.start(
            handler=lambda messages: LATER, consume_from=FIRST, model="BROADCASTING"
        )
        await until(lambda: memory(member) == 2)
        assert member.hook.of("sendback") == []
        assert [r.status for r in member.hook.of("deliver_end")] == ["LATER", "LATER"]


def test_settings_default_to_one_message_per_call_and_20_threads() -> None:
    settings = ClientSettings()
    assert (settings.consume_message_batch_max_size, settings.consume_threads) == (1, 20)
