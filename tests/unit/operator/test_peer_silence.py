"""A broker that does not answer is asked one thing at a time, and ever more rarely."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from failback.operator.brokers.peers import Peers, Target
from failback.operator.metrics import Metrics
from tests.support.net.fake_remoting import FakeBroker
from tests.support.net.ports import free_port


class World:
    """Peers with a clock of their own, and what they asked."""

    def __init__(self) -> None:
        self.now = 0.0
        self.metrics = Metrics(version="1", kopf="1", kubernetes="1")
        self.peers = Peers(self.metrics, clock=lambda: self.now)
        self.target = Target(f"127.0.0.1:{free_port()}", "uid-0", is_master=True, signs="unready")

    def asked(self) -> int:
        """Return how many questions there were."""
        lines = self.metrics.text().decode().splitlines()
        name = "failback_operator_admin_requests_total{"
        return int(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)))

    async def look(self, seconds: float, *, fast: bool = False) -> int:
        """Look once that much later; return how many questions that was."""
        self.now += seconds
        before = self.asked()
        await self.peers.refresh_pair([self.target], fast=fast)
        return self.asked() - before


@pytest.fixture
def world() -> World:
    return World()


async def test_who_is_silent_is_asked_one_thing_after_growing_pauses(world: World) -> None:
    assert await world.look(0) == 1
    asked_at = [world.now for _ in range(30) if await world.look(5)]
    assert asked_at == [10, 30, 60, 90, 120, 150]
    await world.peers.close()


async def test_a_sign_of_life_or_an_operation_ends_the_pause(world: World) -> None:
    for seconds in (0, 10, 20):
        assert await world.look(seconds) == 1
    assert await world.look(5) == 0
    world.target = replace(world.target, signs="ready")
    assert await world.look(0) == 1
    assert await world.look(1) == 0
    assert await world.look(2, fast=True) == 1
    await world.peers.close()


async def test_who_answers_again_is_asked_everything(world: World) -> None:
    for seconds in (0, 10, 20):
        await world.look(seconds)
    with FakeBroker(port=int(world.target.address.rpartition(":")[2])):
        await world.look(30)
        await world.look(1)
        known = world.peers.broker(world.target)
        assert known.config is not None
        assert known.offsets == {}
        assert await world.look(5) == 0
        assert await world.look(5) > 1, "the period of those that answer is ten seconds again"
    await world.look(31)
    known = world.peers.broker(world.target)
    assert (known.config, known.runtime, known.end, known.offsets) == (None, None, None, None)
    await world.peers.close()


async def test_the_reason_of_no_answer_is_kept_until_there_is_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    address, name_server = world.target.address, "no-such-name.invalid:9876"
    with caplog.at_level(logging.INFO, logger="failback.operator.brokers.questions"):
        for seconds in (0, 10, 20):
            await world.look(seconds)
            await world.peers.refresh_routes([name_server], fast=False)
    problem = world.peers.broker(world.target).problem
    assert problem.startswith(f"connect to {address} failed: ")
    route = world.peers.route(name_server)
    assert route.brokers is None
    assert route.problem.startswith(f"connect to {name_server} failed: ")
    told = [record.getMessage() for record in caplog.records]
    assert [sum(each in line for line in told) for each in (address, name_server)] == [1, 1]
    with FakeBroker(port=int(address.rpartition(":")[2])):
        await world.look(30)
        await world.look(1)
        assert "connect to" not in world.peers.broker(world.target).problem
    await world.peers.close()


async def test_peers_that_no_pass_reads_are_forgotten(world: World) -> None:
    """Each new pod has a new address: what is kept must not grow with the pods that were."""
    for _ in range(40):
        world.target = replace(world.target, address=f"127.0.0.1:{free_port()}")
        await world.look(120)
        await world.peers.refresh_routes(["127.0.0.1:1"], fast=False)
    assert len(world.peers._brokers) < 10
    assert len(world.peers._questions._problems) < 12
    assert world.peers.broker(world.target).problem != ""
    await world.peers.close()


@contextmanager
def garbage() -> Iterator[list[int]]:
    """Append how many objects only the collector could free after the block."""
    found: list[int] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        found.append(gc.collect())
    finally:
        gc.enable()


@pytest.mark.full
async def test_refused_questions_leave_nothing_to_the_garbage_collector(world: World) -> None:
    """Where hundreds of clusters are silent, the operator collects rarely and would grow."""
    await world.peers.refresh_routes([world.target.address], fast=True)
    await world.look(0)
    with garbage() as left:
        for _ in range(5):
            await world.peers.refresh_routes([world.target.address], fast=True)
            await world.look(31)
    assert left == [0]
    await world.peers.close()
