"""The four statuses of a send, from a real store, disk and HA port; slaves are bare sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from failback.protocol.codes import RequestCode
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab, send_header
from tests.support.brokers.ha_pair import BareSlave, bare_slave
from tests.support.common.polling import until
from tests.support.net.ports import free_port_block

STRANGER = "192.0.2.7"
SEND_OK, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 10, 11, 12


@asynccontextmanager
async def replicating(root: Path, **settings: object) -> AsyncIterator[BrokerLab]:
    """Run a SYNC_MASTER with its HA port, its flushing and its deadlines."""
    lines = {"brokerRole": "SYNC_MASTER", "slaveTimeout": 300, "failbackDrainSeconds": 0}
    port = free_port_block(4) + 2
    lines |= {"listenPort": port, "failbackBindAddress": "127.0.0.1", **settings}
    async with broker_lab(root, **lines) as lab:
        controller, stop = lab.controller, asyncio.Event()
        controller.housekeeping.every("waiting answers", 20, 20, controller.gate.expire)
        ha = asyncio.create_task(controller.ha.run(stop))
        store = asyncio.create_task(controller.store.run(stop))
        chores = asyncio.create_task(controller.housekeeping.run())
        await controller.ha.listening.wait()
        try:
            yield lab
        finally:
            chores.cancel()
            stop.set()
            async with asyncio.timeout(30):
                await asyncio.gather(ha, store)


async def status(client: LabClient, properties: str = "WAIT\x01true") -> int:
    """Send one message and return the code of its answer, whenever that comes."""
    header = send_header(properties=properties)
    request = client.make(RequestCode.SEND_MESSAGE_V2, header, b"hello")
    client.feed(request.encode())
    async with asyncio.timeout(30):
        while (answer := client.find_answer(request)) is None:
            await client.turn()
            await asyncio.sleep(0.005)
    return answer.code


async def acknowledge(slave: BareSlave, start: int = 0) -> None:
    """Hold what comes and say so, until cancelled."""
    slave.report(start)
    while True:
        async with asyncio.timeout(60):
            offset, data = await slave.frame()
        slave.report(offset + len(data))


@asynccontextmanager
async def acknowledging(lab: BrokerLab, start: int = 0) -> AsyncIterator[None]:
    async with bare_slave(lab.controller.ha) as slave:
        task = asyncio.create_task(acknowledge(slave, start))
        await until(lambda: lab.controller.ha.connection_count, "the slave")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))


async def test_without_a_slave_the_message_is_stored_and_the_sender_told(tmp_path: Path) -> None:
    async with replicating(tmp_path) as lab:
        client = lab.connect()
        assert await status(client) == SLAVE_NOT_AVAILABLE
        assert await status(client, "WAIT\x01false") == SEND_OK
        assert lab.controller.store.max_queue_offset("TopicTest", 0) == 2


async def test_a_slave_that_acknowledges_makes_it_ok(tmp_path: Path) -> None:
    async with replicating(tmp_path, slaveTimeout=60_000) as lab, acknowledging(lab):
        client = lab.connect()
        assert [await status(client) for _ in range(5)] == [SEND_OK] * 5


async def test_a_slave_that_is_silent_costs_the_timeout(tmp_path: Path) -> None:
    async with replicating(tmp_path) as lab, bare_slave(lab.controller.ha) as slave:
        slave.report(0)
        await until(lambda: lab.controller.ha.connection_count, "the slave")
        client = lab.connect()
        assert await status(client) == FLUSH_SLAVE_TIMEOUT
        assert await status(client, "WAIT\x01false") == SEND_OK
        assert lab.controller.store.max_queue_offset("TopicTest", 0) == 2
        end = lab.controller.store.max_physical_offset
        await slave.frames_until(end)
        slave.report(end)
        await until(lambda: lab.controller.ha.push2slave_max_offset == end, "a late report")


async def test_one_of_several_slaves_is_enough(tmp_path: Path) -> None:
    async with (
        replicating(tmp_path, slaveTimeout=60_000) as lab,
        bare_slave(lab.controller.ha) as silent,
        acknowledging(lab),
    ):
        silent.report(0)
        await until(lambda: lab.controller.ha.connection_count == 2, "both slaves")
        assert await status(lab.connect()) == SEND_OK


async def test_a_slave_too_far_behind_counts_for_nothing(tmp_path: Path) -> None:
    async with replicating(tmp_path, haSlaveFallbehindMax=500) as lab:
        ha = lab.controller.ha
        client = lab.connect()
        async with bare_slave(ha) as slave:
            slave.report(0)
            await until(lambda: ha.connection_count, "the slave")
            assert await status(client) == FLUSH_SLAVE_TIMEOUT  # near enough to wait for
            for _ in range(5):
                await status(client, "WAIT\x01false")
            assert await status(client) == SLAVE_NOT_AVAILABLE
            slave.report(lab.controller.store.max_physical_offset)
            await until(lambda: ha.push2slave_max_offset > 0, "the acknowledgement")
            assert await status(client) == FLUSH_SLAVE_TIMEOUT


async def test_a_restarted_master_knows_of_no_slave_until_it_reports(tmp_path: Path) -> None:
    async with replicating(tmp_path, slaveTimeout=60_000) as lab, acknowledging(lab):
        assert await status(lab.connect()) == SEND_OK
        end = lab.controller.store.max_physical_offset
    async with replicating(tmp_path, haSlaveFallbehindMax=end + end // 2) as lab:
        assert lab.controller.ha.push2slave_max_offset == 0
        client = lab.connect()
        async with bare_slave(lab.controller.ha) as slave:
            await until(lambda: lab.controller.ha.connection_count, "the connection")
            assert await status(client) == SLAVE_NOT_AVAILABLE
            slave.report(lab.controller.store.max_physical_offset)
            await until(lambda: lab.controller.ha.push2slave_max_offset > 0, "the first report")
            assert await status(client) == FLUSH_SLAVE_TIMEOUT


async def test_a_peer_that_reports_what_no_log_has_acknowledges_nothing(tmp_path: Path) -> None:
    for number, (rules, expected) in enumerate(
        [("compat", FLUSH_SLAVE_TIMEOUT), ("guarded", SLAVE_NOT_AVAILABLE)]
    ):
        settings = {"failbackRules": rules, "slaveTimeout": 100}
        async with replicating(tmp_path / str(number), **settings) as lab:
            ha = lab.controller.ha
            async with bare_slave(ha) as stray:
                stray.report(10_000)
                await until(lambda ha=ha: ha.refused_reports, "the report")  # type: ignore[misc]
                assert ha.push2slave_max_offset == 0
                if rules == "guarded":
                    await stray.closed()
                    await until(lambda ha=ha: not ha.connection_count, "its end")  # type: ignore[misc]
                assert await status(lab.connect()) == expected


async def test_a_peer_that_may_not_replicate_is_closed_and_a_slave_is_served(
    tmp_path: Path,
) -> None:
    async with replicating(tmp_path, failbackHaFrom="10.1.0.0/16") as lab:
        ha = lab.controller.ha
        allowed = ha.config
        ha.config = dataclasses.replace(
            allowed, may_connect=lambda _: allowed.may_connect(STRANGER)
        )
        async with bare_slave(ha) as stray:
            await stray.closed()
            assert await status(lab.connect()) == SLAVE_NOT_AVAILABLE
        ha.config = allowed
        async with acknowledging(lab):
            assert await status(lab.connect()) == SEND_OK


@pytest.mark.parametrize(
    ("role", "expected"),
    [("ASYNC_MASTER", FLUSH_DISK_TIMEOUT), ("SYNC_MASTER", FLUSH_SLAVE_TIMEOUT)],
)
async def test_a_disk_that_does_not_answer_costs_its_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, expected: int
) -> None:
    """Where both are late, what is said of the slave counts."""
    works, sync = threading.Event(), os.fdatasync

    def slow(fd: int) -> None:
        works.wait(60)
        sync(fd)

    settings = {"brokerRole": role, "flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": 300}
    async with replicating(tmp_path, **settings) as lab, bare_slave(lab.controller.ha) as slave:
        slave.report(0)
        await until(lambda: lab.controller.ha.connection_count, "the slave")
        client = lab.connect()
        monkeypatch.setattr(os, "fdatasync", slow)
        try:
            assert await status(client) == expected
        finally:
            works.set()
        if role == "ASYNC_MASTER":
            async with asyncio.timeout(60):
                while await status(client) != SEND_OK:  # a slow disk is slow at times
                    pass
