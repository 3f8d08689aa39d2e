"""The world that operations are tried in behaves as the servers and brokers it stands for."""

from __future__ import annotations

import pytest

from failback.operator.planning.plan.types import (
    Apply,
    Delete,
    Evict,
    ReleaseLease,
    ResizeClaim,
    SetConfig,
    TakeLease,
)
from tests.support.operator.planning_run import Run
from tests.support.operator.planning_world import Refused, World
from tests.support.operator.simulated_machines import TOPIC_GROUP
from tests.support.operator.switch_world import delivered, roles


@pytest.fixture
def world() -> World:
    found = World()
    Run(found).until_steady()
    return found


def test_a_pod_is_made_registers_and_takes_its_file(world: World) -> None:
    slave = world.running(0, 1)
    assert slave.config["brokerRole"] == "SLAVE"
    assert world.registered["orders-0"] == {
        0: world.running(0, 0).address,
        1: slave.address,
    }
    assert world.observe().member(0, 1).pod is not None


def test_an_eviction_needs_the_budget_and_the_uid(world: World) -> None:
    slave = world.running(0, 1)
    world.carry_out(Evict("orders-0-1-0", "another"))
    assert not slave.deleting
    world.carry_out(Evict("orders-0-1-0", slave.uid))
    with pytest.raises(Refused):
        world.carry_out(Evict("orders-0-0-0", world.running(0, 0).uid))
    world.tick(1)
    world.tick(5)
    assert world.running(0, 1).uid != slave.uid
    assert not world.violations


def test_a_pod_that_is_not_ready_may_always_go(world: World) -> None:
    world.take_pod(0, 1)
    world.tick(1)
    fresh = world.pod(0, 1)
    assert fresh is not None
    world.carry_out(Evict("orders-0-1-0", fresh.uid))
    assert fresh.deleting


def test_a_stopped_broker_leaves_the_name_servers(world: World) -> None:
    world.take_pod(0, 0)
    world.tick(1)
    assert 0 not in world.registered["orders-0"]
    assert world.observe().masterless_since[0] == world.now
    world.tick(5)
    assert world.observe().master_since[0] == world.now


def test_a_store_outlives_its_pod_and_a_wiped_claim_does_not(world: World) -> None:
    world.traffic = 100
    world.tick(1)
    world.traffic = 0
    claim = world.claims["data-orders-0-1-0"]
    assert claim.store.end == 100
    world.take_pod(0, 1)
    world.tick(1)
    world.tick(5)
    assert world.running(0, 1).store is claim.store
    world.carry_out(Delete(("PersistentVolumeClaim", "data-orders-0-1-0"), claim.uid))
    world.tick(1)
    assert "data-orders-0-1-0" in world.claims  # in use
    world.take_pod(0, 1)
    world.tick(1)
    world.tick(1)
    assert world.claims["data-orders-0-1-0"].uid != claim.uid


def test_a_slave_that_is_ahead_does_not_start(world: World) -> None:
    world.claims["data-orders-0-1-0"].store.end = 500
    world.take_pod(0, 1)
    for _ in range(3):
        world.tick(5)
    pod = world.observe().member(0, 1).pod
    assert pod is not None
    assert (pod.ready, pod.prefix) == (False, "SlaveAhead")


def test_two_masters_are_noticed(world: World) -> None:
    world.running(0, 1).config["brokerRole"] = "ASYNC_MASTER"
    with pytest.raises(AssertionError, match="two masters run"):
        world.tick(1)


def test_two_files_that_say_master_are_noticed(world: World) -> None:
    have = world.objects["ConfigMap", "orders-0-1"]
    text = have["data"]["broker.conf"].replace("=SLAVE", "=SYNC_MASTER")
    with pytest.raises(AssertionError, match="two files say master"):
        world.carry_out(Apply({**have, "data": {"broker.conf": text}}))


