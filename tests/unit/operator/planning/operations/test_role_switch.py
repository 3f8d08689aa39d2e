"""Planned role switches: order, interruptions, deletion, time-outs, offsets."""

from __future__ import annotations

import functools
import itertools
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failback.operator.planning.operations import role_switch
from failback.operator.planning.operations.step_context import StepContext
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.plan import children
from failback.operator.planning.plan.encoding import from_time, operations_from_status
from failback.operator.planning.plan.types import SaveSnapshot
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.objects import render_cluster
from tests.support.common.counts import examples, some
from tests.support.operator.planning_run import CONTEXT
from tests.support.operator.simulated_machines import TOPIC_GROUP
from tests.support.operator.switch_world import SwitchWorld, delivered, is_over, roles

SWAPPED = {0: "SLAVE 1 6", 1: "ASYNC_MASTER 0 6"}
AS_BEFORE = {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
BEFORE = role_switch.PLANNED[:5]
AFTER = role_switch.PLANNED[5:]


def reached(step: str) -> Any:
    """Return the test of a world whose operation is at ``step``."""
    return lambda world: world.step == step


def switched(tick: float = 1.0, **spec: Any) -> SwitchWorld:
    world = delivered()
    world.ask(**spec)
    world.run(tick=tick)
    return world


def final_state(world: SwitchWorld) -> dict[str, Any]:
    """Return all that must not depend on how often the operator died."""
    return {
        "roles": roles(world),
        "recorded": world.recorded,
        "leases": world.leases,
        "snapshots": world.snapshots,
        "phase": world.phase,
        "failed": world.reason("Failed"),
        "safe": world.reason("Safe"),
        "operation": world.status.get("currentOperation"),
        "labels": {pod.member: pod.role for pod in world.pods.values()},
    }


def nothing_is_left(world: SwitchWorld) -> bool:
    return not world.leases and not world.snapshots and not world.step


def test_every_step_comes_in_order_and_leaves_its_evidence() -> None:
    world = switched()
    assert world.steps_seen == [*role_switch.PLANNED, "Finished"]
    assert roles(world) == SWAPPED
    assert world.recorded == 1
    assert nothing_is_left(world)
    status = world.switch_status
    assert (status["phase"], world.reason("Complete"), world.reason("Safe")) == (
        "Complete",
        "Complete",
        "Safe",
    )
    assert [step["name"] for step in status["steps"]] == list(role_switch.PLANNED)
    assert all("finishedAt" in step for step in status["steps"])
    assert (status["fromMember"], status["toMember"]) == ("orders-0-0", "orders-0-1")
    assert status["writeOutageSeconds"] > 0
    assert status["readOutageSeconds"] > 0
    assert {pod.role for pod in world.pods.values()} == {"master", "slave"}


def test_writes_are_closed_for_as_long_as_clients_need_to_hear_of_it() -> None:
    world = switched()
    steps = {step["name"]: step for step in world.switch_status["steps"]}
    begun, ended = (from_time(steps["DrainWrites"][key]) for key in ("startedAt", "finishedAt"))
    assert begun is not None
    assert ended is not None
    assert ended - begun >= 35


def test_a_switch_is_complete_without_waiting_whether_its_master_stays() -> None:
    world = switched()
    verify = next(step for step in world.switch_status["steps"] if step["name"] == "Verify")
    begun, ended = from_time(verify["startedAt"]), from_time(verify["finishedAt"])
    assert begun is not None
    assert ended is not None
    assert ended - begun <= 10


def test_events_tell_both_the_cluster_and_the_switch() -> None:
    world = switched()
    events = [event for event in world.events if event.reason.startswith("RoleSwitch")]
    about_cluster = [event.reason for event in events if event.about is None]
    about_switch = [event.reason for event in events if event.about is not None]
    assert about_cluster == about_switch
    assert about_cluster[0] == "RoleSwitchStarted"
    assert about_cluster[-1] == "RoleSwitchFinished"
    assert about_cluster.count("RoleSwitchStep") == len(role_switch.PLANNED) - 1
    owner = next(event.about for event in world.events if event.about is not None)
    assert owner["uid"] == "uid-swap"


@pytest.mark.full
def test_a_switch_back_undoes_a_switch() -> None:
    world = switched()
    world.ask("back", targetMember=0)
    world.run()
    assert roles(world) == AS_BEFORE
    assert world.recorded == 0


@pytest.mark.full
def test_a_pair_of_three_keeps_distinct_ids_when_neither_is_member_0() -> None:
    world = delivered(3)
    world.ask()
    world.run()
    assert roles(world) == {0: "SLAVE 1 6", 1: "ASYNC_MASTER 0 6", 2: "SLAVE 2 6"}
    world.ask("again", targetMember=2)
    seen: set[tuple[str, ...]] = set()
    while not is_over(world):
        world.run(until=lambda at: True)
        world.reconcile()
        world.tick()
        first = [pod for pod in world.pods.values() if pod.up and pod.member[0] == 0]
        ids = [pod.config["brokerId"] for pod in first]
        assert len(ids) == len(set(ids)), "two members of one id"
        seen.add(tuple(ids))
    assert roles(world) == {0: "SLAVE 2 6", 1: "SLAVE 1 6", 2: "ASYNC_MASTER 0 6"}


@functools.cache
def undisturbed() -> tuple[dict[str, Any], int]:
    world = switched(tick=4.0)
    return final_state(world), world.effects


@pytest.mark.few(1, 2)
@pytest.mark.parametrize("part", range(8))
def test_an_operator_that_dies_after_any_effect_ends_the_same(part: int) -> None:
    wanted, effects = undisturbed()
    for index in range(1 + part, effects + 1, 8):
        world = delivered()
        world.ask()
        world.operator.crashes = {index}
        world.run(tick=4.0)
        assert final_state(world) == wanted, f"died after effect {index}"


@pytest.mark.few(1)
@pytest.mark.parametrize("switches_first", [False, True])
def test_an_operator_that_dies_after_every_effect_ends_the_same(switches_first: bool) -> None:
    wanted, _ = undisturbed()
    world = delivered()
    world.operator.switches_first = switches_first
    world.ask()
    world.run_in_short_lives()
    assert final_state(world) == wanted


@pytest.mark.parametrize("step", BEFORE)
def test_deletion_before_the_stop_leaves_all_as_it_was(step: str) -> None:
    world = delivered()
    world.ask()
    world.run(until=reached(step))
    world.delete()
    world.run()
    assert world.switches == {}
    assert roles(world) == AS_BEFORE
    assert world.shown_permission == 6
    assert world.recorded == 0
    assert nothing_is_left(world)


@pytest.mark.few(2)
@pytest.mark.parametrize("step", AFTER)
def test_deletion_after_the_stop_only_ends_the_switch(step: str) -> None:
    world = delivered()
    world.ask()
    world.run(until=reached(step))
    world.delete()
    world.reconcile()
    held = step in role_switch.HELD_BY_OBJECT
    assert ("swap" in world.switches) == held, "kept while its snapshot is needed"
    world.run()
    assert world.switches == {}
    assert roles(world) == SWAPPED
    assert nothing_is_left(world)


@pytest.mark.parametrize("step", some(role_switch.PLANNED, 3))
def test_an_object_that_vanishes_without_its_finalizer_is_finished_from_the_status(
    step: str,
) -> None:
    world = delivered()
    world.ask()
    world.run(until=reached(step))
    del world.switches["swap"]
    world.snapshots.clear()
    world.run()
    assert roles(world) == (AS_BEFORE if step in BEFORE else SWAPPED)
    assert world.shown_permission == 6
    assert nothing_is_left(world)


@pytest.mark.parametrize(
    ("on_timeout", "reason"), [("Rollback", "RolledBack"), ("Fail", "TimedOut")]
)
@pytest.mark.parametrize("step", BEFORE[1:])
def test_a_time_out_before_the_stop_is_undone(step: str, on_timeout: str, reason: str) -> None:
    world = delivered()
    world.ask(timeoutSeconds=60, onTimeout=on_timeout)
    world.run(until=reached(step))
    world.now += 61
    world.run()
    assert (world.phase, world.reason("Failed")) == ("Failed", reason)
    assert roles(world) == AS_BEFORE
    assert world.shown_permission == 6
    assert nothing_is_left(world)
    assert [step["name"] for step in world.switch_status["steps"]][-1] in ("RollBack", step)


@pytest.mark.few(2)
@pytest.mark.parametrize("step", AFTER)
def test_a_time_out_after_the_stop_is_ignored(step: str) -> None:
    world = delivered()
    world.ask(timeoutSeconds=60)
    world.run(until=reached(step), tick=1.0)
    world.now += 3600
    world.run()
    assert world.phase == "Complete"
    world.settle(10)  # an old master that nobody waited for comes back
    assert roles(world) == SWAPPED


def test_the_target_is_not_restarted_before_both_files_have_their_new_role() -> None:
    world = delivered()
    world.ask()
    until = lambda at: "recorded" in at.status.get("currentOperation", {}).get("data", {})  # noqa: E731
    world.run(until=until, tick=1.0)
    cluster, observed = world.cluster, world.observe()
    (running,) = operations_from_status(world.status)
    state = ClusterState(cluster, world.status, observed, world.now, (running,))
    shape = role_switch.reshape(state.base_shape, cluster, running)
    rendered = render_cluster(cluster, world.name_servers, CONTEXT, shape=shape)
    desired = children.by_key(rendered)
    found = role_switch.advance(StepContext(state, desired, running))
    assert found.actions == ()
    assert found.operation == running


@pytest.mark.few(2, 12)
@pytest.mark.parametrize(("step", "ordinal"), some(product(role_switch.PLANNED, [0, 1]), 5))
def test_a_member_killed_in_any_step_delays_the_switch(step: str, ordinal: int) -> None:
    world = delivered()
    world.ask()
    world.run(until=reached(step))
    world.kill(0, ordinal)
    world.run()
    assert (world.phase, roles(world)) in (("Complete", SWAPPED), ("Failed", AS_BEFORE))
    world.run(until=lambda at: not at.step)  # a member that started by an older file is rolled
    assert nothing_is_left(world)


@pytest.mark.full
@settings(max_examples=examples(10, 3), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_interruption_makes_two_masters(data: st.DataObject) -> None:
    members = data.draw(st.integers(2, 3), label="members")
    world = delivered(members)
    world.ask(offsetPolicy=data.draw(st.sampled_from(["CopyMax", "WaitSync", "None"])))
    what = st.sampled_from(["operator", "kill", "delete", "late", "none", "none"])
    for _ in range(data.draw(st.integers(1, 8), label="interruptions")):
        passes = itertools.count()
        wait = data.draw(st.integers(0, 30), label="passes")
        world.run(until=lambda at, n=passes, w=wait: next(n) >= w or is_over(at))  # type: ignore[misc]
        match data.draw(what, label="what"):
            case "operator":
                world.operator.crashes = {world.effects + data.draw(st.integers(1, 5))}
            case "kill":
                world.kill(0, data.draw(st.integers(0, members - 1)))
            case "delete" if "swap" in world.switches:
                world.delete()
            case "late":
                world.now += 700
    world.run()
    world.settle(300)  # what was killed last comes back, and a Roll may follow the switch
    assert world.most_masters == 1
    final = roles(world)
    assert sum(role.startswith("ASYNC_MASTER 0 6") for role in final.values()) == 1
    assert len(final) == members
    assert nothing_is_left(world)


# --- offsets ------------------------------------------------------------------------------------


def test_copy_max_carries_over_what_the_slave_had_not_copied() -> None:
    world = delivered()
    world.ask()
    world.run(until=reached("SyncOffsets"))
    world.traffic = 0
    world.store(0, 0).offsets["LATE@G"] = {3: 50}
    world.running(0, 1).synced_at = world.now + 10**6
    world.run()
    assert world.store(0, 1).offsets["LATE@G"] == {3: 50}
    assert world.switch_status["offsetsCopied"] == 1
    assert world.reason("Safe") == "Safe"


def test_copy_max_lowers_nothing() -> None:
    world = delivered()
    world.ask()
    world.run(until=reached("StartNewMaster"))
    world.traffic = 0
    world.store(0, 1).offsets["T@G"] = {0: 10**9}
    world.run()
    assert world.store(0, 1).offsets["T@G"] == {0: 10**9}
    assert world.switch_status["offsetsLowered"] == 1


def test_policy_none_carries_over_nothing_and_says_so() -> None:
    world = delivered()
    world.ask(offsetPolicy="None")
    world.run(until=reached("SyncOffsets"))
    world.traffic = 0
    world.store(0, 0).offsets["LATE@G"] = {3: 50}
    world.running(0, 1).synced_at = world.now + 10**6
    world.run()
    assert "LATE@G" not in world.store(0, 1).offsets
    assert (world.phase, world.reason("Safe")) == ("Complete", "OffsetPolicyNone")


def test_wait_sync_waits_for_the_slave_and_applies_nothing() -> None:
    world = delivered()
    world.ask(offsetPolicy="WaitSync")
    world.run(until=reached("SyncOffsets"))
    world.traffic = 0
    world.store(0, 0).offsets["LATE@G"] = {3: 50}
    world.run()
    assert world.store(0, 1).offsets["LATE@G"] == {3: 50}
    assert "offsetsCopied" not in world.switch_status


def test_wait_sync_that_never_comes_is_undone() -> None:
    world = delivered()
    world.ask(offsetPolicy="WaitSync", timeoutSeconds=120)
    world.run(until=reached("SyncOffsets"))
    world.store(0, 0).offsets["LATE@G"] = {3: 50}
    world.running(0, 1).synced_at = world.now + 10**6
    world.run()
    assert (world.phase, world.reason("Failed")) == ("Failed", "RolledBack")
    assert roles(world) == AS_BEFORE


def test_a_table_too_large_for_an_object_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_BYTES", 30)
    world = switched()
    assert (world.phase, world.reason("Failed")) == ("Failed", "OffsetTableTooLarge")
    assert "StopOldMaster" not in world.steps_seen
    assert roles(world) == AS_BEFORE
    assert nothing_is_left(world)


def test_a_snapshot_of_an_earlier_switch_is_not_taken_for_this_one() -> None:
    world = delivered()
    world.ask()
    world.run(until=reached("SyncOffsets"))
    other = SaveSnapshot("fbs-swap", {}, {"OLD@G": {0: 10**6}}, "000000000000/final")
    old = snapshot.manifest(other, "shop", "orders")
    old["metadata"]["uid"] = "cm-old"
    world.snapshots["fbs-swap"] = old
    world.run()
    assert "OLD@G" not in world.store(0, 1).offsets
    assert TOPIC_GROUP in world.store(0, 1).offsets
