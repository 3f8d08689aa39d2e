"""Rebalance: who is asked, what is taken and given up, and what a partial view does."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from failback.client.model import ConsumeFrom
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from tests.support.clients.client_lab import GROUP, TOPIC, Lab, Member
from tests.support.common.virtual_time import now, until, virtual_time

FIRST = ConsumeFrom.FIRST_OFFSET


def held(member: Member) -> set[int]:
    """The queue ids of the topic that a member holds."""
    return {q.queue_id for q in member.consumer.held_queues if q.topic == TOPIC}


@virtual_time
async def test_two_members_split_the_queues_and_the_rest_is_taken_over() -> None:
    async with Lab() as lab:
        lab.pair(queues=4)
        first = await lab.start(1)
        await until(lambda: held(first) == {0, 1, 2, 3})
        assert now() < 1  # the first assignment needs one round of calls, no tick
        second = await lab.start(2)
        await until(lambda: held(first) == {0, 1} and held(second) == {2, 3}, within=1)
        await first.consumer.shutdown()
        await until(lambda: held(second) == {0, 1, 2, 3}, within=1)  # told by 40


@virtual_time
async def test_a_crashed_member_is_replaced_when_its_connection_ends() -> None:
    async with Lab() as lab:
        lab.pair(queues=4)
        first, second = await lab.start(1), await lab.start(2)
        await until(lambda: held(second) == {2, 3})
        await first.consumer.instance.remoting.close()  # what the kernel does for a dead process
        await until(lambda: held(second) == {0, 1, 2, 3}, within=1)


@virtual_time
async def test_notices_in_bulk_cause_one_more_run() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        member = await lab.start()
        await asyncio.sleep(5)
        before = len(member.hook.of("rebalance", topic=TOPIC))
        for _ in range(10):
            command = RemotingCommand.request(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, oneway=True, ext={"consumerGroup": GROUP}
            )
            master.push(member.consumer.client_id, command)
        await asyncio.sleep(1)
        runs = member.hook.of("rebalance", topic=TOPIC)[before:]
        assert 1 <= len(runs) <= 2
        assert {run.trigger for run in runs} == {"notify"}


@virtual_time
async def test_a_round_comes_every_20_s_by_itself() -> None:
    async with Lab() as lab:
        lab.pair()
        member = await lab.start()
        await asyncio.sleep(65)
        ticks = [round(r.time) for r in member.hook.of("rebalance", topic=TOPIC, trigger="tick")]
        assert ticks == [20, 40, 60]
        row = member.hook.of("rebalance", topic=TOPIC)[-1]
        assert (row.members, row.result) == ([member.consumer.client_id], 1)
        assert row.answered_by == "10.0.0.1:10911"


@virtual_time
async def test_own_id_missing_from_the_list_gives_up_every_queue() -> None:
    async with Lab() as lab:
        (master,) = lab.pair(queues=4)
        member = await lab.start()
        await until(lambda: len(held(member)) == 4)
        master.overrides[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda request: request.response(
            0, body=b'{"consumerIdList":["10.9.9.9@other"]}'
        )
        await until(lambda: not member.consumer.held_queues, within=21)
        assert {r.reason for r in member.hook.of("assign_end")} == {"REBALANCE"}


@pytest.mark.parametrize("answer", ["error", "empty", "silence"])
@virtual_time
async def test_an_unknown_member_list_changes_nothing(answer: str) -> None:
    async with Lab() as lab:
        (master,) = lab.pair(queues=4)
        member = await lab.start()
        await until(lambda: len(held(member)) == 4)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        if answer == "error":
            master.refuse(code, 1)
        elif answer == "silence":
            master.ignore(code)
        else:
            master.overrides[code] = lambda request: request.response(
                0, body=b'{"consumerIdList":[]}'
            )
        await asyncio.sleep(45)
        assert len(held(member)) == 4
        assert member.hook.of("assign_end") == []
        assert member.hook.of("rebalance", topic=TOPIC)[-1].members == []


@virtual_time
async def test_a_changed_assignment_raises_the_version_and_heartbeats_at_once() -> None:
    async with Lab() as lab:
        (master,) = lab.pair(queues=4)
        member = await lab.start()
        await until(lambda: len(held(member)) == 4)
        await asyncio.sleep(0.5)
        beats = [r for r in master.of(RequestCode.HEART_BEAT) if b"billing" in r.body]
        # At the start, and after each of the two topics' first assignments.
        assert len(beats) == 3
        versions = master.groups[GROUP].versions
        assert versions[TOPIC] > 1_700_000_000_000


@virtual_time
async def test_an_unsubscribed_topic_is_dropped_without_a_commit() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=FIRST)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        await until(lambda: len(member.handler.got) == 3)
        member.consumer.unsubscribe(TOPIC)
        await until(lambda: queue not in member.consumer.held_queues, within=21)
        assert member.hook.of("assign_end", queue=queue)[0].reason == "UNSUBSCRIBE"
        assert member.hook.of("commit", kind="REMOVE") == []
        assert member.consumer.offset_store.memory(queue) == 3


@virtual_time
async def test_a_topic_subscribed_later_is_consumed_too() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.add_topic("refunds", ["broker-a"], 1)
        lab.cluster.fill(master, "refunds", 0, 2)
        member = await lab.start(consume_from=FIRST)
        await asyncio.sleep(5)
        member.consumer.subscribe("refunds")
        await until(lambda: len(member.handler.got) == 2, within=55)


async def consume_steadily(
    lab: Lab, members: int, phases: list[float]
) -> tuple[list[Member], asyncio.Task[None]]:
    """Members that start at the given times, and a producer of 20 messages a second."""
    group = []
    for number in range(members):
        await asyncio.sleep(max(0, phases[number] - now()))
        group.append(await lab.start(number + 1, consume_from=FIRST))
    producer, _ = await lab.producer()

    async def produce() -> None:
        number = 0
        while True:
            queue = MessageQueue(TOPIC, "broker-a", number % 4)
            lab.cluster.brokers[0].store(TOPIC, queue.queue_id, b"%d" % number)
            number += 1
            await asyncio.sleep(0.05)

    assert producer
    return group, asyncio.create_task(produce())


def repeats(members: list[Member]) -> Counter[tuple[int, int]]:
    """How often each copy (queue id, offset) was delivered."""
    return Counter(
        (message.queue_id, message.queue_offset)
        for member in members
        for _, message in member.handler.got
    )


@virtual_time
async def test_one_member_repeats_nothing_over_a_master_restart_with_old_offsets() -> None:
    """The list of one is right, and memory wins over the file."""
    async with Lab(fail_inflight_on_eof=True) as lab:
        master, _ = lab.pair(slaves=1, queues=4)
        (member,), producing = await consume_steadily(lab, 1, [0])
        await asyncio.sleep(40 - now())
        file = {key: max(0, offset - 100) for key, offset in master.offsets.items()}
        master.kill()
        await asyncio.sleep(40)
        master.boot(offsets=file)
        await asyncio.sleep(100)
        producing.cancel()
        delivered = repeats([member])
        assert len(delivered) > 2000
        assert max(delivered.values()) == 1


@virtual_time
async def test_a_partial_view_after_a_restart_makes_the_first_member_claim_all() -> None:
    """Two members, master back with empty member lists and a file of long ago. The one whose
    heartbeat arrives first sees itself alone and claims every queue from what the broker holds.
    The other never sees itself missing if its own heartbeat precedes its rebalance tick; else it
    gives up, commits, heartbeats, and the split is restored."""
    async with Lab(fail_inflight_on_eof=True) as lab:
        (master,) = lab.pair(queues=4)
        members, producing = await consume_steadily(lab, 2, [0, 12])
        await asyncio.sleep(80 - now())
        assert [sorted(held(member)) for member in members] == [[0, 1], [2, 3]]
        assert max(repeats(members).values()) == 1
        file = {key: max(0, offset - 100) for key, offset in master.offsets.items()}
        await asyncio.sleep(87 - now())
        before = {q: max(o for (i, o) in repeats(members) if i == q) for q in range(4)}
        master.kill()
        # Heartbeats: member 1 at 91, 121, ...; member 2 at 103, 133, ... Back just before 91,
        # and before anyone's commit tick could tell the broker better.
        await asyncio.sleep(90.9 - now())
        master.boot(offsets=file)
        await asyncio.sleep(150 - now())
        producing.cancel()
        await asyncio.sleep(1)
        claims = [
            row
            for row in members[0].hook.of("assign")
            if row.queue.topic == TOPIC and row.time > 90
        ]
        assert {row.queue.queue_id for row in claims} == {2, 3}
        partial = [
            row
            for row in members[0].hook.of("rebalance", topic=TOPIC)
            if row.time > 90 and len(row.members) == 1
        ]
        assert partial
        delivered = repeats(members)
        twice = {copy for copy, times in delivered.items() if times > 1}
        # Queues 0 and 1 stayed with their owner, whose memory won.
        assert twice
        assert {queue_id for queue_id, _ in twice} == {2, 3}
        # The claim began at the file's value or at the owner's commit; never above the frontier.
        for row in claims:
            key = (GROUP, TOPIC, row.queue.queue_id)
            assert file[key] <= row.start.offset <= before[row.queue.queue_id] + 100
        # In the end everybody holds its share again and nothing was lost.
        assert [sorted(held(member)) for member in members] == [[0, 1], [2, 3]]
        for queue_id in range(4):
            offsets = {o for q, o in delivered if q == queue_id}
            assert offsets == set(range(max(offsets) + 1))


@virtual_time
async def test_a_claimants_lower_commit_after_the_owners_is_delivered_a_third_time() -> None:
    """ROLLBACK_OVERWRITTEN: the broker keeps what arrives last."""
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 10)
        key = (GROUP, TOPIC, 0)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        owner = await lab.start(1, consume_from=FIRST)
        await until(lambda: len(owner.handler.got) == 10)
        await until(lambda: master.offset(*key) == 10)
        master.overrides[RequestCode.QUERY_CONSUMER_OFFSET] = lambda request: request.response(
            0, ext={"offset": "4"}
        )
        claimant = await lab.start(0, consume_from=FIRST)  # sorts first, takes the queue
        await until(lambda: len(claimant.handler.got) >= 6)
        master.overrides.clear()
        await claimant.consumer.shutdown()
        master.offsets[key] = 6  # a late, lower commit overwrote it
        await until(lambda: queue in owner.consumer.held_queues)
        await asyncio.sleep(1)
        delivered = repeats([owner, claimant])
        assert delivered[(0, 9)] == 3
        assert delivered[(0, 3)] == 1


@virtual_time
async def test_a_paused_group_keeps_its_queues() -> None:
    async with Lab() as lab:
        lab.pair(queues=4)
        first = await lab.start(1)
        await until(lambda: len(held(first)) == 4)
        first.consumer.suspend()
        await lab.start(2)
        await asyncio.sleep(30)
        assert len(held(first)) == 4
        first.consumer.resume()
        await until(lambda: held(first) == {0, 1}, within=1)
