"""Storage grows around running pods; a slave's volume is wiped once, by uid."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.operations import resync
from failback.operator.planning.plan.types import (
    Delete,
    DeletePod,
    Evict,
    ReleaseLease,
    ResizeClaim,
    TakeLease,
)
from tests.support.operator.planning_run import Run, steady
from tests.support.operator.planning_world import World


def told(world: World, reason: str) -> list[str]:
    return [event.message for event in world.events if event.reason == reason]


def warning(world: World) -> str:
    return str(next(c for c in world.status["conditions"] if c["type"] == "Warning")["message"])


# --- growth -------------------------------------------------------------------------------------


def test_claims_grow_slaves_first_and_pods_stay() -> None:
    world = steady(slavesPerPair=2)
    before = {name: pod.uid for name, pod in world.pods.items()}
    world.edit(storage={"size": "40Gi"})
    Run(world).until_steady()
    resized = [action.claim for action in world.log if isinstance(action, ResizeClaim)]
    assert resized == ["data-orders-0-2-0", "data-orders-0-1-0", "data-orders-0-0-0"]
    orphaned = [action for action in world.log if isinstance(action, Delete)]
    assert {action.propagation for action in orphaned} == {"Orphan"}
    assert {name: pod.uid for name, pod in world.pods.items()} == before
    templates = {
        each["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
        for key, each in world.objects.items()
        if key[0] == "StatefulSet"
    }
    assert templates == {"40Gi"}
    assert told(world, "VolumeResized") == ["orders-0 40Gi"]


def test_at_most_one_statefulset_is_missing_at_any_time() -> None:
    world = steady(slavesPerPair=3)
    world.edit(storage={"size": "40Gi"})
    run = Run(world)
    fewest = 4

    def look() -> bool:
        nonlocal fewest
        fewest = min(fewest, sum(kind == "StatefulSet" for kind, _ in world.objects))
        return bool(told(world, "VolumeResized"))

    run.until(look)
    assert fewest == 3


def test_a_file_system_that_grows_at_the_next_mount_rolls_its_members() -> None:
    world = steady()
    world.resize_needs_restart = True
    world.edit(storage={"size": "40Gi"})
    Run(world).until_steady()
    assert [a.pod for a in world.log if isinstance(a, Evict)] == ["orders-0-1-0", "orders-0-0-0"]
    assert {claim.capacity for claim in world.claims.values()} == {"40Gi"}
    assert told(world, "PodRestart")[0] == "VolumeResize: orders-0-1"


def test_a_class_that_does_not_grow_is_told_once_and_not_asked_again() -> None:
    world = steady()
    world.resize_refused = True
    world.edit(storage={"size": "40Gi"})
    run = Run(world).until_steady()
    asked = len([action for action in world.log if isinstance(action, ResizeClaim)])
    assert "VolumeResizeRefused" in warning(world)
    assert told(world, "VolumeResizeRefused") == ["data-orders-0-1-0: resize refused"]
    run.for_passes(50)
    world.edit(slaveReadEnable=False, storage={"size": "50Gi"})
    world.resize_refused = False
    assert len([action for action in world.log if isinstance(action, ResizeClaim)]) == asked
    run.until_steady()
    assert {claim.capacity for claim in world.claims.values()} == {"50Gi"}
    assert "VolumeResizeRefused" not in warning(world)


def test_a_pair_of_its_own_size_grows_alone() -> None:
    world = steady(pairs=2)
    world.edit(pairOverrides=[{"index": 1, "storageSize": "40Gi"}])
    Run(world).until_steady()
    sizes = {name: claim.requested for name, claim in world.claims.items()}
    assert sizes["data-orders-1-0-0"] == "40Gi"
    assert sizes["data-orders-0-0-0"] == "20Gi"


# --- resync -------------------------------------------------------------------------------------


def diverged(**spec: Any) -> World:
    """Return a cluster whose slave has a tail that its master never had."""
    world = steady(**spec)
    world.claims["data-orders-0-1-0"].store.end = 500
    world.take_pod(0, 1)
    Run(world).for_passes(5)
    assert world.pod(0, 1)
    assert world.pod(0, 1).prefix == "SlaveAhead"  # type: ignore[union-attr]
    return world


def order(world: World) -> None:
    """Give up what only the slave has, by its number of bytes."""
    world.annotate(force_resync_member=f"{world.claims['data-orders-0-1-0'].uid}:500")


def test_the_annotation_wipes_one_volume_and_the_slave_comes_back() -> None:
    world = diverged()
    uid = world.claims["data-orders-0-1-0"].uid
    order(world)
    run = Run(world).until_steady()
    assert run.steps == [
        "Resync/StopMember",
        "Resync/WipeClaim",
        "Resync/StartMember",
        "Resync/WaitReplicated",
    ]
    assert world.claims["data-orders-0-1-0"].uid != uid
    assert world.running(0, 1).store.end == 0
    assert world.leases == {}


@pytest.mark.parametrize("named", ["", ":0", ":499", ":many", ":-500"])
def test_a_longer_log_is_given_up_only_by_its_number_of_bytes(named: str) -> None:
    world = diverged()
    uid = world.claims["data-orders-0-1-0"].uid
    world.annotate(force_resync_member=f"{uid}{named}")
    Run(world).for_passes(20)
    assert world.claims["data-orders-0-1-0"].uid == uid
    ends = "the end of its log is at 500, its master's at 0: only it has 500 bytes"
    told = f"orders-0-1: {ends}; failback.dev/force-resync-member={uid}:500 gives that up"
    assert resync.refusal(world.state()) == told
    assert f"ResyncRefused: {told}" in warning(world)


def test_what_is_advised_for_a_longer_log_does_not_destroy_it() -> None:
    world = diverged()
    uid = world.claims["data-orders-0-1-0"].uid
    advised = next(
        item["message"]
        for item in world.status["conditions"]
        if item["type"] == "ReplicationHealthy"
    )
    assert "force-resync" not in advised
    assert "only it has 500 bytes" in advised
    name, _, value = advised.rpartition("failback.dev/")[2].partition("=")
    world.annotate(**{name.replace("-", "_"): value.split()[0]})
    Run(world).until_steady()
    assert world.running(0, 1).is_master
    assert world.running(0, 1).store.end == 500
    assert world.claims["data-orders-0-1-0"].uid == uid


def test_a_log_whose_end_nobody_knows_is_not_wiped_for_nothing() -> None:
    world = steady()
    world.broken.add((0, 1))
    world.take_pod(0, 1)
    Run(world).for_passes(5)
    world.claims["data-orders-0-1-0"].marks.pop("failback.dev/log-end")
    uid = world.claims["data-orders-0-1-0"].uid
    world.annotate(force_resync_member=uid)
    Run(world).for_passes(10)
    assert f"{uid}:all gives that up" in str(resync.refusal(world.state()))
    world.annotate(force_resync_member=f"{uid}:all")
    assert resync.refusal(world.state()) is None


def test_an_order_that_is_taken_back_before_the_wiping_wipes_nothing() -> None:
    world = diverged()
    uid = world.claims["data-orders-0-1-0"].uid
    order(world)
    run = Run(world)
    run.until(lambda: run.at_step("Resync/WipeClaim"))
    del world.annotations["failback.dev/force-resync-member"]
    run.for_passes(20)
    assert world.claims["data-orders-0-1-0"].uid == uid


def test_the_same_annotation_never_fires_twice() -> None:
    world = diverged()
    order(world)
    Run(world).until_steady()
    world.log.clear()
    Run(world).for_passes(20)
    assert not [action for action in world.log if isinstance(action, Delete)]


def test_the_lease_surrounds_the_wiping() -> None:
    world = diverged()
    order(world)
    Run(world).until_steady()
    kinds = [
        type(action).__name__
        for action in world.log
        if isinstance(action, (TakeLease, ReleaseLease, Delete))
    ]
    assert kinds[0] == "TakeLease"
    assert kinds[-1] == "ReleaseLease"
    assert "Delete" in kinds


def test_a_lease_of_somebody_else_is_waited_for() -> None:
    world = diverged()
    world.carry_out(TakeLease("failback-orders-0", "somebody", 10_000_000))
    order(world)
    Run(world).for_passes(30)
    assert world.status["currentOperation"]["blockedBy"] == ["LeaseHeld"]
    assert not [action for action in world.log if isinstance(action, Delete)]


def test_a_master_is_never_wiped() -> None:
    world = steady()
    world.annotate(force_resync_member=world.claims["data-orders-0-0-0"].uid)
    Run(world).for_passes(10)
    assert not [action for action in world.log if isinstance(action, Delete)]
    why = resync.refusal(world.state())
    assert why == "orders-0-0 is the master of its pair"
    assert f"ResyncRefused: {why}" in warning(world)


def test_the_only_copy_is_never_wiped() -> None:
    world = steady()
    world.annotate(hold_member="orders-0-0")
    Run(world).for_passes(5)
    world.annotate(force_resync_member=world.claims["data-orders-0-1-0"].uid)
    Run(world).for_passes(20)
    assert not [action for action in world.log if isinstance(action, Delete)]
    assert "only copy" in str(resync.refusal(world.state()))


def test_an_ephemeral_member_is_wiped_by_deleting_its_pod() -> None:
    world = steady(storage={"type": "Ephemeral"})
    pod = world.running(0, 1)
    world.annotate(force_resync_member=pod.uid)
    Run(world).until_steady()
    deleted = [action.uid for action in world.log if isinstance(action, DeletePod)]
    assert set(deleted) == {pod.uid}
    assert world.running(0, 1).uid != pod.uid


def test_nothing_is_wiped_while_an_experiment_injects() -> None:
    world = diverged()
    world.experiments = [{"metadata": {"name": "x"}, "spec": {}, "status": {"phase": "Injecting"}}]
    order(world)
    Run(world).for_passes(20)
    assert world.status["currentOperation"]["blockedBy"] == ["NoChaosRunning"]
    assert not [action for action in world.log if isinstance(action, Delete)]


def test_a_generation_is_observed_when_all_pairs_have_it_not_between_two() -> None:
    world = steady(pairs=2)
    world.edit(storage={"size": "30Gi"})
    generation = world.document["metadata"]["generation"]
    Run(world).until(lambda: world.status.get("observedGeneration") == generation)
    assert {claim.requested for claim in world.claims.values()} == {"30Gi"}
