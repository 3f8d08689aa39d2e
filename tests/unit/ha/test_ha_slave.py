"""A slave's HA client, fed by a master in the hands of the test."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.support.brokers.fake_log import FakeLog
from tests.support.brokers.ha_pair import FAST, bare_master, running, slave_of
from tests.support.common.polling import until

FILE = 1000
SLOW = replace(FAST, mapped_file_bytes=FILE, heartbeat_ms=30_000)
"""No timer reports within a test."""

PATIENT = replace(SLOW, reconnect_ms=60_000)
"""A connection within a test is made at once or not at all."""


async def test_the_first_report_goes_out_at_once() -> None:
    log = FakeLog(FILE, data=b"x" * 120)
    async with bare_master() as master, running(log, slave_of(master.address, SLOW)):
        side = await master.accept()
        assert await side.report() == 120


async def test_what_arrives_is_appended_and_acknowledged() -> None:
    log = FakeLog(FILE)
    async with bare_master() as master, running(log, slave_of(master.address, SLOW)):
        side = await master.accept()
        assert await side.report() == 0
        side.send(2000, b"")  # the heartbeat of a master that has nothing in its last file yet
        side.send(2000, b"a" * 700)
        assert await side.report() == 2700
        side.send(2700, b"b" * 300)
        assert await side.report() == 3000
        side.send(3000, b"c")
        assert await side.report() == 3001
    assert (log.start, bytes(log.data)) == (2000, b"a" * 700 + b"b" * 300 + b"c")


async def test_one_read_is_one_append_and_one_acknowledgement() -> None:
    log = FakeLog(FILE)
    async with bare_master() as master, running(log, slave_of(master.address, SLOW)):
        side = await master.accept()
        await side.report()
        frames = [(100 * n).to_bytes(8, "big") + (100).to_bytes(4, "big") for n in range(5)]
        side.writer.write(b"".join(header + b"x" * 100 for header in frames))
        assert await side.report() == 500
    assert log.appends == [(0, 500)]


async def test_a_slave_reports_on_a_timer_when_nothing_comes() -> None:
    log = FakeLog(FILE, data=b"x" * 7)
    quick = replace(SLOW, heartbeat_ms=30)
    async with bare_master() as master, running(log, slave_of(master.address, quick)):
        side = await master.accept()
        assert [await side.report() for _ in range(3)] == [7, 7, 7]


async def test_heartbeats_are_not_acknowledged_but_checked() -> None:
    log = FakeLog(FILE, data=b"x" * 100)
    async with bare_master() as master, running(log, slave_of(master.address, SLOW)):
        side = await master.accept()
        await side.report()
        side.send(100, b"")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await side.reader.read(1)
        side.send(100, b"y")
        assert await side.report() == 101
        side.send(100, b"")
        await side.closed()


async def test_a_frame_for_another_offset_ends_in_a_reconnect_at_once() -> None:
    log = FakeLog(FILE)
    async with bare_master() as master, running(log, slave_of(master.address, PATIENT)):
        side = await master.accept()
        await side.report()
        side.send(0, b"abc")
        assert await side.report() == 3
        side.send(5, b"gap")
        await side.closed()
        side = await master.accept()
        assert await side.report() == 3
        side.send(3, b"def")
        assert await side.report() == 6
    assert bytes(log.data) == b"abcdef"


async def test_a_master_that_closes_without_data_is_not_hammered() -> None:
    log = FakeLog(FILE, data=b"x")
    async with bare_master() as master, running(log, slave_of(master.address, PATIENT)) as slave:
        (await master.accept()).writer.close()
        await until(lambda: not slave.client.connected, "the end of the connection")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await master.connections.get()


async def test_a_broken_connection_in_the_middle_of_a_frame_loses_nothing() -> None:
    log = FakeLog(FILE)
    async with bare_master() as master, running(log, slave_of(master.address, SLOW)):
        side = await master.accept()
        await side.report()
        side.writer.write((0).to_bytes(8, "big") + (100).to_bytes(4, "big") + b"a" * 60)
        assert await side.report() == 60
        side.writer.close()
        side = await master.accept()
        assert await side.report() == 60
        side.send(60, b"b" * 40)
        assert await side.report() == 100
    assert bytes(log.data) == b"a" * 60 + b"b" * 40


async def test_a_full_disk_closes_and_later_goes_on() -> None:
    log = FakeLog(FILE)
    log.full_at = 10
    async with bare_master() as master, running(log, slave_of(master.address, SLOW)):
        side = await master.accept()
        await side.report()
        side.send(0, b"x" * 20)
        await side.closed()
        log.full_at = None
        side = await master.accept()
        assert await side.report() == 0
        side.send(0, b"x" * 20)
        assert await side.report() == 20


async def test_a_slave_without_an_address_connects_when_it_learns_one() -> None:
    log = FakeLog(FILE)
    config = replace(SLOW, role="SLAVE", reconnect_ms=60_000)
    async with bare_master() as master, running(log, config) as slave:
        await asyncio.sleep(0)
        assert not slave.client.connected
        slave.update_master_address(master.address)
        assert await (await master.accept()).report() == 0


async def test_a_new_address_does_not_break_an_open_connection() -> None:
    log = FakeLog(FILE)
    async with (
        bare_master() as old,
        bare_master() as new,
        running(log, slave_of(old.address, SLOW)) as slave,
    ):
        side = await old.accept()
        assert await side.report() == 0
        slave.update_master_address(new.address)
        side.send(0, b"x")
        assert await side.report() == 1
        side.writer.close()
        assert await (await new.accept()).report() == 1


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:80", "nonsense"])
async def test_an_unreachable_master_is_tried_again(address: str) -> None:
    log = FakeLog(FILE)
    config = replace(slave_of(address, SLOW), reconnect_ms=10)
    async with bare_master() as master, running(log, config) as slave:
        await asyncio.sleep(0.05)
        slave.update_master_address(master.address)
        assert await (await master.accept()).report() == 0


async def test_a_slave_listens_too() -> None:
    async with running(FakeLog(FILE), replace(SLOW, role="SLAVE")) as slave:
        reader, writer = await asyncio.open_connection("127.0.0.1", slave.bound_port)
        writer.write((0).to_bytes(8, "big"))
        await until(lambda: slave.connection_count == 1, "the connection")
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""


async def test_a_silent_master_is_not_given_up() -> None:
    """4.9.8 counts from its own last report, which it sends all the time, so it never ends this."""
    log = FakeLog(FILE, data=b"x" * 7)
    quick = replace(SLOW, heartbeat_ms=20, housekeeping_ms=60)
    async with bare_master() as master, running(log, slave_of(master.address, quick)) as slave:
        side = await master.accept()
        assert [await side.report() for _ in range(12)] == [7] * 12  # three times that interval
        assert slave.client.connected
        assert master.connections.empty()


async def test_stopping_closes_the_connection_to_the_master() -> None:
    async with bare_master() as master, running(FakeLog(FILE), slave_of(master.address, SLOW)):
        side = await master.accept()
        await side.report()
    await side.closed()
