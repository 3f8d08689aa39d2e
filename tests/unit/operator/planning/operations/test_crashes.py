"""The operator dies after each of its writes; a new one ends where an undisturbed one ends.

Writes are those of the passes: the step in the status, each action, the status. Every scenario
is run undisturbed once, and then once per write with an end right after it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from typing import Any

import pytest

from tests.support.common.counts import some
from tests.support.operator.planning_run import EVERY_WRITE, Run, steady
from tests.support.operator.planning_world import World

TOPIC = {"topicName": "ORDER_PAID", "perm": 6}
IMAGE = {"type": "Failback", "image": "failback/broker:another"}


def _roll(world: World) -> None:
    world.edit(config={"flushConsumerOffsetInterval": "4000"})


def _live(world: World) -> None:
    world.edit(slaveReadEnable=True, config={"fileReservedTime": "24"})


def _up(world: World) -> None:
    store = world.running(0, 0).store
    store.topics = {**store.topics, "ORDER_PAID": TOPIC}
    world.edit(pairs=2)


def _down(world: World) -> None:
    world.edit(pairs=1)


def _slaves(world: World) -> None:
    world.edit(slavesPerPair=2)


def _grow(world: World) -> None:
    world.edit(storage={"size": "40Gi"})


def _resync(world: World) -> None:
    world.annotate(force_resync_member=world.claims["data-orders-0-1-0"].uid)


def _restart_member(world: World) -> None:
    world.annotate(restart_member="orders-0-1")


def _drift(world: World) -> None:
    world.running(0, 0).config |= {"brokerPermission": "4", "slaveReadEnable": "true"}


SCENARIOS: dict[str, tuple[dict[str, Any], Callable[[World], None]]] = {
    "roll": ({}, _roll),
    "image": ({}, lambda world: world.edit(engine=IMAGE)),
    "live": ({}, _live),
    "up": ({}, _up),
    "down": ({"pairs": 2}, _down),
    "slaves": ({}, _slaves),
    "slaves-down": ({"slavesPerPair": 2}, lambda world: world.edit(slavesPerPair=1)),
    "grow": ({}, _grow),
    "resync": ({}, _resync),
    "restart-member": ({}, _restart_member),
    "drift": ({}, _drift),
    "line-goes": ({"config": {"fileReservedTime": "24"}}, lambda world: world.edit(config={})),
}


def finish(begun: World, *crash_after: int) -> tuple[World, Run]:
    return finish_crashing(begun, crash_after)


def finish_crashing(begun: World, crashes: Collection[int]) -> tuple[World, Run]:
    world = copy.deepcopy(begun)
    return world, Run(world, crashes=crashes).until_steady()


@pytest.mark.few(1, 5)
@pytest.mark.parametrize("name", some(SCENARIOS, 3))
def test_every_interruption_ends_as_the_undisturbed_run(name: str) -> None:
    spec, begin = SCENARIOS[name]
    begun = steady(**spec)
    begin(begun)
    undisturbed, run = finish(begun)
    assert run.writes > 3
    assert not undisturbed.violations
    for write in range(1, run.writes + 1):
        world, _ = finish(begun, write)
        assert world.settled() == undisturbed.settled(), f"ended after write {write}"
        assert not world.violations, f"ended after write {write}"
        assert len(world.taken_away()) == len(undisturbed.taken_away()), f"write {write}"


@pytest.mark.few(2)
@pytest.mark.parametrize("name", some(SCENARIOS, 3))
def test_lives_of_one_write_each_end_as_the_undisturbed_run(name: str) -> None:
    spec, begin = SCENARIOS[name]
    begun = steady(**spec)
    begin(begun)
    undisturbed, _ = finish(begun)
    world, _ = finish_crashing(begun, EVERY_WRITE)
    assert world.settled() == undisturbed.settled()
    assert not world.violations
    assert len(world.taken_away()) == len(undisturbed.taken_away())


def test_the_first_creation_survives_every_interruption() -> None:
    undisturbed, run = finish(World(pairs=2))
    for write in range(1, run.writes + 1):
        world, _ = finish(World(pairs=2), write)
        assert world.settled() == undisturbed.settled(), f"ended after write {write}"
        assert all(pod.config["brokerPermission"] == "6" for pod in world.pods.values())
