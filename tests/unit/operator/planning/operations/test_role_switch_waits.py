"""What a RoleSwitch waits for before it begins, by name, until its own time is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from failback.operator.planning.plan.encoding import operation_to_status
from failback.operator.planning.plan.types import Operation
from tests.support.operator.switch_world import SwitchWorld, delivered, roles

AS_BEFORE = {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
EXPERIMENT = {"metadata": {"name": "kill"}, "spec": {}, "status": {"phase": "Injecting"}}


def pause(world: SwitchWorld) -> None:
    """Let nobody write to the cluster."""
    world.annotate(pause_reconciliation="true")


def roll(world: SwitchWorld) -> None:
    """Roll the pair all the time."""
    begun = Operation("roll", "Roll", "WaitReady", pair=0, started_at=world.now)
    world.status["currentOperation"] = operation_to_status(begun)
    world.operator.cluster_pass = lambda: None  # type: ignore[method-assign]


def experiment(world: SwitchWorld) -> None:
    """Let an experiment inject its fault."""
    world.experiments.append(EXPERIMENT)


@pytest.mark.parametrize(
    ("begin", "predicate"),
    [
        (pause, "NotPaused"),
        (roll, "PairFree"),
        (experiment, "NoChaosRunning"),
    ],
)
def test_it_waits_with_the_name_of_what_it_waits_for_and_times_out_untouched(
    begin: Callable[[SwitchWorld], None], predicate: str
) -> None:
    world = delivered()
    begin(world)
    world.ask(timeoutSeconds=60)
    world.settle(30)
    assert (world.phase, world.switch_status["blockedBy"]) == ("Pending", [predicate])
    world.run(until=lambda at: at.phase == "Failed")
    assert world.reason("Failed") == "TimedOut"
    (words,) = [
        item["message"] for item in world.switch_status["conditions"] if item["type"] == "Failed"
    ]
    assert words == f"did not begin within 60 s, waiting for {predicate}"
    assert roles(world) == AS_BEFORE
    assert world.steps_seen == []


def test_a_switch_that_was_opened_and_may_not_begin_lets_the_cluster_go_in_the_end() -> None:
    world = delivered()
    world.ask(timeoutSeconds=3000)
    world.run(until=lambda at: at.step == "Preflight")
    experiment(world)
    opened = world.now
    world.run(until=lambda at: at.now >= opened + 170)
    assert (world.step, world.switch_status["blockedBy"]) == ("Preflight", ["NoChaosRunning"])
    world.run(until=lambda at: not at.step)
    assert (world.phase, world.switch_status["blockedBy"]) == ("Pending", ["NoChaosRunning"])
    assert roles(world) == AS_BEFORE
    world.experiments.clear()
    world.run()
    assert world.phase == "Complete"
