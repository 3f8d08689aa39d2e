"""The pull loop: when it asks, whom it asks, and how it goes on after each outcome."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from failback.protocol.message import MessageExt
from tests.support.clients.client_lab import GROUP, TOPIC, Collector, Lab, Member, Row
from tests.support.clients.fake_cluster import FakeBroker, Request
from tests.support.common.virtual_time import network, now, until, virtual_time

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
KEY = (GROUP, TOPIC, 0)
FIRST = ConsumeFrom.FIRST_OFFSET


def pulls(broker: FakeBroker) -> list[Request]:
    return [r for r in broker.of(RequestCode.PULL_MESSAGE) if r.ext["topic"] == TOPIC]


def rows(member: Member, **columns: Any) -> list[Row]:
    return member.hook.of("pull", queue=QUEUE, **columns)


class Never:
    """A handler that never returns."""

    def __init__(self) -> None:
        self.got: list[int] = []

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        self.got += [message.queue_offset for message in messages]
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


# --- what is asked ------------------------------------------------------------------------


@virtual_time
async def test_a_pull_asks_for_32_messages_held_for_15_s_without_the_subscription() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        await lab.start(expression="a || b")
        await until(lambda: pulls(master))
        ext = pulls(master)[0].ext
        assert (ext["maxMsgNums"], ext["suspendTimeoutMillis"]) == ("32", "15000")
        assert (ext["expressionType"], ext["bname"], ext["queueId"]) == ("TAG", "broker-a", "0")
        assert "subscription" not in ext


@virtual_time
async def test_the_subscription_text_goes_along_when_asked_for() -> None:
    async with Lab(post_subscription_when_pull=True) as lab:
        (master,) = lab.pair()
        await lab.start(expression="a || b")
        await until(lambda: pulls(master))
        assert (pulls(master)[0].ext["subscription"], pulls(master)[0].ext["sysFlag"]) == (
            "a || b",
            "6",
        )


@virtual_time
async def test_messages_of_other_tags_are_sorted_out_after_a_hash_collision() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        for tag in ("Aa", "BB", None):  # "Aa" and "BB" have equal Java hashes
            master.store(TOPIC, 0, b"x", {"TAGS": tag} if tag else {})
        member = await lab.start(expression="Aa", consume_from=FIRST)
        await until(lambda: rows(member, result="FOUND"))
        await asyncio.sleep(1)
        assert [m.tags for _, m in member.handler.got] == ["Aa"]
        record = rows(member, result="FOUND")[0].record
        assert (record.count, record.first_offset, record.last_offset) == (3, 0, 2)


@virtual_time
async def test_messages_know_the_bounds_of_their_queue() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 40)
        member = await lab.start(consume_from=FIRST)
        await until(lambda: member.handler.got)
        properties = member.handler.got[0][1].properties
        assert (properties["MIN_OFFSET"], properties["MAX_OFFSET"]) == ("0", "40")


# --- whom ---------------------------------------------------------------------------------


@virtual_time
async def test_the_suggestion_of_every_answer_steers_the_next_pull() -> None:
    async with Lab() as lab:
        master, slave = lab.pair(slaves=1)
        lab.cluster.fill(master, TOPIC, 0, 96)
        master.suggest = 1
        member = await lab.start(consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 96)
        assert pulls(slave)
        # The slave suggests 0 again at once, the master 1: the loop swings between them.
        assert [row.broker_id for row in rows(member, result="FOUND")] == [0, 1, 0]


@virtual_time
async def test_an_error_answer_does_not_touch_the_suggestion() -> None:
    async with Lab() as lab:
        master, slave = lab.pair(slaves=1)
        slave.suggest = master.suggest = 1
        member = await lab.start(consume_from=FIRST)
        lab.cluster.fill(master, TOPIC, 0, 1)
        await until(lambda: pulls(slave))
        slave.refuse(RequestCode.PULL_MESSAGE, 1)
        lab.cluster.fill(master, TOPIC, 0, 1)  # wakes the held pull
        await asyncio.sleep(3)
        assert member.consumer.pull_service.which_node[QUEUE] == 1
        assert rows(member, code=1)
        assert {row.broker_id for row in rows(member, code=1)} == {1}


@virtual_time
async def test_a_suggested_broker_that_is_gone_gives_way_to_any() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        master.suggest = 7
        member = await lab.start(consume_from=FIRST)
        lab.cluster.fill(master, TOPIC, 0, 2)
        await until(lambda: len(member.handler.got) == 2)
        assert member.consumer.pull_service.which_node[QUEUE] == 7
        assert {row.broker_id for row in rows(member)} == {0}


# --- flow control -------------------------------------------------------------------------


@virtual_time
async def test_more_than_the_threshold_of_cached_messages_stops_pulling_for_50_ms() -> None:
    async with Lab(pull_threshold_for_queue=64) as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 500)
        member = await lab.start(handler=Never(), consume_from=FIRST)
        await asyncio.sleep(5)
        held = member.consumer.held_queues[QUEUE]
        # 64 is not above 64, so one more batch of 32 is pulled.
        assert len(held) == 96
        assert now() - held.last_pull <= 0.051  # attempts go on, so the queue never expires
        assert len(pulls(master)) == 3


@virtual_time
async def test_the_size_threshold_counts_whole_mebibytes() -> None:
    async with Lab(pull_threshold_mib_for_queue=1, pull_batch_size=1) as lab:
        (master,) = lab.pair()
        for _ in range(12):
            master.store(TOPIC, 0, bytes(512 * 1024))
        member = await lab.start(handler=Never(), consume_from=FIRST)
        await asyncio.sleep(5)
        # floor(bytes / MiB) > 1 needs two whole MiB: four bodies.
        assert len(member.consumer.held_queues[QUEUE]) == 4


@virtual_time
async def test_a_wide_span_of_offsets_stops_pulling() -> None:
    handler = Collector()

    async def stuck_at_0(message: MessageExt) -> ConsumeResult:
        if message.queue_offset == 0:
            await asyncio.Event().wait()
        return ConsumeResult.SUCCESS

    handler.answer = stuck_at_0
    async with Lab(consume_concurrently_max_span=95) as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 500)
        await lab.start(handler=handler, consume_from=FIRST)
        await asyncio.sleep(5)
        assert handler.got[-1][1].queue_offset == 127  # 95 is not above 95, 127 is


@virtual_time
async def test_thresholds_per_topic_are_divided_among_the_held_queues() -> None:
    async with Lab(pull_threshold_for_topic=30) as lab:
        lab.pair(queues=2)
        member = await lab.start()
        await until(lambda: len(member.consumer.held_queues) == 3)
        await asyncio.sleep(1)
        assert member.consumer._parts is not None
        assert member.consumer._parts.context.threshold_for_queue == 10


@virtual_time
async def test_a_paused_consumer_asks_again_every_second() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        member = await lab.start(consume_from=FIRST)
        await until(lambda: pulls(master))
        member.consumer.suspend()
        lab.cluster.fill(master, TOPIC, 0, 1)  # ends the held pull
        await until(lambda: len(member.handler.got) == 1)
        lab.cluster.fill(master, TOPIC, 0, 1)
        await asyncio.sleep(30)
        assert len(member.handler.got) == 1
        member.consumer.resume()
        await until(lambda: len(member.handler.got) == 2, within=1.1)


@virtual_time
async def test_a_queue_without_attempts_for_120_s_is_dropped_and_taken_anew() -> None:
    async with Lab() as lab:
        lab.pair()
        member = await lab.start(consume_from=FIRST)
        await until(lambda: QUEUE in member.consumer.held_queues)
        await member.consumer.pull_service.stop()  # a loop that died
        first = member.consumer.held_queues[QUEUE]
        await asyncio.sleep(119)
        assert member.consumer.held_queues[QUEUE] is first
        await until(lambda: member.hook.of("assign_end", queue=QUEUE), within=25)
        assert member.hook.of("assign_end", queue=QUEUE)[0].reason == "PULL_EXPIRED"
        await until(lambda: QUEUE in member.consumer.held_queues)
        assert member.consumer.held_queues[QUEUE].pqe > first.pqe


@virtual_time
async def test_errors_do_not_expire_a_queue() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        master.refuse(RequestCode.PULL_MESSAGE, 1)
        member = await lab.start(consume_from=FIRST)
        await asyncio.sleep(300)
        assert member.hook.of("assign_end") == []


# --- outcomes -----------------------------------------------------------------------------


@virtual_time
async def test_a_pull_without_news_is_held_and_repeated_at_once() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        member = await lab.start(consume_from=FIRST)
        await asyncio.sleep(46)
        begins = [r.time for r in pulls(master)]
        assert all(15 <= b - a < 15.01 for a, b in pairwise(begins))
        assert {row.result for row in rows(member)} == {"NO_NEW_MSG"}


@virtual_time
async def test_an_empty_queue_moves_its_offset_up_with_the_answers() -> None:
    """All messages of a stretch are filtered out at the broker: progress without deliveries."""
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 5)
        member = await lab.start(consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 5)
        store = member.consumer.offset_store
        master.overrides[RequestCode.PULL_MESSAGE] = lambda request: (
            request.response(
                20,
                ext={
                    "suggestWhichBrokerId": "0",
                    "nextBeginOffset": "50",
                    "minOffset": "0",
                    "maxOffset": "60",
                },
            )
            if request.ext_fields and request.ext_fields["queueOffset"] != "50"
            else None
        )
        lab.cluster.fill(master, TOPIC, 0, 1)
        await until(lambda: store.memory(QUEUE) == 50)


@virtual_time
async def test_an_unfinished_message_holds_the_offset_against_empty_answers() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 1)
        member = await lab.start(handler=Never(), consume_from=FIRST)
        await asyncio.sleep(20)
        assert rows(member, result="NO_NEW_MSG")
        assert member.consumer.offset_store.memory(QUEUE) == 0  # what the store had said


@pytest.mark.parametrize(("code", "delay"), [(1, 1.0), (24, 1.0), (215, 0.02)])
@virtual_time
async def test_error_codes_are_retried_after_a_second_and_flow_control_after_20_ms(
    code: int, delay: float
) -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        master.refuse(RequestCode.PULL_MESSAGE, code)
        member = await lab.start(consume_from=FIRST)
        await until(lambda: len(rows(member)) == 4)
        begins = [r.time for r in pulls(master)]
        assert all(delay <= b - a < delay + 0.01 for a, b in pairwise(begins[1:4]))
        assert {(row.result, row.code) for row in rows(member)} == {("ERR", code)}


@virtual_time
async def test_an_illegal_offset_drops_the_queue_and_moves_it_10_s_later_even_down() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 5)
        master.offsets[KEY] = 9  # the log lost its tail
        member = await lab.start(consume_from=FIRST)
        await until(lambda: rows(member, result="ILLEGAL"))
        t0 = now()
        held = member.consumer.held_queues[QUEUE]
        assert held.dropped
        assert master.offset(*KEY) == 9
        await until(lambda: master.offset(*KEY) == 5)
        assert 9.9 < now() - t0 < 10.1
        assert QUEUE not in member.consumer.held_queues
        assert [r.reason for r in member.hook.of("assign_end", queue=QUEUE)] == ["RESET"]
        fixed = member.hook.of("commit", queue=QUEUE, kind="ILLEGAL")
        assert [r.offset for r in fixed] == [5, 5]  # persisted, removed with another persist
        await until(lambda: QUEUE in member.consumer.held_queues, within=21)
        assert member.hook.of("assign", queue=QUEUE)[-1].start.offset == 5


@virtual_time
async def test_a_slave_that_is_behind_is_asked_in_a_hot_loop_until_a_backoff_is_set() -> None:
    async def pulls_in_one_second(**switches: Any) -> int:
        async with Lab(**switches) as lab:
            master, slave = lab.pair(slaves=1)
            lab.cluster.fill(master, TOPIC, 0, 5)
            slave.visible_end = 2
            slave.offsets[KEY] = 5
            master.kill()
            member = await lab.start(consume_from=FIRST)
            await until(lambda: pulls(slave))
            await asyncio.sleep(1)
            assert abs(member.consumer.pull_service.slave_behind - len(pulls(slave))) <= 1
            assert {row.result for row in rows(member)} == {"NO_MATCHED"}
            return len(pulls(slave))

    assert await pulls_in_one_second() > 300
    assert await pulls_in_one_second(slave_behind_backoff_ms=100) <= 11


@virtual_time
async def test_a_broker_that_has_not_seen_the_group_answers_24_once_a_second_until_the_tick() -> (
    None
):
    """Master back, no heartbeat yet: a second stall, though the client is connected."""
    async with Lab(fail_inflight_on_eof=True) as lab:
        master, _ = lab.pair(slaves=1)
        member = await lab.start(consume_from=FIRST)
        await asyncio.sleep(35 - now())
        master.kill()
        master.boot()
        await asyncio.sleep(60.9 - now())
        refused = [row.time for row in rows(member, code=24)]
        assert len(refused) >= 20
        assert all(1.0 <= b - a < 1.01 for a, b in pairwise(refused))
        await asyncio.sleep(3)  # the heartbeat tick is at 61 s
        assert rows(member)[-1].code != 24 or rows(member)[-1].time < 61.1
        assert master.members(GROUP)


# --- lost answers -------------------------------------------------------------------------


async def stall_after(*, reset: bool, **switches: Any) -> tuple[float, str]:
    """Kill the broker under a held pull: when does the pull fail, and as what?"""
    async with Lab(**switches) as lab:
        (master,) = lab.pair()
        member = await lab.start(consume_from=FIRST)
        await until(lambda: pulls(master))
        issued = pulls(master)[-1].time
        await asyncio.sleep(5)
        master.kill(reset=reset)
        # A refused connect is the next attempt's result; the one in flight is the first.
        await until(lambda: [r for r in rows(member) if r.result in ("TIMEOUT", "EOF")])
        failed = next(r for r in rows(member) if r.result in ("TIMEOUT", "EOF"))
        await until(lambda: rows(member, result="CONN"))
        again = rows(member, result="CONN")[0]
        assert 1.0 <= again.time - failed.time < 1.1
        return failed.time - issued, failed.result


@virtual_time
async def test_after_a_fin_a_pull_runs_into_its_timer_as_in_4_9() -> None:
    after, result = await stall_after(reset=False)
    assert 30.99 <= after <= 32  # counted from the broker's end of the wire
    assert result == "TIMEOUT"


@virtual_time
async def test_with_fail_inflight_on_eof_a_pull_fails_at_once() -> None:
    after, result = await stall_after(reset=False, fail_inflight_on_eof=True)
    assert 5 <= after < 5.1
    assert result == "EOF"


@virtual_time
async def test_after_a_reset_a_pull_fails_at_once_in_any_case() -> None:
    after, _ = await stall_after(reset=True)
    assert 5 <= after < 5.1


@pytest.mark.parametrize(("strict", "delayed"), [(True, True), (False, False)])
@virtual_time
async def test_one_pull_thread_lets_a_black_hole_delay_pulls_to_healthy_brokers(
    strict: bool, delayed: bool
) -> None:
    async with Lab(strict_single_thread=strict, fail_inflight_on_eof=True) as lab:
        (hole,) = lab.pair("broker-a")
        (healthy,) = lab.pair("broker-b")
        producer, _ = await lab.producer()
        handler = Collector()
        await lab.start(handler=handler, consume_from=FIRST)
        await asyncio.sleep(2)
        hole.kill(reset=True)
        lab.name_server.registered["broker-a"] = {0: hole.addr}  # the name server hasn't noticed
        network().swallow(hole.address)
        await asyncio.sleep(3)
        delays = []
        for number in range(20):
            begin = now()
            await producer.send(Message(TOPIC, b"x"), MessageQueue(TOPIC, "broker-b", 0))
            await until(lambda: len(handler.got) == number + 1)  # noqa: B023 - awaited here
            delays.append(now() - begin)
            await asyncio.sleep(0.3)
        assert (max(delays) > 1.0) is delayed
        assert healthy.requests
        network().swallow(hole.address, swallow=False)
