"""The shape of the moment: what stands is kept until an operation changes it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from failback.operator.planning.cluster.cluster import shape_of
from failback.operator.planning.observed import facts
from failback.operator.planning.plan.encoding import operations_from_status
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state.cluster_state import ClusterState, master_of
from failback.operator.render.objects import render_cluster
from failback.operator.render.shape import Shape
from tests.support.operator.planning_run import CONTEXT, steady
from tests.support.operator.planning_world import World

NAME_SERVERS = ["ns-0:9876", "ns-1:9876"]


def shape(world: World, *running: Operation) -> Shape:
    state = ClusterState(world.cluster, world.status, world.observe(), world.now, running)
    return shape_of(state)


def files(world: World, found: Shape) -> dict[str, Mapping[str, str]]:
    objects = render_cluster(world.cluster, NAME_SERVERS, CONTEXT, found)
    return {
        each["metadata"]["name"]: facts.properties(each)
        for each in objects
        if each["kind"] == "ConfigMap"
    }


def replicas(world: World, found: Shape) -> dict[str, int]:
    objects = render_cluster(world.cluster, NAME_SERVERS, CONTEXT, found)
    return {
        each["metadata"]["name"]: each["spec"]["replicas"]
        for each in objects
        if each["kind"] == "StatefulSet"
    }


def test_a_steady_cluster_has_no_shape_of_its_own() -> None:
    world = steady(pairs=2)
    found = shape(world)
    assert found == Shape(pairs=2, masters={0: 0, 1: 0})
    with_shape = render_cluster(world.cluster, NAME_SERVERS, CONTEXT, found)
    assert with_shape == render_cluster(world.cluster, NAME_SERVERS, CONTEXT)


def test_the_first_pairs_of_a_cluster_are_open_and_later_ones_are_not() -> None:
    world = World(pairs=2)
    assert shape(world).closed == frozenset()
    world = steady()
    world.edit(pairs=2)
    found = shape(world)
    assert found.closed == {1}
    rendered = files(world, found)
    assert rendered["orders-1-0"]["brokerPermission"] == "4"
    assert rendered["orders-1-1"]["brokerPermission"] == "6"
    assert rendered["orders-0-0"]["brokerPermission"] == "6"


def test_the_master_is_who_the_files_say_whatever_the_spec_says() -> None:
    world = steady(pairOverrides=[{"index": 0, "masterMember": 1}])
    assert shape(world).masters == {0: 1}
    assert files(world, shape(world))["orders-0-0"]["brokerId"] == "1"
    world.edit(pairOverrides=[])
    assert shape(world).masters == {0: 1}
    assert world.running(0, 1).is_master


def test_without_files_the_status_tells_the_master_then_the_spec() -> None:
    world = World(pairOverrides=[{"index": 0, "masterMember": 1}])
    status = {"pairs": [{"index": 0, "masterMember": 0}]}
    told = ClusterState(world.cluster, status, world.observe(), world.now)
    untold = ClusterState(world.cluster, {}, world.observe(), world.now)
    assert told.master_member(0) == 0
    assert untold.master_member(0) == 1


def test_a_pair_that_leaves_and_slaves_that_leave_are_still_rendered() -> None:
    world = steady(pairs=2, slavesPerPair=2)
    world.edit(pairs=1, slavesPerPair=1)
    found = shape(world)
    assert (found.pairs, dict(found.slaves)) == (2, {0: 2, 1: 2})
    assert set(replicas(world, found).values()) == {1}
    assert len(replicas(world, found)) == 6


def test_a_live_key_keeps_its_value_in_the_file_and_a_roll_key_does_not() -> None:
    world = steady(config={"fileReservedTime": "48"})
    world.edit(
        slaveReadEnable=True,
        config={"longPollingEnable": "false", "flushConsumerOffsetInterval": "4000"},
    )
    rendered = files(world, shape(world))["orders-0-0"]
    assert rendered["slaveReadEnable"] == "false"
    assert rendered["fileReservedTime"] == "48"
    assert "longPollingEnable" not in rendered
    assert rendered["flushConsumerOffsetInterval"] == "4000"


def test_unknown_name_servers_leave_the_addresses_that_are_there() -> None:
    world = steady()
    observed = world.observe()
    lost = type(observed)(at=observed.at, members=observed.members, name_servers=None)
    found = shape_of(ClusterState(world.cluster, world.status, lost, world.now))
    assert files(world, found)["orders-0-0"]["namesrvAddr"] == "ns-0:9876;ns-1:9876"


def _experiment(**status: Any) -> dict[str, Any]:
    arm = {
        "name": "slow",
        "brokerConfig": {"flushConsumerOffsetInterval": "60000"},
        "engine": "Apache",
    }
    return {"metadata": {"name": "x"}, "spec": {"arms": [arm]}, "status": status}


def test_the_arm_of_a_running_experiment_lies_over_the_spec() -> None:
    world = steady(config={"flushConsumerOffsetInterval": "5000"})
    world.experiments = [_experiment(phase="SteadyState", activeArm="slow")]
    found = shape(world)
    assert files(world, found)["orders-0-0"]["flushConsumerOffsetInterval"] == "60000"
    objects = render_cluster(world.cluster, NAME_SERVERS, CONTEXT, found)
    sets = [each for each in objects if each["kind"] == "StatefulSet"]
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in sets}
    assert images == {"apache/rocketmq:4.9.7"}
    world.experiments = [_experiment(phase="Completed", activeArm="slow")]
    assert shape(world).overlay == {}


def test_an_arm_of_the_engine_that_runs_anyway_keeps_its_version() -> None:
    world = steady(engine={"type": "Apache", "version": "4.9.4"})
    world.experiments = [_experiment(phase="SteadyState", activeArm="slow")]
    objects = render_cluster(world.cluster, NAME_SERVERS, CONTEXT, shape(world))
    sets = [each for each in objects if each["kind"] == "StatefulSet"]
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in sets}
    assert images == {"apache/rocketmq:4.9.4"}


def test_a_store_of_5_x_keeps_its_engine() -> None:
    world = steady(engine={"type": "Apache", "version": "5.3.3"})
    world.edit(engine={"type": "Failback"})
    found = shape(world)
    assert found.engine["version"] == "5.3.3"
    objects = render_cluster(world.cluster, NAME_SERVERS, CONTEXT, found)
    sets = [each for each in objects if each["kind"] == "StatefulSet"]
    assert {s["metadata"]["labels"]["app.kubernetes.io/version"] for s in sets} == {"5.3.3"}


def _operation(kind: str, step: str, **data: Any) -> Operation:
    return Operation("id", kind, step, pair=1, member=1, data=data)


@pytest.mark.parametrize(
    ("operation", "closed", "stopped"),
    [
        (_operation("Roll", "DrainMaster", closed=True), {1}, set()),
        (_operation("Roll", "WaitReplicated", closed=True), {1}, set()),
        (_operation("Roll", "OpenWrites", closed=True), set(), set()),
        (_operation("Roll", "EvictMember"), set(), set()),
        (_operation("ScaleDown", "DrainPair", leaves=True, slaves=[]), {1}, set()),
        (_operation("ScaleDown", "WaitEmpty", leaves=True, slaves=[]), {1}, set()),
        (
            _operation("ScaleDown", "Unregister", leaves=True, slaves=[]),
            {1},
            {(1, 1), (1, 2), (1, 3)},
        ),
        (
            _operation("ScaleDown", "Unregister", leaves=True, slaves=[], slavesGone=True),
            {1},
            {(1, 0), (1, 1), (1, 2), (1, 3)},
        ),
        (_operation("ScaleDown", "Unregister", leaves=False, slaves=[1]), set(), {(1, 1)}),
        (_operation("Resync", "StopMember"), set(), set()),
        (_operation("Resync", "WipeClaim"), set(), {(1, 1)}),
        (_operation("Resync", "StartMember"), set(), set()),
        (_operation("VolumeResize", "ResizeClaims"), set(), set()),
        (_operation("LiveConfig", "SetConfig"), set(), set()),
    ],
)
def test_the_running_operation_closes_and_stops(
    operation: Operation, closed: set[int], stopped: set[tuple[int, int]]
) -> None:
    found = shape(steady(pairs=2), operation)
    assert found.closed == closed
    assert found.stopped == stopped


def test_a_pair_left_closed_stays_closed_until_an_operation_opens_it() -> None:
    world = steady(pairs=2)
    file = world.objects["ConfigMap", "orders-1-0"]["data"]
    file["broker.conf"] = file["broker.conf"].replace("brokerPermission=6", "brokerPermission=4")
    assert shape(world).closed == {1}
    opens = _operation("ScaleUp", "OpenWrites", opens=True)
    assert shape(world, opens).closed == frozenset()
    assert files(world, shape(world, opens))["orders-1-0"]["brokerPermission"] == "6"


def test_members_are_rendered_no_more_once_they_are_deleted() -> None:
    world = steady(pairs=2, slavesPerPair=2)
    world.edit(pairs=1, slavesPerPair=1)
    pair = _operation("ScaleDown", "DeleteMembers", leaves=True, slaves=[])
    assert shape(world, pair).pairs == 1
    slaves = Operation(
        "id", "ScaleDown", "DeleteMembers", pair=0, data={"leaves": False, "slaves": [2]}
    )
    assert set(replicas(world, shape(world, slaves))) == {
        "orders-0-0",
        "orders-0-1",
        "orders-1-0",
        "orders-1-1",
        "orders-1-2",
    }


def test_master_of_reads_rendered_files() -> None:
    world = steady()
    objects = {
        (each["kind"], each["metadata"]["name"]): each
        for each in render_cluster(world.cluster, NAME_SERVERS, CONTEXT)
    }
    assert master_of(objects, world.cluster, 0) == 0
    with pytest.raises(LookupError):
        master_of(objects, world.cluster, 1)


def test_shaping_depends_on_its_arguments_only() -> None:
    world = steady(pairs=2)
    world.edit(slaveReadEnable=True, pairs=3)
    observed, status = world.observe(), copy.deepcopy(world.status)
    running = operations_from_status(status)
    state = ClusterState(world.cluster, status, observed, world.now, running)
    assert shape_of(state) == shape_of(dataclasses.replace(state))
