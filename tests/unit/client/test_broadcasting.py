"""BROADCASTING: all queues for every member, offsets in a local file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from failback.client.consumer.offset_store import read_offset_file, write_offset_file
from failback.client.model import ConsumeFrom
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from tests.support.clients.client_lab import GROUP, TOPIC, Lab
from tests.support.common.virtual_time import until, virtual_time

FIRST = ConsumeFrom.FIRST_OFFSET


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(TOPIC, "broker-a", queue_id)


@virtual_time
async def test_every_member_gets_every_message(tmp_path: Path) -> None:
    async with Lab(local_offset_store_dir=tmp_path) as lab:
        (master,) = lab.pair(queues=2)
        lab.cluster.fill(master, TOPIC, 0, 2)
        lab.cluster.fill(master, TOPIC, 1, 2)
        members = [
            await lab.start(number, consume_from=FIRST, model="BROADCASTING") for number in (1, 2)
        ]
        for member in members:
            await until(lambda: len(member.handler.got) == 4)  # noqa: B023 - awaited here
        assert master.of(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == []
        assert master.of(RequestCode.QUERY_CONSUMER_OFFSET) == []
        assert all(row.topic == TOPIC for row in members[0].hook.of("rebalance"))  # no retry topic


@virtual_time
async def test_offsets_go_to_the_file_and_a_restart_continues_from_it(tmp_path: Path) -> None:
    async with Lab(local_offset_store_dir=tmp_path) as lab:
        (master,) = lab.pair(queues=2)
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=FIRST, model="BROADCASTING")
        await until(lambda: len(member.handler.got) == 3)
        path = tmp_path / member.consumer.client_id / GROUP / "offsets.json"
        await until(lambda: path.exists(), within=11)
        assert read_offset_file(path)[queue(0)] == 3
        assert master.of(RequestCode.UPDATE_CONSUMER_OFFSET) == []
        commits = member.hook.of("commit", queue=queue(0))
        assert {r.kind for r in commits} == {"LOCAL_FILE"}
        await member.consumer.shutdown()
        lab.cluster.fill(master, TOPIC, 0, 2)
        again = await lab.start(consume_from=FIRST, model="BROADCASTING")
        await until(lambda: len(again.handler.got) == 2)
        assert again.handler.offsets() == [3, 4]
        assert again.hook.of("assign", queue=queue(0))[0].start.source == "STORE"


@virtual_time
async def test_entries_of_other_queues_in_the_file_survive(tmp_path: Path) -> None:
    async with Lab(local_offset_store_dir=tmp_path) as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 3)
        foreign = MessageQueue("elsewhere", "broker-z", 5)
        path = tmp_path / "10.1.0.1@m1" / GROUP / "offsets.json"
        write_offset_file(path, {foreign: 77})
        member = await lab.start(consume_from=FIRST, model="BROADCASTING")
        await asyncio.sleep(16)
        await member.consumer.shutdown()
        assert read_offset_file(path) == {foreign: 77, queue(0): 3}


@virtual_time
async def test_a_broadcasting_member_keeps_the_instance_name(tmp_path: Path) -> None:
    async with Lab(local_offset_store_dir=tmp_path) as lab:
        lab.pair()
        member = await lab.start(model="BROADCASTING", instance_name="DEFAULT")
        assert member.consumer.client_id == "10.1.0.1@DEFAULT"
        other = await lab.start(2, instance_name="DEFAULT")
        assert other.consumer.client_id != "10.1.0.2@DEFAULT"
        assert "#" in other.consumer.client_id


@virtual_time
async def test_a_queue_whose_broker_leaves_is_kept_in_the_file(tmp_path: Path) -> None:
    """Its offset is forgotten in memory, and read from the file when the queue comes back."""
    async with Lab(local_offset_store_dir=tmp_path) as lab:
        (a,), _ = lab.pair("broker-a"), lab.pair("broker-b")
        lab.cluster.fill(a, TOPIC, 0, 3)
        member = await lab.start(consume_from=FIRST, model="BROADCASTING")
        await until(lambda: len(member.handler.got) == 3)
        a.kill()
        await until(lambda: queue(0) not in member.consumer.held_queues, within=51)
        assert member.consumer.offset_store.memory(queue(0)) == -1
        a.boot()
        await until(lambda: queue(0) in member.consumer.held_queues, within=51)
        assert member.hook.of("assign", queue=queue(0))[-1].start.offset == 3
        assert len(member.handler.got) == 3
