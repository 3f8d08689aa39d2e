"""A role switch as one operation among all that a cluster's plan may choose."""

from __future__ import annotations

import pytest

from failback.operator.planning.operations import role_switch
from tests.support.common.counts import some
from tests.support.operator.switch_world import SwitchWorld, delivered, roles

SWAPPED = {0: "SLAVE 1 6", 1: "ASYNC_MASTER 0 6"}


@pytest.fixture
def world() -> SwitchWorld:
    found = delivered()
    assert found.says("Ready") == "True AllReady"
    return found


@pytest.mark.full
def test_a_switch_leaves_a_cluster_at_rest(world: SwitchWorld) -> None:
    world.ask()
    world.run()
    world.settle()
    assert roles(world) == SWAPPED
    assert world.says("Ready") == "True AllReady"
    assert world.says("RolesConsistent") == "True Consistent"
    assert world.status["pairs"][0]["masterMember"] == 1
    assert world.status["pairs"][0]["master"] == "orders-0-1"
    assert world.steps_seen == [*role_switch.PLANNED, "Finished"], "no other operation followed"
    effects = world.effects
    world.settle()
    assert world.effects == effects, "a cluster at rest writes nothing"


@pytest.mark.few(1, 4)
@pytest.mark.parametrize("step", some(role_switch.PLANNED, 4))
def test_an_operator_that_dies_again_and_again_from_a_step_on_ends_the_same(
    world: SwitchWorld, step: str
) -> None:
    world.ask()
    world.run(until=lambda at: at.step == step, tick=3.0)
    world.run_in_short_lives(until=lambda at: at.phase == "Complete", tick=3.0)
    world.settle(300)
    assert roles(world) == SWAPPED
    assert world.says("Ready") == "True AllReady"
    assert world.most_masters == 1


def test_a_switch_that_is_undone_leaves_the_pair_open(world: SwitchWorld) -> None:
    world.ask()
    world.run(until=lambda at: at.step == "Replicate")
    world.delete()
    world.run()
    world.settle()
    assert world.shown_permission == 6
    assert roles(world) == {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
    assert world.says("Ready") == "True AllReady"


def test_a_paused_cluster_stops_at_the_end_of_a_step_and_goes_on_later(
    world: SwitchWorld,
) -> None:
    world.ask()
    world.run(until=lambda at: at.step == "StartNewMaster")
    world.annotate(pause_reconciliation="true")
    world.settle()
    assert world.step == "StartNewMaster"
    world.annotations.clear()
    world.run()
    assert roles(world) == SWAPPED
