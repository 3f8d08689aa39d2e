"""A master's HA port, spoken to over bare sockets."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from failback.broker.ha.config import HaConfig
from failback.broker.ha.connection import HaConnection
from failback.broker.ha.service import MOST_CONNECTIONS, HaService
from tests.support.brokers.fake_log import FakeLog
from tests.support.brokers.ha_pair import FAST, bare_slave, running
from tests.support.common.polling import until

FILE = 1000
SMALL = replace(FAST, mapped_file_bytes=FILE)


def body(first: int, end: int) -> bytes:
    """The log's bytes: each tells its own offset."""
    return bytes(offset % 251 for offset in range(first, end))


def log_of(end: int, start: int = 0, file_bytes: int = FILE) -> FakeLog:
    return FakeLog(file_bytes, start=start, data=body(start, end))


async def test_the_golden_exchange_of_an_empty_slave() -> None:
    gib = 1 << 30
    record = bytes(range(201))
    log = FakeLog(gib, start=gib, data=record)
    async with running(log, replace(FAST, heartbeat_ms=80)) as master, bare_slave(master) as slave:
        slave.writer.write(bytes.fromhex("0000000000000000"))
        sent = await slave.reader.readexactly(12 + 201 + 12)
        assert sent[:12].hex() == "0000000040000000000000c9"
        assert sent[12:213] == record
        assert sent[213:].hex() == "00000000400000c900000000"
        slave.writer.write(bytes.fromhex("00000000400000c9"))
        await until(lambda: master.push2slave_max_offset == gib + 201, "the acknowledgement")


async def test_nothing_is_sent_before_the_first_report() -> None:
    async with running(log_of(500), SMALL) as master, bare_slave(master) as slave:
        await until(lambda: master.connection_count == 1, "the connection")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):  # five heartbeat intervals
                await slave.reader.read(1)


async def test_a_slave_gets_the_log_from_where_it_asked_in_frames_within_one_file() -> None:
    config = replace(SMALL, batch_bytes=300)
    async with running(log_of(2500), config) as master, bare_slave(master) as slave:
        slave.report(450)
        frames = await slave.frames_until(2500)
    assert [(offset, len(data)) for offset, data in frames] == [
        (450, 300),
        (750, 250),
        (1000, 300),
        (1300, 300),
        (1600, 300),
        (1900, 100),
        (2000, 300),
        (2300, 200),
    ]
    assert b"".join(data for _, data in frames) == body(450, 2500)


async def test_an_empty_slave_starts_with_the_last_file() -> None:
    async with running(log_of(2500), SMALL) as master, bare_slave(master) as slave:
        slave.report(0)
        frames = await slave.frames_until(2500)
        assert frames == [(2000, body(2000, 2500))]


async def test_a_report_cut_into_bytes_is_one_report() -> None:
    async with running(log_of(2500), SMALL) as master, bare_slave(master) as slave:
        for byte in (2400).to_bytes(8, "big"):
            slave.writer.write(bytes([byte]))
            await slave.writer.drain()
            await asyncio.sleep(0)
        assert await slave.frame() == (2400, body(2400, 2500))


async def test_of_several_reports_in_one_read_the_last_counts() -> None:
    async with running(log_of(2500), SMALL) as master, bare_slave(master) as slave:
        slave.report(100, 2000, 2400)
        assert await slave.frame() == (2400, body(2400, 2500))


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
@pytest.mark.parametrize("delay_ms", [0, 2])
async def test_what_is_appended_later_follows(role: str, delay_ms: float) -> None:
    log = log_of(100)
    config = replace(SMALL, role=role, async_transfer_delay_ms=delay_ms)
    async with running(log, config) as master, bare_slave(master) as slave:
        slave.report(100)
        await until(lambda: master.push2slave_max_offset == 100, "the first report")
        log.put(b"first")
        log.put(b"second")
        frames = await slave.frames_until(111)
        assert b"".join(data for _, data in frames) == b"firstsecond"


async def test_an_idle_connection_gets_heartbeats_with_the_next_offset() -> None:
    async with running(log_of(100), SMALL) as master, bare_slave(master) as slave:
        slave.report(100)
        assert await slave.frame() == (100, b"")
        assert await slave.frame() == (100, b"")


async def test_a_silent_slave_is_disconnected() -> None:
    config = replace(SMALL, housekeeping_ms=100)
    async with running(log_of(100), config) as master, bare_slave(master) as slave:
        slave.report(100)
        await slave.closed()
        await until(lambda: master.connection_count == 0, "the connection's end")


async def test_bytes_that_are_no_report_renew_nothing() -> None:
    config = replace(SMALL, housekeeping_ms=200)
    async with running(log_of(100), config) as master, bare_slave(master) as slave:
        for _ in range(60):  # eight of them are a report
            if slave.reader.at_eof() or slave.reader.exception():
                break
            slave.writer.write(b"\0")
            await asyncio.sleep(0.05)
        else:
            pytest.fail("still open")


