"""What bad input and bad states are answered with: the words, the events, and what is not done."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.cluster import plan_cluster
from failback.operator.planning.encoding import find_condition
from failback.operator.planning.observed import ObservedCluster, Route
from failback.operator.planning.types import DISRUPTIVE, LabelPod, Plan, SetConfig
from tests.support.planning_run import CONTEXT, Run, steady
from tests.support.planning_world import World

pytestmark = pytest.mark.unit


def stored(world: World, **spec: Any) -> BrokerCluster:
    """Return the cluster as an API server that asks no rules could hold it."""
    document = copy.deepcopy(world.document)
    document["spec"].update(spec)
    return BrokerCluster.model_validate(document)


def plan(
    world: World, cluster: BrokerCluster | None = None, seen: ObservedCluster | None = None
) -> Plan:
    return plan_cluster(
        cluster or world.cluster, world.status, seen or world.observe(), CONTEXT, world.now
    )


def said(found: Plan, kind: str) -> tuple[str, str, str]:
    condition = find_condition(found.status, kind)
    assert condition is not None
    return condition["status"], condition["reason"], condition["message"]


def test_a_rule_that_is_broken_in_the_store_is_named_with_its_path() -> None:
    world = steady()
    found = plan(world, stored(world, masterRole="SYNC_MASTER", slavesPerPair=0))
    assert said(found, "Ready") == ("False", "InvalidSpec", "BC6 spec: SYNC_MASTER needs a slave")
    assert found.actions == ()


def test_a_managed_key_is_refused_by_its_rule() -> None:
    world = steady()
    found = plan(world, stored(world, config={"brokerRole": "SLAVE"}))
    assert said(found, "Ready")[:2] == ("False", "InvalidSpec")
    assert said(found, "Ready")[2].startswith("BC8 spec.config")
    assert found.actions == ()


def test_a_key_that_no_broker_knows_comes_with_the_nearest() -> None:
    world = steady()
    found = plan(world, stored(world, config={"fileReservedTimes": "48"}))
    assert said(found, "Warning") == (
        "True",
        "UnknownConfigKey",
        "UnknownConfigKey: fileReservedTimes is not a broker.conf key of failback 0.1.0, "
        "did you mean fileReservedTime",
    )


def test_a_value_that_no_broker_can_read_touches_no_member() -> None:
    world = steady()
    found = plan(world, stored(world, config={"fileReservedTime": "soon"}))
    words = 'config_keys spec.config: fileReservedTime: must be an integer, got "soon"'
    assert said(found, "Ready") == ("False", "InvalidSpec", words)
    assert [(item.reason, item.message) for item in found.events] == [
        ("InvalidSpec", words),
        ("ConfigRejected", words),
    ]
    assert found.actions == ()


def test_a_name_server_that_does_not_exist_is_named() -> None:
    world = steady()
    seen = dataclasses.replace(world.observe(), name_servers=None, routes=())
    world.edit(nameServerAddresses=None)
    cluster = stored(world, nameServerRef={"name": "main"})
    found = plan(world, cluster, seen)
    assert said(found, "Ready") == ("False", "NameServerMissing", "there is no NameServer main")
    assert found.actions == ()


def test_without_any_name_server_nothing_is_done_to_a_broker() -> None:
    world = steady()
    world.edit(flushDiskType="SYNC_FLUSH")
    run = Run(world)
    run.until(lambda: "currentOperation" in world.status)
    silent = [Route("ns-0:9876"), Route("ns-1:9876")]
    found = plan(world, seen=dataclasses.replace(world.observe(), routes=silent))
    assert "NameServersReachable" in found.status["currentOperation"]["blockedBy"]
    assert said(found, "RolesConsistent") == (
        "Unknown",
        "UnableToRetrieve",
        "no name server answers",
    )
    assert [item for item in found.actions if isinstance(item, (*DISRUPTIVE, SetConfig))] == []


def test_two_masters_are_both_named_and_neither_is_written_to() -> None:
    world = steady()
    world.edit(slaveReadEnable=True)
    world.running(0, 1).config["brokerRole"] = "ASYNC_MASTER"
    addresses = [world.running(0, ordinal).address for ordinal in (0, 1)]
    found = plan(world)
    words = f"orders-0 has masters at {', '.join(addresses)}; orders-0-1 is not the master member"
    assert said(found, "RolesConsistent") == ("False", "TwoMasters", words)
    assert ("TwoMastersDetected", words) in [(item.reason, item.message) for item in found.events]
    touching = (*DISRUPTIVE, SetConfig)
    assert [item for item in found.actions if isinstance(item, touching)] == []
    assert {type(item) for item in found.actions} <= {LabelPod}
