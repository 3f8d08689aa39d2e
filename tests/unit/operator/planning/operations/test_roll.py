"""Rolling: the order, the closed pair, what blocks, and what is done about a bad image."""

from __future__ import annotations

import pytest

from failback.operator.planning.plan.encoding import operations_from_status
from failback.operator.planning.plan.types import Event, Evict, SetConfig
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World

ROLL = {"config": {"flushConsumerOffsetInterval": "4000"}}


def evicted(world: World) -> list[str]:
    return [action.pod for action in world.log if isinstance(action, Evict)]


def permissions(world: World) -> list[tuple[tuple[int, int], str]]:
    return [
        (action.member, action.values["brokerPermission"])
        for action in world.log
        if isinstance(action, SetConfig) and "brokerPermission" in action.values
    ]


def told(world: World, reason: str) -> list[str]:
    return [event.message for event in world.events if event.reason == reason]


def test_slaves_go_before_their_master_pair_by_pair() -> None:
    world = steady(pairs=2, slavesPerPair=2)
    world.edit(**ROLL)
    Run(world).until_steady()
    assert evicted(world) == [
        "orders-0-2-0",
        "orders-0-1-0",
        "orders-0-0-0",
        "orders-1-2-0",
        "orders-1-1-0",
        "orders-1-0-0",
    ]
    assert not world.violations
    assert world.running(0, 0).config["flushConsumerOffsetInterval"] == "4000"
    assert world.status["pendingRestarts"] == []


def test_a_pair_is_closed_while_its_master_goes_and_opened_after() -> None:
    world = steady(pairs=2)
    world.edit(**ROLL)
    run = Run(world).until(lambda: run_is_evicting_master(world))
    closed_at = world.now
    assert world.running(0, 0).config["brokerPermission"] == "4"
    run.until_steady()
    assert permissions(world) == [((0, 0), "4"), ((0, 0), "6"), ((1, 0), "4"), ((1, 0), "6")]
    first = next(i for i, a in enumerate(world.log) if isinstance(a, SetConfig))
    eviction = next(i for i, a in enumerate(world.log) if isinstance(a, Evict) and i > first)
    assert world.log[eviction].pod == "orders-0-0-0"  # type: ignore[union-attr]
    assert closed_at  # reached at all


def run_is_evicting_master(world: World) -> bool:
    operation = world.status.get("currentOperation") or {}
    return operation.get("step") == "EvictMember" and operation.get("member") == 0


def test_clients_get_35_seconds_to_see_that_a_pair_is_closed() -> None:
    world = steady(pairs=2)
    world.edit(**ROLL)
    run = Run(world).until(lambda: world.running(0, 0).config["brokerPermission"] == "4")
    shut = world.now
    run.until(lambda: "orders-0-0-0" in evicted(world))
    assert world.now - shut >= 35


def test_without_drain_master_nothing_is_closed() -> None:
    world = steady(updateStrategy={"drainMaster": False})
    world.edit(**ROLL)
    Run(world).until_steady()
    assert evicted(world) == ["orders-0-1-0", "orders-0-0-0"]
    assert permissions(world) == []


def test_on_delete_only_tells_who_waits() -> None:
    world = steady(updateStrategy={"type": "OnDelete"})
    world.edit(**ROLL)
    Run(world).for_passes(10)
    assert evicted(world) == []
    assert world.status["pendingRestarts"] == [
        {"member": "orders-0-0", "reasons": ["ConfigChanged"]},
        {"member": "orders-0-1", "reasons": ["ConfigChanged"]},
    ]
    world.take_pod(0, 1)
    Run(world).for_passes(10)
    assert [row["member"] for row in world.status["pendingRestarts"]] == ["orders-0-0"]


def test_a_live_key_rolls_nothing() -> None:
    world = steady()
    before = {name: (pod.uid, pod.revision) for name, pod in world.pods.items()}
    world.edit(slaveReadEnable=True, config={"fileReservedTime": "24"})
    Run(world).until_steady()
    assert {name: (pod.uid, pod.revision) for name, pod in world.pods.items()} == before