@pytest.mark.parametrize("talk", [(), (0,)], ids=["silent", "reporting"])
async def test_strangers_that_take_all_connections_do_not_keep_a_slave_out(
    talk: tuple[int, ...],
) -> None:
    async with running(log_of(100), SMALL) as master, AsyncExitStack() as stack:
        for _ in range(2 * MOST_CONNECTIONS):
            stranger = await stack.enter_async_context(bare_slave(master, "127.0.0.9"))
            stranger.report(*talk)
        async with bare_slave(master, "127.0.0.2") as slave:
            slave.report(50)
            assert await slave.frame() == (50, body(50, 100))
            for _ in range(2 * MOST_CONNECTIONS):
                stranger = await stack.enter_async_context(bare_slave(master, "127.0.0.9"))
                stranger.report(*talk)
            slave.report(100)
            await until(lambda: master.push2slave_max_offset == 100, "the slave's report")
            assert master.connection_count == MOST_CONNECTIONS


async def test_a_reporting_slave_stays_connected() -> None:
    config = replace(SMALL, heartbeat_ms=20, housekeeping_ms=400)
    async with running(log_of(100), config) as master, bare_slave(master) as slave:
        for _ in range(40):  # twice the housekeeping interval, a report every 20 ms
            slave.report(100)
            assert await slave.frame() == (100, b"")
        assert master.connection_count == 1


async def test_a_report_above_the_end_closes_except_as_the_first() -> None:
    async with running(log_of(100), SMALL) as master, bare_slave(master) as slave:
        slave.report(101)
        assert await slave.frame() == (101, b"")  # only heartbeats
        assert (master.push2slave_max_offset, master.refused_reports) == (0, 1)
        slave.report(101)
        await slave.closed()


GUARDED = replace(SMALL, is_guarded=True)


async def test_under_guard_the_first_report_is_checked_too() -> None:
    async with running(log_of(100), GUARDED) as master:
        async with bare_slave(master) as slave:
            slave.report(101)
            await slave.closed()
        assert (master.push2slave_max_offset, master.refused_reports) == (0, 1)
        async with bare_slave(master) as slave:
            slave.report(100)
            await until(lambda: master.push2slave_max_offset == 100, "a true report")


async def test_under_guard_nobody_acknowledges_what_was_not_sent_to_him() -> None:
    async with running(log_of(2500), GUARDED) as master, bare_slave(master) as slave:
        log = master.store
        assert isinstance(log, FakeLog)
        slave.report(0)
        assert await slave.frame() == (2000, body(2000, 2500))
        slave.report(2500)
        await until(lambda: master.push2slave_max_offset == 2500, "what was sent")
        log.data += b"not sent yet"  # no append is announced, so nothing follows
        slave.report(2501)
        await slave.closed()
        assert (master.push2slave_max_offset, master.refused_reports) == (2500, 1)


async def test_under_compat_anybody_acknowledges_what_the_log_has() -> None:
    async with running(log_of(2500), SMALL) as master, bare_slave(master) as slave:
        log = master.store
        assert isinstance(log, FakeLog)
        slave.report(0)
        assert await slave.frame() == (2000, body(2000, 2500))
        log.data += b"not sent yet"
        slave.report(2501)
        await until(lambda: master.push2slave_max_offset == 2501, "what was not sent")
        assert master.refused_reports == 0


async def test_a_negative_report_is_no_start_request() -> None:
    async with running(log_of(500), SMALL) as master, bare_slave(master) as slave:
        slave.report(-1)
        (connection,) = await _connections(master)
        await until(lambda: connection.ack_offset == -1 and master.connection_count, "the report")
        slave.report(450)
        assert await slave.frame() == (450, body(450, 500))
        assert master.push2slave_max_offset == 450


async def test_a_slave_ahead_gets_heartbeats_until_the_log_has_grown_past_it() -> None:
    log = log_of(100)
    async with running(log, SMALL) as master, bare_slave(master) as slave:
        slave.report(110)
        assert await slave.frame() == (110, b"")
        log.put(b"0123456789abcdef")  # up to 116: from its middle on it goes to the slave
        assert await slave.frames_until(116) == [(110, b"abcdef")]


async def test_what_has_expired_is_not_replaced_by_anything_else() -> None:
    log = FakeLog(FILE, start=2000, data=body(2000, 2500))
    async with running(log, SMALL) as master, bare_slave(master) as slave:
        slave.report(700)
        assert await slave.frame() == (700, b"")
        log.put(b"more")
        assert await slave.frame() == (700, b"")
        assert master.push2slave_max_offset == 700


async def test_an_empty_slave_of_a_log_whose_beginning_has_expired_gets_the_last_file() -> None:
    log = FakeLog(FILE, start=2000, data=body(2000, 3500))
    async with running(log, SMALL) as master, bare_slave(master) as slave:
        slave.report(0)
        assert await slave.frames_until(3500) == [(3000, body(3000, 3500))]


