"""Forced role switches, diverged members, leases, and what a switch waits for before it begins."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.operations import role_switch
from failback.operator.planning.plan.encoding import to_time
from tests.support.operator.switch_world import SwitchWorld, delivered, roles

SWAPPED = {0: "SLAVE 1 6", 1: "ASYNC_MASTER 0 6"}
AS_BEFORE = {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}


def blocked(world: SwitchWorld) -> list[str]:
    return list(world.switch_status.get("blockedBy", ()))


def failure(world: SwitchWorld) -> str:
    conditions = world.switch_status["conditions"]
    return next(str(item["message"]) for item in conditions if item["type"] == "Failed")


def dead_master(members: int = 2, *, lost_node: bool = True) -> SwitchWorld:
    world = delivered(members, failover="Manual")
    world.kill(0, 0, lost_node=lost_node)
    return world


# --- forced -------------------------------------------------------------------------------------


def test_a_forced_switch_takes_the_short_way() -> None:
    world = dead_master()
    world.stuck.clear()
    world.ask(mode="Forced", timeoutSeconds=60)
    world.run(until=lambda at: at.step == "RejoinOldMaster")
    world.broken.clear()
    world.run()
    assert [step["name"] for step in world.switch_status["steps"]] == list(role_switch.FORCED)
    assert (world.phase, world.reason("Safe")) == ("Complete", "Forced")
    assert roles(world) == SWAPPED
    assert "SyncOffsets" not in world.steps_seen


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        ({"lag": "Under1Mi"}, "Under1Mi"),
        ({"lag": "Unknown", "lastLag": "FallenBehind"}, "FallenBehind"),
        ({"lag": "Unknown"}, "Unknown"),
        ({}, "Unknown"),
    ],
)
def test_what_is_known_of_the_targets_lag_is_shown_and_kept(
    known: dict[str, str], shown: str
) -> None:
    world = dead_master()
    world.status["pairs"] = [{"index": 0, "members": [{"ordinal": 0}, {"ordinal": 1, **known}]}]
    world.ask(mode="Forced", timeoutSeconds=60)
    world.settle(10)
    assert (world.phase, world.switch_status["targetLag"]) == ("Pending", shown)
    world.settle(40)
    world.status["pairs"] = []
    world.settle(10)
    assert world.phase == "Running"
    assert world.switch_status["targetLag"] == shown


def test_a_forced_switch_begins_30_seconds_after_the_master_left_the_routes() -> None:
    world = dead_master()
    world.ask(mode="Forced")
    world.settle(25)
    assert (world.phase, blocked(world)) == ("Pending", ["MasterUnregistered"])
    world.settle(10)
    assert world.phase == "Running"


def test_a_forced_switch_from_a_master_that_is_held_down_begins_at_once() -> None:
    world = delivered(failover="Manual")
    world.annotate(hold_member="orders-0-0")
    world.run(until=lambda at: at.pod(0, 0) is None)
    world.ask(mode="Forced")
    world.settle(10)
    assert world.phase == "Running"


def test_a_forced_switch_does_not_touch_a_master_that_lives() -> None:
    world = delivered(failover="Manual")
    world.ask(mode="Forced", timeoutSeconds=60)
    world.settle(30)
    assert blocked(world) == ["OldMasterDown", "MasterUnregistered"]
    world.run()
    assert (world.phase, world.reason("Failed")) == ("Failed", "TimedOut")
    assert roles(world) == AS_BEFORE


@pytest.mark.full
def test_a_forced_switch_waits_for_a_fence_while_the_old_pod_hangs() -> None:
    world = dead_master()
    world.ask(mode="Forced")
    world.settle(300, tick=5.0)
    assert world.step == "StopOldMaster"
    assert blocked(world) == ["OldMasterFenced"]
    assert not world.running(0, 1).is_master
    world.fenced = frozenset({"node-uid-1"})
    world.settle(30)
    assert world.step == "StopOldMaster", "another node's fence does not count"
    world.fenced = frozenset({"node-uid-0"})
    world.run()
    assert world.phase == "Complete"
    assert roles(world) == {1: "ASYNC_MASTER 0 6"}


def test_an_old_master_that_never_returns_does_not_hold_the_cluster_for_ever() -> None:
    world = dead_master()
    world.fenced = frozenset({"node-uid-0"})
    world.ask(mode="Forced", timeoutSeconds=60)
    world.run(tick=5.0)
    assert (world.phase, world.reason("Safe")) == ("Complete", "PrefixUnverified")
    rejoin = next(
        step for step in world.switch_status["steps"] if step["name"] == "RejoinOldMaster"
    )
    assert rejoin["evidence"] == {"rejoined": False}


@pytest.mark.few(1, 3)
@pytest.mark.parametrize("step", role_switch.FORCED)
def test_a_forced_switch_survives_the_operator_in_every_step(step: str) -> None:
    world = dead_master()
    world.fenced = frozenset({"node-uid-0"})
    world.ask(mode="Forced", timeoutSeconds=60)
    world.run(until=lambda at: at.step == step)
    world.run_in_short_lives(tick=5.0)
    assert world.phase == "Complete"
    assert roles(world) == {1: "ASYNC_MASTER 0 6"}


def test_a_diverged_old_master_is_reported_and_stays_out() -> None:
    world = dead_master(lost_node=False)
    world.broken.add((0, 0))
    world.store(0, 0).diverged = True
    world.ask(mode="Forced")
    world.run(until=lambda at: at.step == "RejoinOldMaster")
    world.broken.clear()
    world.run()
    assert (world.phase, world.reason("Safe")) == ("Complete", "Diverged")
    assert roles(world) == {1: "ASYNC_MASTER 0 6"}
    found = world.pod(0, 0)
    assert found is not None
    assert found.prefix == "Diverged"
    told = [event.message for event in world.events if event.reason == "SlaveDiverged"]
    assert any("77 bytes" in message for message in told)
    steps = {step["name"]: step.get("evidence", {}) for step in world.switch_status["steps"]}
    assert steps["RejoinOldMaster"]["tailBytes"] == 77


def test_an_old_master_that_is_ahead_does_not_attach() -> None:
    world = dead_master(lost_node=False)
    world.broken.add((0, 0))
    world.store(0, 0).end += 10**9
    world.ask(mode="Forced")
    world.run(until=lambda at: at.step == "RejoinOldMaster")
    world.broken.clear()
    world.run()
    assert (world.phase, world.reason("Safe")) == ("Complete", "Diverged")
    assert 0 not in roles(world)


# --- refused for good ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"targetMember": 0}, "member 0 is already master of pair 0"),
        ({"targetMember": 3}, "pair orders-0 has no member 3"),
        ({"pair": "orders-5"}, "cluster orders has no pair orders-5"),
        ({"mode": "Forced"}, "mode Forced needs failover.mode Manual on the cluster"),
    ],
)
def test_what_cannot_be_done_fails_at_once_and_touches_nothing(
    spec: dict[str, Any], told: str
) -> None:
    world = delivered()
    world.ask(**spec)
    world.run()
    assert (world.phase, world.reason("Failed")) == ("Failed", "Preflight")
    assert failure(world) == told
    assert world.effects == 1, "only its own status was written"
    assert [event.reason for event in world.events] == ["RoleSwitchFailed"]


def test_a_forced_switch_names_the_member_that_has_more() -> None:
    world = dead_master(3)
    world.store(0, 2).end += 1000
    world.ask(mode="Forced")
    world.run()
    assert world.reason("Failed") == "Preflight"
    assert failure(world) == "orders-0-2 has more of the log than the target"


# --- what it waits for --------------------------------------------------------------------------


def test_a_paused_cluster_blocks_and_the_switch_times_out_untouched() -> None:
    world = delivered()
    world.annotate(pause_reconciliation="true")
    world.ask(timeoutSeconds=60)
    world.settle(30)
    assert (world.phase, blocked(world)) == ("Pending", ["NotPaused"])
    world.run()
    assert (world.phase, world.reason("Failed")) == ("Failed", "TimedOut")
    assert failure(world) == "did not begin within 60 s, waiting for NotPaused"
    assert roles(world) == AS_BEFORE
    assert world.steps_seen == []


@pytest.mark.full
def test_a_second_switch_waits_for_the_first() -> None:
    world = delivered()
    world.ask()
    world.settle(5)
    world.ask("later", targetMember=0)
    world.settle(5)
    later = world.switches["later"]
    assert later["status"]["phase"] == "Failed", "member 0 is master still"
    del world.switches["later"]
    world.run(until=lambda at: at.step == "RejoinOldMaster")
    world.ask("later", targetMember=0)
    world.settle(3)
    assert "PairFree" in world.switches["later"]["status"]["blockedBy"]
    world.run()
    assert roles(world) == AS_BEFORE


def test_a_lease_of_somebody_else_ends_the_switch() -> None:
    world = delivered()
    world.hold_lease("failback-orders-0", "somebody", 600)
    world.ask()
    world.run()
    assert (world.phase, world.reason("Failed")) == ("Failed", "LeaseHeld")
    assert roles(world) == AS_BEFORE
    assert "failback-orders-0" in world.leases


def test_an_expired_lease_is_taken_over() -> None:
    world = delivered()
    world.hold_lease("failback-orders-0", "somebody", 60)
    world.now += 61
    world.ask()
    world.run()
    assert world.phase == "Complete"


def test_a_lease_lost_after_the_stop_holds_the_switch_until_it_expires() -> None:
    world = delivered()
    world.ask()
    world.run(until=lambda at: at.step == "StartNewMaster")
    world.hold_lease("failback-orders-0", "somebody", 60)
    world.settle(20)
    assert world.step == "StartNewMaster"
    assert world.status["currentOperation"]["blockedBy"] == ["LeaseHeld"]
    world.run()
    assert world.phase == "Complete"


def test_a_lease_is_renewed_while_the_switch_runs() -> None:
    world = delivered()
    world.ask()
    world.run(until=lambda at: at.step == "Replicate")
    renewed = world.leases["failback-orders-0"]["spec"]["renewTime"]
    assert renewed > to_time(world.now - 20)


def test_another_slave_with_more_of_the_log_blocks_the_handover() -> None:
    world = delivered(3)
    world.ask(timeoutSeconds=120)
    world.run(until=lambda at: at.step == "Replicate")
    world.store(0, 2).diverged = True
    world.store(0, 2).end += 10**6
    world.settle(30)
    assert world.status["currentOperation"]["blockedBy"] == ["TargetMostAdvanced"]
    world.run()
    assert (world.phase, world.reason("Failed")) == ("Failed", "RolledBack")


@pytest.mark.full
def test_a_slave_found_ahead_of_the_new_master_stops_until_writes_are_open() -> None:
    world = delivered(3)
    world.ask()
    world.run(until=lambda at: at.step == "StartNewMaster")
    world.store(0, 2).diverged = True
    world.store(0, 2).end += 10**6
    world.run(until=lambda at: at.step == "OpenWrites")
    assert 2 not in roles(world)
    assert world.objects[("StatefulSet", "orders-0-2")]["spec"]["replicas"] == 0
    world.run()
    assert world.objects[("StatefulSet", "orders-0-2")]["spec"]["replicas"] == 1
    found = world.pod(0, 2)
    assert found is not None
    assert found.prefix == "Diverged"
    assert roles(world) == SWAPPED


def test_a_lag_that_was_allowed_is_said() -> None:
    world = delivered()
    world.ask(maxLagBytes=1000)
    world.run(until=lambda at: at.step == "Replicate")
    world.store(0, 1).diverged = True
    world.store(0, 1).end -= 500
    world.run(until=lambda at: at.step == "StopOldMaster")
    world.store(0, 1).diverged = False
    world.store(0, 0).end -= 500  # what only the old master had is cut off, so that it may return
    world.run()
    assert (world.phase, world.reason("Safe")) == ("Complete", "LagAccepted")


def test_nobody_becomes_master_while_a_name_server_lists_one() -> None:
    world = delivered()
    world.ask()
    world.run(until=lambda at: at.step == "StopOldMaster")
    world.strays["ns-1:9876"] = {"orders-0": {0: "10.9.9.9:10911"}}
    world.settle(120)
    assert world.step == "StopOldMaster"
    assert world.status["currentOperation"]["blockedBy"] == ["MasterUnregistered"]
    assert roles(world) == {1: "SLAVE 1 6"}
    world.strays.clear()
    world.run()
    assert world.phase == "Complete"


# --- its end ------------------------------------------------------------------------------------


def test_a_finished_switch_goes_when_its_time_has_come() -> None:
    world = delivered()
    world.ask(ttlSecondsAfterFinished=60)
    world.run()
    world.settle(56)
    assert "swap" in world.switches
    world.settle(10)
    assert world.switches == {}


def test_deletion_that_cannot_be_undone_in_a_minute_lets_the_object_go() -> None:
    world = delivered()
    world.ask()
    world.run(until=lambda at: at.step == "Replicate")
    world.kill(0, 0, lost_node=True)
    world.delete()
    world.settle(50)
    assert "swap" in world.switches
    world.settle(30)
    assert world.switches == {}
    world.run()
    assert not world.leases
    assert world.pod(0, 0) is not None
    text = world.objects[("ConfigMap", "orders-0-0")]["data"]["broker.conf"]
    assert "brokerPermission=6" in text


def test_a_switch_that_ended_is_never_begun_again() -> None:
    world = delivered()
    world.ask()
    world.run()
    world.settle(10)  # the cluster notes that its new generation is in place
    effects = world.effects
    world.settle(60)
    assert world.effects == effects


def test_a_second_master_holds_the_switch_where_it_is() -> None:
    world = delivered()
    world.ask()
    world.run(until=lambda at: at.step == "OpenWrites")
    world.strays["ns-1:9876"] = {"orders-0": {0: "10.9.9.9:10911"}}
    world.settle(60)
    assert world.step == "OpenWrites"
    assert world.status["currentOperation"]["blockedBy"] == ["SingleMaster"]
    assert roles(world)[1] == "ASYNC_MASTER 0 4", "nothing was written to it"
    world.strays.clear()
    world.run()
    assert world.phase == "Complete"
