"""Leaving: the order of a clean shutdown, draining, and stopping when the log takes no rows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from failback.client.consumelog.hook import LogHook
from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumer.context import ConsumerState
from failback.client.errors import NotRunning
from failback.client.instance.instance import ClientManager
from failback.client.model import ConsumeFrom, ConsumeResult
from failback.protocol.body import MessageQueue
from failback.protocol.codes import RequestCode
from failback.protocol.errors import ConfigError
from failback.protocol.message import MessageExt
from tests.support.clients.client_lab import GROUP, TOPIC, Collector, Lab
from tests.support.common.virtual_time import now, until, virtual_time

KEY = (GROUP, TOPIC, 0)
FIRST = ConsumeFrom.FIRST_OFFSET


def slow(seconds: float) -> Collector:
    handler = Collector()

    async def wait(message: MessageExt) -> ConsumeResult:
        await asyncio.sleep(seconds)
        return ConsumeResult.SUCCESS

    handler.answer = wait
    return handler


@virtual_time
async def test_the_last_commit_leaves_before_the_goodbye_on_the_same_connection() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 3)
        await asyncio.sleep(1)
        connections = list(master.connections)
        assert len(connections) == 1
        master.requests.clear()
        await member.consumer.shutdown()
        codes = [
            r.code
            for r in master.requests
            if r.code in (RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UNREGISTER_CLIENT)
        ]
        assert codes[-1] == RequestCode.UNREGISTER_CLIENT
        assert codes.count(RequestCode.UPDATE_CONSUMER_OFFSET) >= 1
        assert master.offset(*KEY) == 3
        kinds = {r.kind for r in member.hook.of("commit", queue=MessageQueue(TOPIC, "broker-a", 0))}
        assert "SHUTDOWN" in kinds
        assert [r.reason for r in member.hook.of("assign_end")] == ["SHUTDOWN"] * 2
        assert member.consumer.state is ConsumerState.SHUTDOWN
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert master.members(GROUP) == set()


@virtual_time
async def test_running_handlers_are_interrupted_and_their_messages_stay_uncommitted() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(handler=slow(30), consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 3)
        begin = now()
        await member.consumer.shutdown()
        assert now() - begin < 0.1
        assert master.offset(*KEY) in (None, 0)
        assert len(member.hook.of("deliver_begin")) == 3
        assert member.hook.of("deliver_end") == []  # abandoned


@virtual_time
async def test_a_drain_waits_for_handlers_and_for_what_is_queued() -> None:
    async with Lab(drain_on_shutdown_ms=10_000) as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 6)
        member = await lab.start(handler=slow(2), consume_from=FIRST, consume_threads=3)
        await until(lambda: len(member.handler.got) == 3)
        begin = now()
        await member.consumer.shutdown()
        assert now() - begin == pytest.approx(4, abs=0.1)
        assert master.offset(*KEY) == 6
        assert len(member.hook.of("deliver_end")) == 6


@virtual_time
async def test_a_drain_ends_after_its_time() -> None:
    async with Lab(drain_on_shutdown_ms=1_000) as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 1)
        member = await lab.start(handler=slow(600), consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 1)
        begin = now()
        await member.consumer.shutdown()
        assert now() - begin == pytest.approx(1, abs=0.1)


@virtual_time
async def test_with_a_dead_master_the_last_commit_is_lost_and_shutdown_still_ends() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 3)
        member = await lab.start(consume_from=FIRST)
        await until(lambda: len(member.handler.got) == 3)
        master.kill(reset=True)
        await asyncio.sleep(0.1)
        await member.consumer.shutdown()
        (row,) = member.hook.of("commit", kind="SHUTDOWN", queue=MessageQueue(TOPIC, "broker-a", 0))
        assert (row.offset, row.sent) == (3, False)


@virtual_time
async def test_shutdown_twice_and_start_twice() -> None:
    async with Lab() as lab:
        lab.pair()
        member = await lab.start()
        with pytest.raises(NotRunning):
            await member.consumer.start()
        await member.consumer.shutdown()
        await member.consumer.shutdown()
        await member.consumer.wait()


@virtual_time
async def test_a_consumer_without_subscription_or_name_server_says_what_is_missing() -> None:
    async with Lab() as lab:
        lab.pair()
        member = lab.member()
        member.consumer.unsubscribe(TOPIC)
        with pytest.raises(ConfigError, match="subscriptions"):
            await member.consumer.start()
        other = lab.member(2, namesrv_addrs=())
        with pytest.raises(ConfigError, match="namesrv_addrs"):
            await other.consumer.start()


@virtual_time
async def test_equal_client_ids_share_one_instance_until_the_last_leaves() -> None:
    async with Lab() as lab:
        lab.pair()
        manager = ClientManager()
        first, second = lab.member(1, group="one"), lab.member(1, group="two")
        for member in (first, second):
            member.consumer._manager = manager
            await member.consumer.start()
        assert first.consumer.instance is second.consumer.instance
        await first.consumer.shutdown()
        await until(lambda: second.consumer.held_queues)
        await second.consumer.shutdown()
        assert asyncio.all_tasks() == {asyncio.current_task()}


class _BrokenLog:
    """A consume log on a disk that is full after some rows."""

    proc_no = 1

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.begun: list[int] = []

    def _take(self) -> None:
        if self.rows == 0:
            raise ConsumeLogError("No space left on device", Path("hot/x.fblog"))
        self.rows -= 1

    def write(self, table: str, **columns: object) -> int:
        self._take()
        return 1

    def deliver_begin(self, call_id: int, *columns: object) -> int:
        self._take()
        self.begun.append(call_id)
        return call_id

    def deliver_end(self, *columns: object) -> None:
        self._take()


@pytest.mark.parametrize("rows", [*range(6, 40, 3), 100])
@virtual_time
async def test_a_consumer_stops_when_its_log_takes_no_rows(rows: int) -> None:
    """Wherever it happens: nothing is handled that was not logged, nothing is committed later,
    and ``wait`` says why."""
    async with Lab() as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 40)
        log = _BrokenLog(rows)
        member = lab.member(consume_from=FIRST)
        member.consumer._hook = LogHook(log)  # type: ignore[arg-type]
        try:
            await member.consumer.start()
        except ConsumeLogError:
            assert rows < 12  # the start itself writes rows
            return
        with pytest.raises(ConsumeLogError):
            async with asyncio.timeout(60):
                await member.consumer.wait()
        assert member.consumer.state is ConsumerState.FAILED
        assert len(member.handler.got) == len(log.begun)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        stored = master.offset(*KEY)
        await asyncio.sleep(30)
        assert master.offset(*KEY) == stored
        await member.consumer.shutdown()