async def test_one_slaves_acknowledgement_is_enough() -> None:
    acks: list[int] = []
    config = replace(SMALL, role="SYNC_MASTER")
    async with running(log_of(500), config) as master:
        master.on_ack = acks.append
        async with bare_slave(master) as fast, bare_slave(master) as slow:
            fast.report(400)
            slow.report(100)
            await until(lambda: master.connection_count == 2 and acks, "both slaves")
            await slow.frames_until(500)
            fast.report(500)
            await until(lambda: acks[-1] == 500, "the fast one")
            slow.report(500)
            await until(
                lambda: min(each.ack_offset for each in master.connections) == 500, "the slow one"
            )
            assert acks.count(500) == 1


async def test_acknowledgements_grow_for_ever_and_across_connections() -> None:
    acks: list[int] = []
    async with running(log_of(500), SMALL) as master:
        master.on_ack = acks.append
        async with bare_slave(master) as slave:
            slave.report(200)
            await until(lambda: acks == [200], "the first report")
            slave.report(150)
            slave.report(300)
            await until(lambda: acks == [200, 300], "the second report")
        async with bare_slave(master) as slave:
            slave.report(100)
            await slave.frames_until(500)
            assert master.push2slave_max_offset == 300
            slave.report(500)
            await until(lambda: acks == [200, 300, 500], "the last report")


async def test_a_slave_counts_only_while_connected_and_near() -> None:
    config = replace(SMALL, fallbehind_max=50)
    async with running(log_of(500), config) as master:
        assert not master.is_slave_ok(10)
        async with bare_slave(master) as slave:
            await until(lambda: master.connection_count == 1, "the connection")
            assert master.is_slave_ok(49)
            assert not master.is_slave_ok(50)
            slave.report(400)
            await until(lambda: master.push2slave_max_offset == 400, "the report")
            assert master.is_slave_ok(449)
            assert not master.is_slave_ok(450)
        await until(lambda: master.connection_count == 0, "the connection's end")
        assert not master.is_slave_ok(410)


async def test_a_slave_that_does_not_read_is_not_buffered_for() -> None:
    end = 64 << 20
    log = FakeLog(1 << 30, data=bytes(end))
    async with running(log, FAST) as master, bare_slave(master) as slave:
        slave.report(1)
        (connection,) = await _connections(master)
        await until(lambda: connection.transfer_offset is not None, "the first report")
        stuck_at = -1
        while connection.transfer_offset != stuck_at:
            stuck_at = connection.transfer_offset or 0
            await asyncio.sleep(0.05)
        assert stuck_at < end // 2
        log.put(b"x")  # an append does not push more into a full socket either
        assert connection.transfer_offset == stuck_at
        end += 1
        frames = await slave.frames_until(end)
        assert sum(len(data) for _, data in frames) == end - 1


async def test_every_slave_gets_the_whole_log() -> None:
    log = log_of(100)
    async with running(log, SMALL) as master, bare_slave(master) as one, bare_slave(master) as two:
        one.report(100)
        two.report(50)
        assert await two.frame() == (50, body(50, 100))
        await until(lambda: master.push2slave_max_offset == 100, "both reports")
        log.put(b"more")
        for slave in (one, two):
            assert (await slave.frames_until(104))[-1] == (100, b"more")


async def test_a_port_already_taken_stops_the_service() -> None:
    async with running(log_of(10), SMALL) as master:
        taken = replace(SMALL, listen_port=master.bound_port or 0)
        with pytest.raises(OSError, match="address already in use"):
            await HaService(log_of(10), taken).run(asyncio.Event())


async def test_stopping_drops_every_connection() -> None:
    async with running(log_of(100), SMALL) as master:
        context = bare_slave(master)
        slave = await context.__aenter__()
        slave.report(100)
        await slave.frame()
    await slave.closed()
    assert master.connection_count == 0
    await context.__aexit__(None, None, None)


def test_settings_come_from_broker_conf_scaled() -> None:
    from failback.broker.config.config import BrokerConfig

    config = BrokerConfig(
        broker_role="SLAVE",
        failback_bind_address="127.0.0.3",
        listen_port=10921,
        failback_time_scale=0.1,
        ha_master_address="127.0.0.2:10912",
    )
    made = HaConfig.of(config)
    assert (made.listen_host, made.listen_port) == ("127.0.0.3", 10922)
    assert made.master_address == "127.0.0.2:10912"
    assert (made.heartbeat_ms, made.housekeeping_ms, made.reconnect_ms) == (500, 2000, 500)
    assert not made.is_guarded


def test_no_frame_is_larger_than_the_buffer_of_an_apache_slave() -> None:
    from failback.broker.config.config import BrokerConfig

    largest = BrokerConfig(ha_transfer_batch_size=4 * 1024 * 1024)
    assert HaConfig.of(largest).batch_bytes + 12 == 4 * 1024 * 1024
    assert HaConfig.of(BrokerConfig()).batch_bytes == 32_768


def test_the_switch_of_the_guarded_rules_reaches_both_ends() -> None:
    from failback.broker.config.config import BrokerConfig

    assert HaConfig.of(BrokerConfig(failback_guard_replication=True)).is_guarded


async def _connections(master: HaService) -> frozenset[HaConnection]:
    await until(lambda: master.connection_count == 1, "the connection")
    return master.connections