def test_a_slave_follows_and_copies_the_masters_offsets_over_its_own() -> None:
    world = delivered()
    assert roles(world) == {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
    before = world.store(0, 1).end
    world.tick(1)
    assert world.store(0, 1).end == world.store(0, 0).end > before
    master = "orders-0-0-0.orders-brokers.shop.svc.cluster.local:10911"
    assert [(route.brokers or {})["orders-0"][0] for route in world.observe().routes] == 2 * [
        master
    ]
    world.traffic = 0
    world.store(0, 1).offsets = {TOPIC_GROUP: {0: 10**9}}
    world.tick(11)
    assert world.store(0, 1).offsets == world.store(0, 0).offsets


def test_a_delivered_world_is_its_own() -> None:
    one, other = delivered(), delivered()
    one.store(0, 0).end = 7
    assert other.store(0, 0).end != 7


def test_a_switch_that_is_not_asked_for_does_not_happen() -> None:
    world = delivered()
    world.reconcile()
    assert world.effects == 0


def test_a_replaced_template_waits_for_its_pod(world: World) -> None:
    before = world.observe().member(0, 1)
    manifest = before.statefulset
    assert manifest is not None
    changed = {
        **manifest,
        "spec": {
            **manifest["spec"],
            "template": {
                **manifest["spec"]["template"],
                "spec": {"containers": [{"image": "new"}]},
            },
        },
    }
    world.carry_out(Apply(changed))
    stale = world.observe().member(0, 1).statefulset
    assert stale is not None
    assert stale["status"]["observedGeneration"] < stale["metadata"]["generation"]
    world.tick(1)
    after = world.observe().member(0, 1)
    assert after.pod is not None
    assert after.statefulset is not None
    assert after.pod.revision != after.statefulset["status"]["updateRevision"]


def test_claim_templates_are_immutable_and_orphans_are_adopted(world: World) -> None:
    have = world.objects["StatefulSet", "orders-0-1"]
    template = {**have["spec"]["volumeClaimTemplates"][0], "spec": {}}
    changed = {**have, "spec": {**have["spec"], "volumeClaimTemplates": [template]}}
    with pytest.raises(Refused):
        world.carry_out(Apply(changed))
    pod = world.running(0, 1)
    key = ("StatefulSet", "orders-0-1")
    world.carry_out(Delete(key, have["metadata"]["uid"], "Orphan"))
    world.tick(1)
    assert world.running(0, 1) is pod
    world.carry_out(Apply(have))
    world.tick(1)
    assert world.running(0, 1) is pod


def test_a_silent_or_stubborn_broker_refuses_a_change(world: World) -> None:
    address = world.running(0, 0).address
    order = SetConfig((0, 0), address, {"slaveReadEnable": "true"})
    world.silent.add((0, 0))
    with pytest.raises(Refused):
        world.carry_out(order)
    world.silent.clear()
    world.stubborn[(0, 0), "slaveReadEnable"] = "false"
    with pytest.raises(Refused):
        world.carry_out(order)
    world.stubborn.clear()
    world.carry_out(order)
    assert world.running(0, 0).config["slaveReadEnable"] == "true"


def test_claims_grow_at_once_or_at_the_next_start(world: World) -> None:
    claim = world.claims["data-orders-0-1-0"]
    world.carry_out(ResizeClaim("data-orders-0-1-0", claim.uid, "30Gi"))
    world.tick(1)
    assert claim.capacity == "30Gi"
    world.resize_needs_restart = True
    world.carry_out(ResizeClaim("data-orders-0-1-0", claim.uid, "40Gi"))
    world.tick(1)
    assert (claim.capacity, claim.needs_restart) == ("30Gi", True)
    world.take_pod(0, 1)
    world.tick(1)
    world.tick(1)
    assert (claim.capacity, claim.needs_restart) == ("40Gi", False)


def test_a_lease_has_one_holder(world: World) -> None:
    world.carry_out(TakeLease("failback-orders-0", "a", 60))
    with pytest.raises(Refused):
        world.carry_out(TakeLease("failback-orders-0", "b", 60))
    world.carry_out(ReleaseLease("failback-orders-0", "b"))
    assert world.leases
    world.carry_out(ReleaseLease("failback-orders-0", "a"))
    assert not world.leases
