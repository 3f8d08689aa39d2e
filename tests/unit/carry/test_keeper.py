"""When a keeper asks and tells, and what a silent member costs the others."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from failback.carry.keeper import Keeper
from failback.carry.keeping import Order
from failback.protocol.body import MessageQueue
from failback.protocol.errors import BrokerError
from failback.protocol.stats import ProcessQueueInfo
from tests.support.common.virtual_time import virtual_time

Held = Callable[[], int]


class ScriptedSlave:
    """A slave whose members say what the test says; it stays without an answer for ``silent``."""

    broker_name = "broker-a"

    def __init__(self, groups: Mapping[str, Mapping[str, Held]]) -> None:
        self.groups = groups
        self.offsets: dict[str, dict[int, int]] = {f"orders@{name}": {0: 0} for name in groups}
        self.asked: Counter[str] = Counter()
        self.asked_at: dict[str, list[float]] = {}
        self.silent: set[str] = set()
        self.refuses: set[str] = set()

    async def table(self) -> Mapping[str, Mapping[int, int]]:
        return {key: dict(queues) for key, queues in self.offsets.items()}

    async def members(self, group: str) -> Sequence[str]:
        return list(self.groups[group])

    async def held(self, group: str, client: str) -> Mapping[MessageQueue, ProcessQueueInfo]:
        self.asked[client] += 1
        self.asked_at.setdefault(client, []).append(asyncio.get_running_loop().time())
        if client in self.silent:
            await asyncio.sleep(10)
            raise BrokerError(207, "the member does not answer", "slave")
        said = self.groups[group][client]()
        if said < 0:
            raise BrokerError(1, "unsupported value: NaN", "slave")
        return {MessageQueue("orders", "broker-a", 0): ProcessQueueInfo(commit_offset=said)}

    async def tell(self, order: Order) -> bool:
        if order.group in self.refuses:
            raise BrokerError(26, f"group {order.group} is unknown", "slave")
        self.offsets[f"{order.topic}@{order.group}"][order.queue_id] = order.offset
        return True


async def run(keeper: Keeper, seconds: float) -> None:
    running = asyncio.ensure_future(keeper.run())
    await asyncio.sleep(seconds)
    assert not running.done(), running.exception()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def seconds_since_start() -> Held:
    """What a member has finished that handles 100 messages a second."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    return lambda: round(100 * (loop.time() - began))


class Master:
    def __init__(self) -> None:
        self.is_there = False

    async def is_away(self) -> bool:
        return not self.is_there


@virtual_time
async def test_the_slave_is_at_most_a_second_behind_and_nothing_is_told_after_the_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    slave, master = ScriptedSlave({"billing": {"go": seconds_since_start()}}), Master()
    keeper = Keeper(slave, master.is_away)
    running = asyncio.ensure_future(keeper.run())
    await asyncio.sleep(30.5)
    assert 2900 <= slave.offsets["orders@billing"][0] <= 3050
    master.is_there = True
    await asyncio.sleep(1)
    told, asked = slave.offsets["orders@billing"][0], slave.asked["go"]
    await asyncio.sleep(20)
    assert (slave.offsets["orders@billing"][0], slave.asked["go"]) == (told, asked)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    lines = [record.getMessage() for record in caplog.records if "broker-a" in record.getMessage()]
    assert "is down: its members" in lines[0]
    assert sum("1 members answered" in line for line in lines) == 3
    assert "is back" in lines[-1]


@virtual_time
async def test_silent_members_delay_no_other_and_are_asked_once_a_minute() -> None:
    silent = {f"ali-{number}": (lambda: 0) for number in range(30)}
    slave = ScriptedSlave({"quiet": silent, "billing": {"go": seconds_since_start()}})
    slave.silent |= silent.keys()
    await run(Keeper(slave, Master().is_away), 600.5)
    assert slave.asked["go"] >= 590
    assert slave.offsets["orders@billing"][0] >= 59_900
    for name in silent:
        assert 5 <= slave.asked[name] <= 14, (name, slave.asked_at[name])


@virtual_time
async def test_a_member_that_answers_an_error_is_asked_again_in_the_next_second() -> None:
    finished = seconds_since_start()
    slave = ScriptedSlave({"billing": {"go": lambda: finished() if finished() > 1500 else -1}})
    await run(Keeper(slave, Master().is_away), 20.5)
    assert slave.asked["go"] >= 20
    assert slave.offsets["orders@billing"][0] >= 1900


@virtual_time
async def test_what_is_refused_is_named_once_with_its_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slave = ScriptedSlave(
        {"unknown": {"one": seconds_since_start()}, "billing": {"go": seconds_since_start()}}
    )
    slave.refuses.add("unknown")
    await run(Keeper(slave, Master().is_away), 20.5)
    assert slave.offsets["orders@billing"][0] >= 1900
    named = [line for line in caplog.messages if "orders@unknown queue 0" in line]
    assert len(named) == 1
    assert "code 26" in named[0]


@virtual_time
async def test_more_than_500_members_are_asked_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slave = ScriptedSlave({"large": {f"go-{number}": (lambda: 1) for number in range(1500)}})
    await run(Keeper(slave, Master().is_away), 31)
    assert 9 <= slave.asked["go-7"] <= 12
    assert any("500 members" in line for line in caplog.messages)
