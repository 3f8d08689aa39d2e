"""What a RoleSwitch waits for before it begins, by name, until its own time is over."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.plan.encoding import operation_to_status
from failback.operator.planning.plan.types import Operation
from tests.support.operator.switch_world import SwitchWorld, delivered, roles

AS_BEFORE = {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
EXPERIMENT = {"metadata": {"name": "kill"}, "spec": {}, "status": {"phase": "Injecting"}}


class Paused(SwitchWorld):
    """Nobody may write to its cluster."""

    def ask(self, name: str = "swap", **spec: Any) -> None:
        self.annotations["failback.dev/pause-reconciliation"] = "true"
        super().ask(name, **spec)


class Busy(SwitchWorld):
    """The pair is being rolled all the time."""

    def ask(self, name: str = "swap", **spec: Any) -> None:
        roll = Operation("roll", "Roll", "WaitReady", pair=0, started_at=self.now)
        self.status["currentOperation"] = operation_to_status(roll)
        super().ask(name, **spec)

    def _reconcile_cluster(self) -> None:
        if "currentOperation" not in self.status:
            super()._reconcile_cluster()


class UnderExperiment(SwitchWorld):
    """An experiment injects its fault."""

    def observe(self) -> ObservedCluster:
        return dataclasses.replace(super().observe(), experiments=[EXPERIMENT])


@pytest.mark.parametrize(
    ("kind", "predicate"),
    [
        (Paused, "NotPaused"),
        (Busy, "NoOtherOperation"),
        (UnderExperiment, "NoChaosRunning"),
    ],
)
def test_it_waits_with_the_name_of_what_it_waits_for_and_times_out_untouched(
    kind: type[SwitchWorld], predicate: str
) -> None:
    world = kind(2, failover="None")
    world.ask(timeoutSeconds=60)
    end = world.now + 30
    world.run(until=lambda at: at.now >= end)
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
    world.annotations["failback.dev/pause-reconciliation"] = "true"
    opened = world.now
    world.run(until=lambda at: at.now >= opened + 170)
    assert (world.step, world.switch_status["blockedBy"]) == ("Preflight", ["NotPaused"])
    world.run(until=lambda at: not at.step)
    assert (world.phase, world.switch_status["blockedBy"]) == ("Pending", ["NotPaused"])
    assert roles(world) == AS_BEFORE
    world.annotations.clear()
    world.run()
    assert world.phase == "Complete"
