"""Copies that are not there or are others: modes 12 to 14 and 26 of the failure modes' page."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from tests.faults.modes.mode_evidence import PATIENT_SECONDS, Bound, DiskCopy, again, until_in_file
from tests.faults.modes.mode_lab import ENGINES, ENGINES_SLOW, ModeLab
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import SCALE as PATIENCE
from tests.support.common.polling import until
from tests.support.java.apache import Broker

GROUP = "billing"


@pytest.mark.parametrize("lab", ENGINES_SLOW, indirect=True)
async def test_a_slave_ahead_of_its_restored_master_goes_blind_and_keeps_acknowledging(
    lab: ModeLab, tmp_path: Path
) -> None:
    kept, lost, new = 10, 5, 8
    master = lab.node(settings={"mappedFileSizeCommitLog": 1 << 20})
    slave = lab.slave_of(master, settings={"mappedFileSizeCommitLog": 1 << 20})
    await lab.start(master, slave)
    topic = await lab.new_topic(master)
    await lab.send(master, topic, kept, body_bytes=100)
    disk = DiskCopy(master, tmp_path / "disk")
    await lab.send(master, topic, lost, body_bytes=100)
    await lab.ends(slave, topic, kept + lost)
    slave_log_end = await log_end(lab, slave)
    master.kill()
    disk.restore()
    await lab.start(master)
    assert await lab.admin.max_offset(master.address, topic, 0) == kept

    # The first of these reaches over the slave's end, so what comes next begins within a record.
    await lab.send(master, topic, new, body_bytes=4_000)
    master_log_end = await log_end(lab, master)
    assert master_log_end > slave_log_end
    await lab.comes(lambda: log_end(lab, slave), master_log_end, "the slave's log")
    await lab.send(master, topic, 1)
    await lab.comes(lambda: log_end(lab, slave), await log_end(lab, master), "its growth")
    assert await lab.admin.max_offset(master.address, topic, 0) == kept + new + 1
    assert await lab.admin.max_offset(slave.address, topic, 0) == kept + lost


async def log_end(lab: ModeLab, broker: Broker) -> int:
    return int((await lab.admin.runtime_info(broker.address))["commitLogMaxOffset"])


@pytest.mark.parametrize("lab", ENGINES, indirect=True)
async def test_a_stray_peer_makes_acknowledgements_of_a_sync_master_vacuous(lab: ModeLab) -> None:
    master = lab.node(role="SYNC_MASTER")
    await lab.start(master)
    topic = await lab.new_topic(master)
    assert await code_of_send(lab, master, topic) == ResponseCode.SLAVE_NOT_AVAILABLE
    # A broker of Failback believes no report beyond its end: its sends wait for a true one.
    code = 0 if lab.engine == "apache" else ResponseCode.FLUSH_SLAVE_TIMEOUT
    async with peer_of(master, reports=1 << 40) as received:
        await lab.comes(lambda: code_of_send(lab, master, topic), code, "an answer beside the peer")
        assert await code_of_send(lab, master, topic) == code
        assert sum(received) == 0, "bytes of the log"
    await lab.comes(
        lambda: code_of_send(lab, master, topic), ResponseCode.SLAVE_NOT_AVAILABLE, "refusal"
    )

    # Mode 12: what was answered with "no slave" is stored all the same.
    end = await lab.admin.max_offset(master.address, topic, 0)
    assert end >= 4
    member = await lab.consume(GROUP, topic)
    await until(lambda: len(member.got) == end, "whatever the answer was", PATIENT_SECONDS)


async def test_a_guarded_sync_master_refuses_the_stray_peer(lab: ModeLab) -> None:
    master = lab.node(role="SYNC_MASTER", settings={"failbackGuardReplication": "true"})
    await lab.start(master)
    topic = await lab.new_topic(master)
    async with peer_of(master, reports=1 << 40) as received:
        await until(lambda: received == [-1], "the end of its connection", PATIENT_SECONDS)
        assert await code_of_send(lab, master, topic) == ResponseCode.SLAVE_NOT_AVAILABLE


async def code_of_send(lab: ModeLab, broker: Broker, topic: str) -> int:
    request = RemotingCommand.request(
        RequestCode.SEND_MESSAGE_V2, send_header(topic=topic), b"replicated?"
    )
    return (await lab.client.invoke(broker.address, request, 10_000 * PATIENCE)).code


@asynccontextmanager
async def peer_of(master: Broker, reports: int) -> AsyncIterator[list[int]]:
    """Connect to the HA port and report an offset; yields the size of each frame that comes.

    A connection that the master ends shows as -1.
    """
    received: list[int] = []
    reader, writer = await asyncio.open_connection(master.ip, master.port + 1)
    writer.write(struct.pack(">q", reports))

    async def read() -> None:
        try:
            while True:
                _, size = struct.unpack(">qi", await reader.readexactly(12))
                await reader.readexactly(size)
                received.append(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            received.append(-1)

    task = asyncio.create_task(read())
    try:
        yield received
    finally:
        task.cancel()
        await asyncio.wait([task])
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_an_old_master_takes_its_group_back_to_where_it_left(lab: ModeLab) -> None:
    """Roles are swapped by hand and back again: the old master's files are of the day it left."""
    then, sent = 10, 30
    old = lab.node()
    new = lab.slave_of(old)
    await lab.start(old, new)
    topic = await lab.new_topic(old)
    bodies = await lab.send(old, topic, then)
    first = await lab.consume(GROUP, topic)
    await first.gets(bodies)
    await until_in_file(old, GROUP, topic, then)
    await first.stop()
    bodies += await lab.send(old, topic, sent - then)
    await lab.topic_is_at(new, topic)
    await lab.ends(new, topic, sent)
    await lab.offset_is(new, GROUP, topic, then)
    old.kill()
    new.stop()
    new.role, new.broker_id = "ASYNC_MASTER", 0
    await lab.start(new)
    second = await lab.consume(GROUP, topic)
    await second.gets(bodies[then:])
    assert again(first, second) == 0
    await second.stop()
    new.stop()

    await lab.start(old)
    third = await lab.consume(GROUP, topic)
    await third.gets(bodies[then:])
    assert third.start.offset == then
    assert again(first, second, third) == sent - then
    Bound(26, "all that was consumed since it left", sent - then).holds(again(first, second, third))
