"""The world that role switches are tried in notices what it is there to notice."""

from __future__ import annotations

import pytest

from tests.support.operator.switch_world import SwitchWorld, delivered, roles


def test_a_new_world_has_one_master_and_a_slave_that_follows() -> None:
    world = delivered()
    assert roles(world) == {0: "ASYNC_MASTER 0 6", 1: "SLAVE 1 6"}
    before = world.machines[1].end
    world.tick()
    assert world.machines[1].end == world.machines[0].end > before
    assert [table[0][0] for table in world.registered] == [
        "orders-0-0-0.orders-brokers.shop.svc.cluster.local:10911"
    ] * 2


def test_a_world_is_its_own() -> None:
    one, other = delivered(), delivered()
    one.machines[0].end = 7
    assert other.machines[0].end != 7


def test_two_masters_are_noticed_at_once() -> None:
    world = delivered()
    process = world.machines[1].process
    assert process is not None
    process.config["brokerRole"] = "ASYNC_MASTER"
    with pytest.raises(AssertionError, match="two masters run"):
        world.tick()


def test_two_files_that_say_master_are_noticed() -> None:
    world = delivered()
    data = world.objects[("ConfigMap", "orders-0-1")]["data"]
    data["broker.conf"] = data["broker.conf"].replace("=SLAVE", "=SYNC_MASTER")
    with pytest.raises(AssertionError, match="two files say master"):
        world.tick()


def test_a_slave_copies_the_masters_offsets_over_its_own() -> None:
    world = delivered()
    world.traffic = False
    world.machines[1].offsets["T@G"] = {0: 10**9}
    for _ in range(11):
        world.tick()
    assert world.machines[1].offsets == world.machines[0].offsets


def test_a_switch_that_is_not_asked_for_does_not_happen() -> None:
    world = SwitchWorld()
    world.reconcile()
    assert world.effects == 0