def test_restart_rolls_every_pod_with_reason_manual() -> None:
    world = steady()
    world.annotate(restart="2026-01-01T00:00:00Z")
    Run(world).until_steady()
    assert evicted(world) == ["orders-0-1-0", "orders-0-0-0"]
    assert told(world, "PodRestart") == ["Manual: orders-0-1", "Manual: orders-0-0"]


def test_restart_member_rolls_one_member_once_and_goes() -> None:
    world = steady(pairs=2, updateStrategy={"type": "OnDelete"})
    world.annotate(restart_member="orders-1-0")
    Run(world).until_steady()
    assert evicted(world) == ["orders-1-0-0"]
    assert permissions(world) == [((1, 0), "4"), ((1, 0), "6")]
    assert "failback.dev/restart-member" not in world.document["metadata"]["annotations"]


def test_restart_member_of_nobody_does_nothing() -> None:
    world = steady()
    world.annotate(restart_member="orders-7-0")
    Run(world).for_passes(10)
    assert evicted(world) == []


def test_a_bad_image_stops_at_the_first_member_and_its_correction_replaces_that_first() -> None:
    world = steady(pairs=2)
    world.broken_images = {"bad"}
    world.edit(engine={"type": "Failback", "image": "bad"})
    run = Run(world)
    run.until(lambda: run.at_step("Roll/WaitReady"))
    run.until(lambda: bool(told(world, "OperationTimedOut")))
    run.for_passes(20)
    assert evicted(world) == ["orders-0-1-0"]
    timed_out = [e for e in world.events if e.reason == "OperationTimedOut"]
    assert timed_out == [Event("OperationTimedOut", "Roll at WaitReady", warning=True)]
    world.edit(engine={"type": "Failback", "image": "good"})
    run.until_steady()
    assert evicted(world) == [
        "orders-0-1-0",
        "orders-0-1-0",
        "orders-0-0-0",
        "orders-1-1-0",
        "orders-1-0-0",
    ]
    assert told(world, "PodRestart")[0].startswith("ImageChanged")


def test_a_cluster_born_with_a_bad_image_is_cured_by_a_good_one() -> None:
    world = World(pairs=2, engine={"type": "Failback", "image": "bad"})
    world.broken_images = {"bad"}
    Run(world).for_passes(20)
    world.edit(engine={"type": "Failback", "image": "good"})
    Run(world).until_steady()
    assert len(evicted(world)) == 4
    assert all(pod.up for pod in world.pods.values())


def test_nothing_is_evicted_while_another_pair_is_down() -> None:
    world = steady(pairs=2)
    world.annotate(hold_member="orders-1-1")
    Run(world).for_passes(5)
    world.edit(**ROLL)
    Run(world).for_passes(40)
    assert evicted(world) == []
    assert "NoOtherPairDisrupted" in world.status["currentOperation"]["blockedBy"]
    world.annotate(hold_member="")
    Run(world).until_steady()
    assert len(evicted(world)) >= 3


@pytest.mark.parametrize("predicate", ["SingleMaster", "NoChaosRunning", "PrefixVerified"])
def test_a_false_predicate_is_named_and_nothing_is_evicted(predicate: str) -> None:
    world = steady()
    if predicate == "SingleMaster":
        world.registered["orders-0"][0] = "10.9.9.9:10911"
    elif predicate == "NoChaosRunning":
        world.experiments = [
            {"metadata": {"name": "x"}, "spec": {}, "status": {"phase": "Injecting"}}
        ]
    else:
        world.running(0, 1).prefix = "Diverged"
    world.edit(**ROLL)
    Run(world).for_passes(60)
    assert evicted(world) == []
    assert predicate in world.status["currentOperation"]["blockedBy"]
    assert told(world, "OperationBlocked")


def test_a_roll_pauses_at_a_step_and_goes_on() -> None:
    world = steady()
    world.edit(**ROLL)
    run = Run(world)
    run.until(lambda: run.at_step("Roll/WaitReady"))
    world.annotate(pause_reconciliation="true")
    before = len(world.log)
    run.for_passes(30)
    assert len(world.log) == before
    assert world.status["currentOperation"]["step"] == "WaitReady"
    world.annotate(pause_reconciliation="false")
    run.until_steady()
    assert evicted(world) == ["orders-0-1-0", "orders-0-0-0"]


