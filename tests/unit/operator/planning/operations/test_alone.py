"""A pair whose messages no other pair takes: nobody waits for producers to go elsewhere."""

from __future__ import annotations

import pytest

from failback.operator.planning.operations import role_switch
from failback.operator.planning.plan.types import SetConfig
from tests.support.operator.planning_run import EVERY_WRITE, Run, steady
from tests.support.operator.planning_world import World
from tests.support.operator.switch_world import SwitchWorld, delivered, roles

ALONE = [step for step in role_switch.PLANNED if step != "DrainWrites"]
SWAPPED = {0: "SLAVE 1 6", 1: "ASYNC_MASTER 0 6"}
AS_BEFORE = {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
ROLL = {"config": {"flushConsumerOffsetInterval": "4000"}}
TOPIC = {"topicName": "PAID", "perm": 6}


def asked() -> SwitchWorld:
    world = delivered(pairs=1)
    world.ask()
    return world


def closings(world: World) -> list[tuple[tuple[int, int], str]]:
    """Return which member was closed or opened, in order."""
    found = [item for item in world.log if isinstance(item, SetConfig)]
    return [(item.member, item.values["brokerPermission"]) for item in found]


# --- switches -----------------------------------------------------------------------------------


def test_a_switch_of_the_only_pair_waits_for_no_producer_and_loses_nothing() -> None:
    world = asked()
    world.run(until=lambda at: at.step == "StopOldMaster")
    assert world.store(0, 1).end == world.store(0, 0).end
    assert world.traffic > 0
    world.run()
    assert [step["name"] for step in world.switch_status["steps"]] == ALONE
    assert (world.phase, world.reason("Safe"), roles(world)) == ("Complete", "Safe", SWAPPED)
    assert closings(world) == [((0, 0), "4"), ((0, 1), "6")]
    assert not world.snapshots


def test_its_offsets_are_those_of_the_old_master_although_the_slave_had_not_copied_them() -> None:
    world = asked()
    world.run(until=lambda at: at.step == "SyncOffsets")
    ahead = {"PAID@billing": {0: 10**6}}
    world.store(0, 0).offsets = {**world.store(0, 0).offsets, **ahead}
    world.run()
    assert world.store(0, 1).offsets["PAID@billing"] == {0: 10**6}


def test_an_operator_that_dies_after_each_write_ends_the_same() -> None:
    world = asked()
    world.run_in_short_lives()
    assert (world.phase, roles(world)) == ("Complete", SWAPPED)
    assert [step["name"] for step in world.switch_status["steps"]] == ALONE


@pytest.mark.parametrize("step", ["Replicate", "SyncOffsets"])
def test_what_was_closed_is_open_again_when_it_is_undone(step: str) -> None:
    world = asked()
    world.run(until=lambda at: at.step == step)
    world.delete()
    world.run()
    assert roles(world) == AS_BEFORE
    assert world.shown_permission == 6


def test_a_switch_that_was_begun_without_saying_so_drains() -> None:
    """As an operator of before wrote it."""
    world = asked()
    world.run(until=lambda at: at.step == "TakeLease")
    operation = world.status["currentOperation"]
    operation["data"] = {key: each for key, each in operation["data"].items() if key != "alone"}
    world.run()
    assert [step["name"] for step in world.switch_status["steps"]] == list(role_switch.PLANNED)


# --- rolls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("drain", ["Auto", True])
def test_the_only_pair_is_rolled_without_being_closed(drain: object) -> None:
    world = steady(updateStrategy={"drainMaster": drain})
    world.edit(**ROLL)
    Run(world, crashes=EVERY_WRITE).until_steady()
    assert closings(world) == []


@pytest.mark.parametrize(
    ("on", "closed"),
    [
        ([], [0, 1]),
        ([0, 1], [0, 1]),
        ([0], [1]),
        ([1], [0]),
    ],
)
def test_a_pair_is_closed_only_where_another_one_has_all_its_topics(
    on: list[int], closed: list[int]
) -> None:
    world = steady(pairs=2)
    for pair in on:
        for member in (0, 1):
            store = world.running(pair, member).store
            store.topics = {**store.topics, "PAID": TOPIC}
    world.edit(**ROLL)
    Run(world).until_steady()
    assert [member[0] for member, value in closings(world) if value == "4"] == closed


def test_a_pair_is_not_closed_while_the_other_one_takes_no_writes() -> None:
    world = steady(pairs=2)
    world.edit(pairs=1, **ROLL)
    world.backlog[1] = {"billing@PAID": 100}
    run = Run(world).until(lambda: world.running(1, 0).config["brokerPermission"] == "4")
    run.until(lambda: all("orders-1" in row["member"] for row in world.status["pendingRestarts"]))
    assert closings(world) == [((1, 0), "4")]
