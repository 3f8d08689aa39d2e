"""When, where and what a consumer commits."""

from __future__ import annotations

import asyncio

from failback.client.model import ConsumeFrom
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from tests.support.clients.client_lab import GROUP, TOPIC, Collector, Lab
from tests.support.clients.fake_cluster import FakeBroker
from tests.support.common.virtual_time import now, until, virtual_time

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
KEY = (GROUP, TOPIC, 0)


def one_queue(lab: Lab, slaves: int = 0) -> list[FakeBroker]:
    brokers = lab.cluster.add_pair("broker-a", slaves)
    lab.cluster.add_topic(TOPIC, ["broker-a"], 1)
    lab.cluster.add_group(GROUP, ["broker-a"])
    return brokers


@virtual_time
async def test_the_tick_commits_every_5_s_from_10_s_on_even_if_unchanged() -> None:
    async with Lab() as lab:
        (master,) = one_queue(lab)
        lab.cluster.fill(master, TOPIC, 0, 3)
        await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(26)
        ticks = [
            (round(t), o) for t, kind, key, o in master.commits if (kind, key) == ("COMMIT", KEY)
        ]
        assert ticks == [(10, 3), (15, 3), (20, 3), (25, 3)]
        assert all(r.is_oneway for r in master.of(RequestCode.UPDATE_CONSUMER_OFFSET))


@virtual_time
async def test_ack_commits_asks_for_an_answer() -> None:
    async with Lab(ack_commits=True) as lab:
        (master,) = one_queue(lab)
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(11)
        assert not any(r.is_oneway for r in master.of(RequestCode.UPDATE_CONSUMER_OFFSET))
        (row,) = member.hook.of("commit", kind="TIMER", queue=QUEUE)
        assert (row.offset, row.sent, row.result, row.broker_id) == (3, True, "OK", 0)


@virtual_time
async def test_pulls_to_the_master_carry_the_memory_offset_once_it_is_above_zero() -> None:
    async with Lab() as lab:
        (master,) = one_queue(lab)
        lab.cluster.fill(master, TOPIC, 0, 40)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(5)
        pulls = [r for r in master.of(RequestCode.PULL_MESSAGE) if r.ext["topic"] == TOPIC]
        assert (pulls[0].ext["queueOffset"], pulls[0].ext["sysFlag"]) == ("0", "2")
        assert (pulls[-1].ext["sysFlag"], pulls[-1].ext["commitOffset"]) == ("3", "40")
        assert [o for _, kind, key, o in master.commits if kind == "PULL" and key == KEY][-1] == 40
        rows = member.hook.of("commit", kind="PULL", queue=QUEUE)
        assert rows[-1].offset == 40
        assert all(row.sent and row.broker_id == 0 for row in rows)


@virtual_time
async def test_a_held_pull_that_wakes_up_does_not_commit_again() -> None:
    async with Lab() as lab:
        (master,) = one_queue(lab)
        lab.cluster.fill(master, TOPIC, 0, 2)
        await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(5)
        before = [c for c in master.commits if c[1] == "PULL" and c[2] == KEY]
        lab.cluster.fill(master, TOPIC, 0, 1)
        await asyncio.sleep(0.0006)  # the answer is on its way, the next pull isn't there yet
        assert [c for c in master.commits if c[1] == "PULL" and c[2] == KEY] == before


@virtual_time
async def test_pulls_to_a_slave_carry_no_commit() -> None:
    async with Lab() as lab:
        master, slave = one_queue(lab, slaves=1)
        lab.cluster.fill(master, TOPIC, 0, 3)
        master.suggest = 1
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(5)
        pulls = [r for r in slave.of(RequestCode.PULL_MESSAGE) if r.ext["topic"] == TOPIC]
        assert pulls
        assert all(r.ext["sysFlag"] == "2" for r in pulls)
        assert pulls[-1].ext["commitOffset"] == "3"  # the field is filled, the bit says ignore
        assert not [r for r in member.hook.of("pull", broker_id=1) if r.commit_bit]


@virtual_time
async def test_while_the_master_is_gone_every_commit_asks_for_the_route_and_goes_to_the_slave() -> (
    None
):
    async with Lab() as lab:
        master, slave = one_queue(lab, slaves=1)
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(12)
        master.kill()
        await member.consumer.instance.poll_routes()
        slave.requests.clear()
        lab.name_server.requests.clear()
        begin = now()
        await asyncio.sleep(15.1 - now() % 5)
        commits = [
            r for r in slave.of(RequestCode.UPDATE_CONSUMER_OFFSET) if r.ext["topic"] == TOPIC
        ]
        routes = [
            r.time
            for r in lab.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)
            if r.ext["topic"] == TOPIC
        ]
        assert [r.ext["commitOffset"] for r in commits] == ["3"] * 3
        for commit in commits:
            assert any(begin < t < commit.time < t + 0.1 for t in routes)


