"""The operator dies after each of its writes; a new one ends where an undisturbed one ends.

Writes are those of the passes: the step in the status, each action, the status. Every scenario
is run undisturbed once, and then once per write with an end right after it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.planning_run import Run, steady
from tests.support.planning_world import World

pytestmark = pytest.mark.unit

TOPIC = {"topicName": "ORDER_PAID", "perm": 6}


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
    "live": ({}, _live),
    "up": ({}, _up),
    "down": ({"pairs": 2}, _down),
    "slaves": ({}, _slaves),
    "slaves-down": ({"slavesPerPair": 2}, lambda world: world.edit(slavesPerPair=1)),
    "grow": ({}, _grow),
    "resync": ({}, _resync),
    "restart-member": ({}, _restart_member),
    "drift": ({}, _drift),
}


def finish(begun: World, crash_after: int | None) -> tuple[World, Run]:
    world = copy.deepcopy(begun)
    run = Run(world, crashes=() if crash_after is None else {crash_after})
    return world, run.until_steady()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_interruption_ends_as_the_undisturbed_run(name: str) -> None:
    spec, begin = SCENARIOS[name]
    begun = steady(**spec)
    begin(begun)
    undisturbed, run = finish(begun, None)
    assert run.writes > 3
    assert not undisturbed.violations
    for write in range(1, run.writes + 1):
        world, _ = finish(begun, write)
        assert world.settled() == undisturbed.settled(), f"ended after write {write}"
        assert not world.violations, f"ended after write {write}"
        assert len(world.taken_away()) == len(undisturbed.taken_away()), f"write {write}"


def test_the_first_creation_survives_every_interruption() -> None:
    undisturbed, run = finish(World(pairs=2), None)
    for write in range(1, run.writes + 1):
        world, _ = finish(World(pairs=2), write)
        assert world.settled() == undisturbed.settled(), f"ended after write {write}"
        assert all(pod.config["brokerPermission"] == "6" for pod in world.pods.values())
