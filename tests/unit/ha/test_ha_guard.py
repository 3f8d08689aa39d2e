"""A slave under the guarded rules: it asks before it connects, and takes nothing of another log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from failback.broker.ha.client import UNVERIFIED_TRIES, MasterUnknown
from failback.broker.ha.config import HaConfig
from failback.broker.ha.join import Refusal
from failback.broker.ha.service import HaService
from failback.protocol.message import encode_record, pack_host
from tests.support.brokers.fake_log import FakeLog
from tests.support.brokers.ha_pair import FAST, BareMaster, bare_master, slave_of
from tests.support.common.polling import until

FILE = 4096
GUARDED = replace(
    FAST, mapped_file_bytes=FILE, heartbeat_ms=30_000, reconnect_ms=10, is_guarded=True
)
HOST = pack_host("127.0.0.1", 10911)
AHEAD = Refusal(100, "SlaveAhead")


class Judge:
    """Answers as told, and counts how often it was asked."""

    def __init__(self, answer: Refusal | Exception | None) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(self, address: str) -> Refusal | None:
        self.asked.append(address)
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@asynccontextmanager
async def guarded_slave(
    log: FakeLog, master: BareMaster, judge: object, config: HaConfig = GUARDED
) -> AsyncIterator[HaService]:
    service, shutdown = HaService(log, slave_of(master.address, config)), asyncio.Event()
    service.client.judge = judge  # type: ignore[assignment]
    task = asyncio.create_task(service.run(shutdown))
    try:
        yield service
    finally:
        shutdown.set()
        async with asyncio.timeout(10):
            await task


def records(start: int, count: int, body: bytes = b"hello") -> bytes:
    data = b""
    for _ in range(count):
        data += encode_record(
            topic="TopicTest",
            queue_id=0,
            body=body,
            physical_offset=start + len(data),
            store_timestamp=1,
            born_host=HOST,
            store_host=HOST,
        )
    return data


async def test_a_refused_slave_does_not_even_connect(caplog: pytest.LogCaptureFixture) -> None:
    judge = Judge(AHEAD)
    log = FakeLog(FILE, data=records(0, 3))
    async with bare_master() as master, guarded_slave(log, master, judge) as slave:
        await until(lambda: len(judge.asked) == 3, "two looks again")
        judge.answer = AHEAD._replace(detail="the master has grown")
        await until(lambda: slave.client.refusal == judge.answer, "what is known now")
        assert set(judge.asked) == {master.address}
        assert master.connections.empty()
        assert caplog.text.count("stops: SlaveAhead (physical offset 100)") == 1
        assert "has grown" not in caplog.text
        judge.answer = None
        await (await master.accept()).report()
        assert slave.client.refusal is None
    assert log.appends == []


async def test_a_master_that_can_not_be_asked_is_asked_again_then_the_stream_must_do() -> None:
    judge = Judge(MasterUnknown("nobody there"))
    log = FakeLog(FILE, data=records(0, 1))
    async with bare_master() as master, guarded_slave(log, master, judge) as slave:
        side = await master.accept()
        assert await side.report() == len(log.data)
        assert len(judge.asked) == UNVERIFIED_TRIES
        more = records(len(log.data), 2)
        side.send(len(log.data), more)
        assert await side.report() == len(log.data)
        assert slave.client.refusal is None
    assert bytes(log.data) == records(0, 3)


async def test_a_refusal_stands_while_its_master_can_not_be_asked() -> None:
    judge = Judge(AHEAD)
    log = FakeLog(FILE, data=b"x")
    async with bare_master() as master, guarded_slave(log, master, judge) as slave:
        await until(lambda: slave.client.refusal, "the refusal")
        judge.answer = MasterUnknown("nobody there")
        seen = len(judge.asked)
        await until(lambda: len(judge.asked) > seen + UNVERIFIED_TRIES, "more tries than five")
        assert slave.client.refusal == AHEAD
        assert master.connections.empty()


async def test_bytes_of_another_log_are_not_appended_and_not_acknowledged() -> None:
    own = records(0, 3)
    log = FakeLog(FILE, data=own)
    async with bare_master() as master, guarded_slave(log, master, Judge(None)) as slave:
        side = await master.accept()
        assert await side.report() == len(own)
        side.send(len(own), records(0, 20, b"another")[len(own) :])
        await side.closed()
        await until(lambda: slave.client.refusal, "the refusal")
        assert slave.client.refusal is not None
        assert slave.client.refusal.offset == len(own)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):  # many reconnect intervals
                await master.connections.get()
        async with bare_master() as other:
            slave.update_master_address(other.address)
            side = await other.accept()
            assert await side.report() == len(own)
            assert slave.client.refusal is None
            more = records(len(own), 1)
            side.send(len(own), more[:50])
            side.send(len(own) + 50, more[50:])
            assert await side.report() == len(own + more)
    assert bytes(log.data) == own + more


async def test_a_record_that_was_cut_off_is_completed_by_its_own_master_only() -> None:
    whole = records(0, 2)
    log = FakeLog(FILE, data=whole[:150])
    log.behind_bytes = 150 - len(records(0, 1))
    async with bare_master() as master, guarded_slave(log, master, Judge(None)) as slave:
        side = await master.accept()
        await side.report()
        side.send(150, records(0, 2, b"other")[150:])
        await side.closed()
        await until(lambda: slave.client.refusal, "the refusal")
    assert bytes(log.data) == whole[:150]
    async with bare_master() as master, guarded_slave(log, master, Judge(None)):
        side = await master.accept()
        await side.report()
        side.send(150, whole[150:])
        assert await side.report() == len(whole)
    assert bytes(log.data) == whole


async def test_a_log_that_stops_making_sense_is_taken_no_further() -> None:
    log = FakeLog(FILE, data=records(0, 1))
    end = len(log.data)
    more = records(end, 1)
    async with bare_master() as master, guarded_slave(log, master, Judge(None)) as slave:
        side = await master.accept()
        await side.report()
        side.send(end, more)
        await side.report()
        log.stuck_at = end + len(more)
        side.send(end + len(more), b"no record")
        await side.closed()
        await until(lambda: slave.client.refusal, "the refusal")
        assert slave.client.refusal is not None
        assert slave.client.refusal.offset == end + len(more)


async def test_an_empty_slave_begins_with_a_file_whose_first_record_is_right() -> None:
    log = FakeLog(FILE)
    async with bare_master() as master, guarded_slave(log, master, Judge(None)) as slave:
        side = await master.accept()
        assert await side.report() == 0
        side.send(FILE, records(FILE, 2))
        assert await side.report() == FILE + len(records(FILE, 2))
        assert slave.client.refusal is None


async def test_a_stop_does_not_wait_for_the_masters_answer_and_connects_no_more() -> None:
    asked = asyncio.Event()

    async def never(_address: str) -> Refusal | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    async with bare_master() as master:
        async with guarded_slave(FakeLog(FILE, data=b"x"), master, never):
            await asked.wait()
        assert master.connections.empty()