@virtual_time
async def test_the_tick_that_finds_the_master_back_commits_to_it() -> None:
    async with Lab() as lab:
        master, _ = one_queue(lab, slaves=1)
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(12)
        master.kill()
        await member.consumer.instance.poll_routes()
        await asyncio.sleep(20.5 - now())  # just after a tick
        master.boot(offsets={KEY: 1})
        assert master.offset(*KEY) == 1
        await asyncio.sleep(5)
        assert master.offset(*KEY) == 3
        last = member.hook.of("commit", kind="TIMER", queue=QUEUE)[-1]
        assert (last.broker_id, last.addr) == (0, master.addr)


@virtual_time
async def test_the_rule_of_4_9_2_takes_the_first_entry_and_asks_no_route() -> None:
    async with Lab(offset_broker_rule="admin_first_entry") as lab:
        master, slave = one_queue(lab, slaves=1)
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(12)
        master.kill()
        await member.consumer.instance.poll_routes()
        lab.name_server.requests.clear()
        master.boot(offsets={KEY: 1})
        await asyncio.sleep(29.9 - now())
        # The master is registered again, but only the poll at 30 s tells.
        assert lab.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC) == []
        assert master.offset(*KEY) == 1
        assert slave.offset(*KEY) == 3
        await asyncio.sleep(6)
        assert master.offset(*KEY) == 3


@virtual_time
async def test_a_tick_forgets_queues_that_are_not_held_without_sending_them() -> None:
    async with Lab() as lab:
        (master,) = one_queue(lab)
        member = await lab.start()
        await asyncio.sleep(6)
        foreign = MessageQueue(TOPIC, "broker-a", 7)
        member.consumer.offset_store.update(foreign, 99, increase_only=False)
        await asyncio.sleep(10)
        assert member.consumer.offset_store.memory(foreign) == -1
        assert (GROUP, TOPIC, 7) not in master.offsets


@virtual_time
async def test_a_queue_that_is_given_up_is_committed_then_forgotten() -> None:
    async with Lab() as lab:
        (master,) = one_queue(lab)
        lab.cluster.fill(master, TOPIC, 0, 3)
        first = await lab.start(2, consume_from=ConsumeFrom.FIRST_OFFSET)
        await until(lambda: len(first.handler.got) == 3)
        await lab.start(1)  # sorts first, so it gets the only queue
        await until(lambda: not first.consumer.held_queues.get(QUEUE))
        await until(lambda: first.hook.of("commit", kind="REMOVE", queue=QUEUE))
        (commit,) = first.hook.of("commit", kind="REMOVE", queue=QUEUE)
        (end,) = first.hook.of("assign_end", queue=QUEUE)
        assert (commit.offset, commit.sent, end.reason) == (3, True, "REBALANCE")
        assert first.consumer.offset_store.memory(QUEUE) == -1


@virtual_time
async def test_progress_is_forgotten_even_when_the_commit_fails() -> None:
    async with Lab() as lab:
        (master,) = one_queue(lab)
        lab.cluster.add_pair("broker-b")
        lab.cluster.add_topic(TOPIC, ["broker-a", "broker-b"], 1)
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await until(lambda: len(member.handler.got) == 3)
        await asyncio.sleep(2)
        master.kill()  # the last broker of this name: its queues leave the route
        await until(lambda: QUEUE not in member.consumer.held_queues, within=60)
        (commit,) = member.hook.of("commit", kind="REMOVE", queue=QUEUE)
        assert (commit.offset, commit.sent) == (3, False)
        assert member.consumer.offset_store.memory(QUEUE) == -1
        assert MessageQueue(TOPIC, "broker-b", 0) in member.consumer.held_queues


@virtual_time
async def test_a_lower_commit_overwrites_a_higher_one_at_the_broker() -> None:
    """The broker keeps what comes last; nothing in the client prevents it."""
    async with Lab() as lab:
        (master,) = one_queue(lab)
        lab.cluster.fill(master, TOPIC, 0, 5)
        master.offsets[KEY] = 4
        handler = Collector()
        member = await lab.start(handler=handler)
        await until(lambda: len(handler.got) == 1)
        assert handler.offsets() == [4]
        member.consumer.offset_store.update(QUEUE, 2, increase_only=False)
        await asyncio.sleep(11)
        assert master.offset(*KEY) == 2


@virtual_time
async def test_a_commit_is_noted_as_not_sent_when_the_broker_is_unreachable() -> None:
    async with Lab() as lab:
        (master,) = one_queue(lab)
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(8)
        master.kill()
        await asyncio.sleep(3)
        (row,) = member.hook.of("commit", kind="TIMER", queue=QUEUE)
        assert (row.sent, row.result, row.broker_id) == (False, "RemotingConnectError", 0)
        assert member.consumer.offset_store.memory(QUEUE) == 3