def test_a_closed_pair_whose_slave_died_is_opened_again_while_it_waits() -> None:
    world = steady(pairs=2)
    world.edit(**ROLL)
    run = Run(world)
    run.until(lambda: run_is_evicting_master(world) or run.at_step("Roll/DrainMaster"))
    world.start_seconds = 300
    world.take_pod(0, 1)
    run.until(lambda: permissions(world)[-1:] == [((0, 0), "6")])
    assert "orders-0-0-0" not in evicted(world)
    run.until_steady()
    assert "orders-0-0-0" in evicted(world)
    assert world.running(0, 0).config["brokerPermission"] == "6"
    assert not world.violations


def resizes(world: World, pair: int) -> bool:
    found = operations_from_status(world.status)
    return any((item.type, item.pair) == ("VolumeResize", pair) for item in found)


def test_a_more_urgent_cause_waits_until_the_pair_is_open_again() -> None:
    world = steady(pairs=2)
    world.edit(**ROLL)
    run = Run(world)
    run.until(lambda: run.at_step("Roll/DrainMaster"))
    run.until(lambda: world.running(0, 0).config["brokerPermission"] == "4")
    world.edit(storage={"size": "40Gi"})
    run.until(lambda: resizes(world, 0))
    assert world.running(0, 0).config["brokerPermission"] == "6"
    assert "orders-0-0-0" not in evicted(world)
    run.until_steady()
    assert [name for name in evicted(world) if name == "orders-0-0-0"] == ["orders-0-0-0"]
    assert "pendingRestarts" not in world.status or world.status["pendingRestarts"] == []


def test_an_eviction_under_way_is_waited_for() -> None:
    world = steady(pairs=2)
    world.edit(**ROLL)
    run = Run(world)
    run.until(lambda: run.at_step("Roll/WaitReady"))
    world.edit(storage={"size": "40Gi"})
    run.until(lambda: resizes(world, 0))
    assert world.running(0, 1).config["flushConsumerOffsetInterval"] == "4000"
    run.until_steady()


def test_slaves_get_time_to_reconnect_before_their_master_takes_writes() -> None:
    world = steady(pairs=2)
    world.edit(**ROLL)
    run = Run(world)
    run.until(lambda: "orders-0-0-0" in evicted(world))
    run.until(lambda: run.at_step("Roll/WaitReplicated"))
    registered = world.now
    run.until(lambda: run.at_step("Roll/OpenWrites"))
    assert world.now - registered >= 6


@pytest.mark.parametrize("behind", ["controller", "file", "template"])
def test_no_pod_goes_before_its_successor_would_be_of_the_wanted_template(behind: str) -> None:
    world = steady()
    world.edit(**ROLL)
    run = Run(world)
    run.until(lambda: run.at_step("Roll/EvictMember"))
    statefulset = world.objects["StatefulSet", "orders-0-1"]
    file = world.objects["ConfigMap", "orders-0-1"]
    if behind == "controller":
        status = {**statefulset["status"], "observedGeneration": 1}
        world.put({**statefulset, "status": status})
    elif behind == "file":
        world.put({**file, "data": {"broker.conf": ""}})
    else:
        spec = {**statefulset["spec"], "serviceName": "another"}
        world.put({**statefulset, "spec": spec})
    run.one_pass()
    assert evicted(world) == []
    run.until_steady()
    assert evicted(world) == ["orders-0-1-0", "orders-0-0-0"]


def test_a_held_member_blocks_the_roll_of_its_pair() -> None:
    world = steady()
    world.annotate(hold_member="orders-0-1")
    Run(world).for_passes(5)
    assert world.pod(0, 1) is None
    world.edit(**ROLL)
    Run(world).for_passes(40)
    assert evicted(world) == []
    assert "NoOtherMemberDown" in world.status["currentOperation"]["blockedBy"]
