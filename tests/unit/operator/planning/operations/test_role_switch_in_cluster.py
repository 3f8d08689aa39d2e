"""A role switch as one operation among all that a cluster's plan may choose."""

from __future__ import annotations

import copy

import pytest

from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.operations import role_switch
from failback.operator.planning.plan.encoding import find_condition
from tests.support.operator.switch_world import SwitchWorld, roles

SWAPPED = {0: "SLAVE 1 6", 1: "ASYNC_MASTER 0 6"}


class WholeCluster(SwitchWorld):
    """A world whose cluster is planned whole: children, operations, conditions, status."""

    def _reconcile_cluster(self) -> None:
        plan = plan_cluster(self.cluster, self.status, self.observe(), self.context, self.now)
        if plan.operation_first:
            self._write_operation(dict(plan.status).get("currentOperation"))
        for action in plan.actions:
            self._carry_out(action)
        self.events += plan.events
        if plan.status == self.status:
            return
        step = dict(plan.status).get("currentOperation", {}).get("step")
        if step and (not self.steps_seen or self.steps_seen[-1] != step):
            self.steps_seen.append(step)
        self.status = copy.deepcopy(dict(plan.status))
        self._effect()

    def settle(self, seconds: int = 120) -> None:
        end = self.now + seconds
        self.run(until=lambda at: at.now >= end, tick=2.0)

    def says(self, kind: str) -> str:
        found = find_condition(self.status, kind)
        return "" if found is None else f"{found['status']} {found['reason']}"


@pytest.fixture
def world() -> WholeCluster:
    found = WholeCluster()
    found.settle()
    assert found.says("Ready") == "True AllReady"
    return found


def test_a_switch_leaves_a_cluster_at_rest(world: WholeCluster) -> None:
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


@pytest.mark.parametrize("step", role_switch.PLANNED)
def test_an_operator_that_dies_again_and_again_from_a_step_on_ends_the_same(
    world: WholeCluster, step: str
) -> None:
    world.ask()
    world.run(until=lambda at: at.step == step, tick=3.0)
    world.run_in_short_lives(until=lambda at: at.phase == "Complete", tick=3.0)
    world.settle(300)
    assert roles(world) == SWAPPED
    assert world.says("Ready") == "True AllReady"
    assert world.most_masters == 1


def test_a_switch_that_is_undone_leaves_the_pair_open(world: WholeCluster) -> None:
    world.ask()
    world.run(until=lambda at: at.step == "Replicate")
    world.delete()
    world.run()
    world.settle()
    assert world.shown_permission == 6
    assert roles(world) == {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
    assert world.says("Ready") == "True AllReady"


def test_a_paused_cluster_stops_at_the_end_of_a_step_and_goes_on_later(
    world: WholeCluster,
) -> None:
    world.ask()
    world.run(until=lambda at: at.step == "StartNewMaster")
    world.annotations["failback.dev/pause-reconciliation"] = "true"
    world.settle()
    assert world.step == "StartNewMaster"
    del world.annotations["failback.dev/pause-reconciliation"]
    world.run()
    assert roles(world) == SWAPPED
