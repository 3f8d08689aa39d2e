"""The clock of the operator's machine is set: nothing grows older or younger by that."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import pytest

from failback.operator.controller.clock import Deadlines, StableClock
from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.plan.encoding import from_time, operations_from_status, to_time
from failback.operator.planning.plan.types import Plan
from failback.operator.planning.state import instants
from tests.support.operator.planning_run import CONTEXT, Run, steady
from tests.support.operator.planning_world import World

HOUR = 3600.0


def rolling(step: str) -> World:
    """Return a cluster whose Roll has come to a step, and waits there."""
    world = steady(pairs=2)
    world.edit(flushDiskType="SYNC_FLUSH")
    run = Run(world)
    run.until(lambda: run.at_step(f"Roll/{step}"))
    if step == "WaitReady":
        world.start_seconds = 10 * HOUR
    return world


def plan(world: World, status: Any, jump: float) -> Plan:
    """Plan as on a machine whose wall clock was set by ``jump`` seconds."""
    seen = instants.shifted(world.observe(), jump)
    return plan_cluster(world.cluster, status, seen, CONTEXT, world.now + jump)


def reasons(found: Plan) -> set[str]:
    return {event.reason for event in found.events}


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_a_jump_times_out_no_operation_and_holds_none_up(jump: float) -> None:
    world = rolling("WaitReady")
    deadlines, stored = Deadlines(), world.status
    assert deadlines.kept(stored, 0.0) is stored
    naive = plan(world, stored, HOUR)
    assert "OperationTimedOut" in reasons(naive), "this is what a jump would do"

    kept = deadlines.kept(stored, jump)
    found = plan(world, kept, jump)
    assert "OperationTimedOut" not in reasons(found)
    operation = found.status["currentOperation"]
    assert operation["startedAt"] == moved(stored["currentOperation"]["startedAt"], jump)

    # The status was not written: the same again. Then it is, and its times hold as they are.
    assert deadlines.kept(stored, jump) == kept
    deadlines.note(stored, found.status, jump)
    assert deadlines.kept(stored, jump) == kept
    assert deadlines.kept(found.status, jump) is found.status
    world.now += 700
    assert "OperationTimedOut" in reasons(plan(world, found.status, jump)), "it does pass"


def moved(text: str, seconds: float) -> str:
    at = from_time(text)
    assert at is not None
    return to_time(at + seconds)


def test_a_clock_that_is_only_trimmed_changes_nothing() -> None:
    world = rolling("WaitReady")
    deadlines = Deadlines()
    deadlines.kept(world.status, 0.0)
    assert deadlines.kept(world.status, 0.4) is world.status
    assert deadlines.kept({}, HOUR) == {}


@pytest.mark.parametrize("late", [HOUR, 10.0])
def test_what_a_clock_ahead_of_ours_wrote_counts_as_now(late: float) -> None:
    """An operator that starts on another machine finds times that are still to come."""
    world = rolling("DrainMaster")
    run = Run(world)
    run.until(lambda: bool(world.status["currentOperation"]["data"].get("closedAt")))
    status = json.loads(json.dumps(world.status))
    operation = status["currentOperation"]
    for field in ("startedAt", "stepStartedAt"):
        operation[field] = moved(operation[field], late)
    operation["data"]["closedAt"] += late
    found = plan(world, status, 0.0).status["currentOperation"]
    assert found["startedAt"] <= to_time(world.now)
    assert found["data"]["closedAt"] == world.now
    world.status = status
    run.until(lambda: not run.at_step("Roll/DrainMaster"))
    assert run.steps[-1] == "Roll/EvictMember"
    assert world.now < operation["data"]["closedAt"] + 60


def test_all_that_an_operation_remembers_moves_and_nothing_else() -> None:
    world = rolling("DrainMaster")
    (operation,) = operations_from_status(world.status)
    data = {
        "closedAt": 100.0,
        "masterlessSince": 90,
        "drainEnd": 5,
        "sent": {"at": 80.0, "first": "x", "attempts": 2},
        "podUid": "at",
        "caughtUpAt": None,
        "flat": True,
    }
    found = instants.moved(dataclasses.replace(operation, data=data), lambda at: at + 1)
    assert found.started_at == operation.started_at + 1
    assert found.step_started_at == operation.step_started_at + 1
    assert found.data == {
        **data,
        "closedAt": 101.0,
        "masterlessSince": 91,
        "sent": {"at": 81.0, "first": "x", "attempts": 2},
    }


def test_an_observation_is_told_in_times_of_the_wall() -> None:
    world = steady()
    seen = dataclasses.replace(world.observe(), master_since={0: 5.0}, masterless_since={1: 6.0})
    assert instants.shifted(seen, 0.3) is seen
    found = instants.shifted(seen, HOUR)
    assert found.at == seen.at + HOUR
    assert (found.master_since, found.masterless_since) == ({0: 5.0 + HOUR}, {1: 6.0 + HOUR})
    before, after = seen.member(0, 1).broker, found.member(0, 1).broker
    assert before is not None
    assert after is not None
    assert before.offsets_at is not None
    assert after.offsets_at == before.offsets_at + HOUR
    assert after.end == before.end
    assert found.member(0, 1).pod == seen.member(0, 1).pod


def test_a_steady_clock_does_not_look_at_the_wall_again(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time()
    clock = StableClock()
    before = clock()
    assert began - 60 < before < time.time() + 60
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before <= clock() < before + 60
