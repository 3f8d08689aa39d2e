"""A drain of a master's node becomes a planned role switch; what keeps it from beginning."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from failback.operator.planning.plan.encoding import find_condition, operation_to_status
from failback.operator.planning.plan.types import DeletePod, Evict, Operation
from failback.operator.planning.state.decode import decode_pod
from tests.support.operator.switch_world import SwitchWorld, is_over, roles

SWAPPED = {0: "SLAVE 1 6", 1: "ASYNC_MASTER 0 6"}
AS_BEFORE = {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
EXPERIMENT = {"metadata": {"name": "kill"}, "spec": {}, "status": {"phase": "SteadyState"}}
ON_NODE_0 = "orders-0-0 (node node-0 is unschedulable)"


@functools.cache
def _drained_by(on_drain: str, pairs: int, slaves: int) -> SwitchWorld:
    failover = {"onDrain": on_drain}
    world = SwitchWorld(pairs=pairs, slavesPerPair=slaves, failover=failover)
    world.settle(200)
    assert world.says("Ready") == "True AllReady"
    world.events.clear()
    world.operator.writes = 0
    return world


def cluster(on_drain: str = "Switch", pairs: int = 1, slaves: int = 1) -> SwitchWorld:
    """Return a cluster at rest; member N of each pair runs on node-N."""
    return copy.deepcopy(_drained_by(on_drain, pairs, slaves))


def waits(world: SwitchWorld) -> str:
    """Return what the condition says."""
    found = find_condition(world.status, "DrainWaits")
    return "" if found is None else f"{found['reason']} {found['message']}".strip()


def events(world: SwitchWorld, reason: str) -> list[str]:
    return [event.message for event in world.events if event.reason == reason]


def test_masters_of_a_cordoned_node_hand_over_one_after_the_other_and_stay_there() -> None:
    world = cluster(pairs=2)
    assert [world.evict(0, 0), world.evict(1, 0)] == [False, False], "masters are kept"
    world.cordoned.add("node-0")
    most = 0
    while len(world.made) < 2 or not is_over(world):
        most = max(most, sum(not is_ended(item) for item in world.switches.values()))
        pod = world.pod(0, 0)
        assert pod is None or pod.deleting or not pod.is_master or not world.evict(0, 0)
        world.reconcile()
        world.tick(2.0)
        assert world.now < 1_750_010_000.0, (world.status, world.switches)
    assert most == 1, "one switch at a time"
    first, second = events(world, "DrainSwitch")
    assert first == f"{ON_NODE_0} hands over to orders-0-1 by RoleSwitch {world.made[0]}"
    assert second.startswith("orders-1-0 (node node-0 is unschedulable) hands over to orders-1-1")
    assert roles(world) == SWAPPED
    world.settle(60)
    assert waits(world) == "NoDrain"
    assert [world.evict(0, 0), world.evict(0, 1)] == [True, False], "the slave goes, the master not"
    world.settle(900)
    assert (world.says("Ready"), world.switches) == ("True AllReady", {})
    effects = world.effects
    world.cordoned.clear()
    world.settle(900)
    assert (world.effects, len(world.made)) == (effects, 2), "nothing is switched back"
    world.cordoned.add("node-1")
    world.run(until=lambda at: len(at.made) == 4 and is_over(at))
    assert roles(world) == AS_BEFORE
    assert (world.violations, world.most_masters) == ([], 1)


def is_ended(switch: dict[str, Any]) -> bool:
    return (switch["status"] or {}).get("phase") in ("Complete", "Failed")


def pause(world: SwitchWorld) -> Callable[[], object]:
    world.annotate(pause_reconciliation="true")
    return world.annotations.clear


def experiment(world: SwitchWorld) -> Callable[[], object]:
    world.experiments.append(EXPERIMENT)
    return world.experiments.clear


def slave_away(world: SwitchWorld) -> Callable[[], object]:
    world.broken.add((0, 1))
    world.kill(0, 1)
    return lambda: world.broken.clear()


def slave_silent(world: SwitchWorld) -> Callable[[], object]:
    world.silent.add((0, 1))
    return lambda: world.silent.clear()


def slave_drained_too(world: SwitchWorld) -> Callable[[], object]:
    world.cordoned.add("node-1")
    return lambda: world.cordoned.discard("node-1")


def slave_marked(world: SwitchWorld) -> Callable[[], object]:
    world.running(0, 1).leaving = "annotation failback.dev/drain"
    return lambda: setattr(world.running(0, 1), "leaving", "")


def other_operation(world: SwitchWorld) -> Callable[[], object]:
    """Let a roll hold the pair that does not go on."""
    begun = Operation("r", "Roll", "WaitReady", pair=0, started_at=world.now, data={"podUid": "x"})
    held = {**world.status, "currentOperation": operation_to_status(begun)}
    world.status = held
    world.silent.add((0, 1))
    return lambda: world.silent.clear()


def other_switch(world: SwitchWorld) -> Callable[[], object]:
    """Let a person ask for a switch of another pair that cannot begin."""
    world.ask("theirs", pair="orders-1", timeoutSeconds=7200)
    world.broken.add((1, 1))
    world.kill(1, 1)
    world.edit(pairs=2)

    def done() -> None:
        world.broken.clear()
        del world.switches["theirs"]

    return done


def claim_grows(world: SwitchWorld) -> Callable[[], object]:
    world.resize_hangs = True
    world.edit(storage={"size": "30Gi"})

    def done() -> None:
        world.resize_hangs = False

    return done


def by_a_person(world: SwitchWorld) -> Callable[[], object]:
    world.edit(failover={"onDrain": "Wait"})
    return lambda: world.edit(failover={"onDrain": "Switch"})


GUARDS: dict[Callable[[SwitchWorld], Callable[[], object]], str] = {
    pause: "Blocked: waits for NotPaused",
    experiment: "Blocked: waits for NoExperiment",
    slave_away: "NoOtherNode: no slave is ready on another node that takes pods",
    slave_silent: "Blocked: waits for SingleMaster, MetadataEqual, LagAcceptable",
    slave_drained_too: "NoOtherNode: no slave is ready on another node that takes pods",
    slave_marked: "NoOtherNode: no slave is ready on another node that takes pods",
    other_operation: "Blocked: waits for PairFree (Roll of orders-0), SingleMaster",
    other_switch: "Blocked: waits for NoOtherSwitch",
    claim_grows: "Blocked: waits for PairFree (VolumeResize of orders-0), ClaimsSettled",
    by_a_person: "RoleSwitchNeeded: a RoleSwitch of yours has to make another member master",
}
"""What is in the way → what the condition says, without the member."""


def test_each_guard_keeps_the_switch_from_beginning_and_says_why() -> None:
    for guard, words in GUARDS.items():
        pairs = 2 if guard is other_switch else 1
        world = cluster(pairs=pairs)
        release = guard(world)
        world.settle(20)
        world.cordoned.add("node-0")
        world.settle(40)
        told = waits(world).replace(f" {ON_NODE_0}", "")
        assert told.startswith(words), (guard.__name__, waits(world))
        events_now = [text.startswith(ON_NODE_0) for text in events(world, "DrainWaits")]
        assert events_now == ([] if guard is pause else [True]), guard.__name__
        assert (world.made, world.evict(0, 0)) == ([], False), guard.__name__
        release()
        while len(world.made) < pairs or not is_over(world):
            world.run(until=is_over)
            world.settle(10)
        assert roles(world) == SWAPPED, guard.__name__
        assert (len(world.made), world.violations) == (pairs, []), guard.__name__


def test_an_operator_that_dies_after_each_write_switches_once() -> None:
    world = cluster(pairs=2)
    world.cordoned.add("node-0")
    done = lambda at: len(at.made) >= 2 and is_over(at)  # noqa: E731
    world.run_in_short_lives(until=done, tick=3.0)
    world.settle(900)
    assert roles(world) == SWAPPED
    assert (len(world.made), world.most_masters, world.violations) == (2, 1, [])
    assert waits(world) == "NoDrain"


def test_a_switch_that_failed_is_told_and_tried_again_once_it_has_gone() -> None:
    world = cluster()
    world.cordoned.add("node-0")
    world.run(until=lambda at: at.step == "Replicate")
    (name,) = world.made
    world.delete(name)  # undoes it; another one is made at once, for the drain goes on
    world.run(until=lambda at: len(at.made) == 2 and is_over(at))
    assert roles(world) == SWAPPED
    again = cluster()
    again.cordoned.add("node-0")
    again.run(until=lambda at: bool(at.made))
    found = again.switches[again.made[0]]
    again.switches[again.made[0]] = {**found, "status": {"phase": "Failed"}}
    again.settle(20)
    assert waits(again) == (
        f"SwitchFailed {ON_NODE_0}: RoleSwitch {again.made[0]} is Failed; tried again once it has"
        " gone"
    )
    del again.switches[again.made[0]]
    again.run(until=lambda at: len(at.made) == 2 and is_over(at))
    assert roles(again) == SWAPPED


def test_a_pair_without_a_slave_and_an_operator_that_may_not_read_nodes_say_so() -> None:
    world = cluster("Wait", slaves=0)
    world.cordoned.add("node-0")
    world.settle(20)
    assert waits(world) == (
        f"NoSlave {ON_NODE_0}: the pair has no slave to take over; delete pod orders-0-0-0 to let"
        " it go"
    )
    assert not world.evict(0, 0)
    blind = cluster()
    blind.nodes_readable = False
    blind.settle(20)
    assert waits(blind).startswith(
        "NodesUnreadable the operator may not read nodes (rbac.readNodes"
    )
    blind.running(0, 0).leaving = "annotation failback.dev/drain"
    blind.run(until=lambda at: bool(at.made) and is_over(at))
    assert roles(blind) == SWAPPED


def of_three_members_the_one_on_an_open_node_takes_over() -> None:
    world = cluster(slaves=2)
    world.cordoned |= {"node-0", "node-1"}
    world.run(until=lambda at: bool(at.made) and is_over(at))
    assert roles(world)[2] == "ASYNC_MASTER 0 6"
    assert [world.evict(0, 0), world.evict(0, 1), world.evict(0, 2)] == [True, False, False]


def without_a_ready_master_no_slave_goes_but_the_dead_master_may() -> None:
    world = cluster()
    assert world.evict(0, 1), "its master is ready"
    world.settle(60)
    world.broken.add((0, 0))
    world.kill(0, 0)
    world.reconcile()
    assert [world.evict(0, 1), world.evict(0, 0)] == [False, True]


def test_rolls_pass_the_budget_of_the_master_and_take_one_member_at_a_time() -> None:
    for on_drain, slaves in (("Switch", 1), ("Wait", 0)):
        world = cluster(on_drain, slaves=slaves)
        world.log.clear()
        world.edit(config={"defaultQueryMaxNum": "33"})
        world.operator.until_steady()
        taken = [each for each in world.log if isinstance(each, (Evict, DeletePod))]
        kinds = [(type(each).__name__, each.pod) for each in taken]
        assert kinds == [*[("Evict", "orders-0-1-0")] * slaves, ("DeletePod", "orders-0-0-0")]
        assert world.violations == []


def allow_is_what_it_was_and_a_change_gives_no_pod_two_budgets() -> None:
    world = cluster("Allow")
    world.cordoned.add("node-0")
    world.settle(60)
    assert (waits(world), world.made) == ("", [])
    world.edit(failover={"onDrain": "Wait"})
    world.settle(60)
    assert waits(world).startswith("RoleSwitchNeeded")
    assert not world.evict(0, 0)
    world.edit(failover={"onDrain": "Allow"})
    world.settle(60)
    assert waits(world) == "NoDrain"
    assert ("PodDisruptionBudget", "orders-0-master") not in world.objects
    assert world.evict(0, 0)
    assert world.violations == []


def test_budgets_follow_the_roles_and_the_policy() -> None:
    of_three_members_the_one_on_an_open_node_takes_over()
    without_a_ready_master_no_slave_goes_but_the_dead_master_may()
    allow_is_what_it_was_and_a_change_gives_no_pod_two_budgets()


def test_what_of_a_pod_says_that_it_is_to_leave() -> None:
    def said(marks: dict[str, str], *conditions: dict[str, str]) -> str:
        metadata = {"name": "a", "uid": "1", "annotations": marks}
        return decode_pod({"metadata": metadata, "status": {"conditions": conditions}}).leaving

    target = {"type": "DisruptionTarget", "status": "True"}
    assert said({"failback.dev/drain": "true"}) == "annotation failback.dev/drain"
    assert said({}, target) == "condition DisruptionTarget"
    assert said({"failback.dev/drain": "false"}, {**target, "status": "False"}) == ""
