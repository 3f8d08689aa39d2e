"""What bad input and bad states are answered with: the words, the events, and what is not done."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.observed.observed import ObservedCluster, Route
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.planning.plan.types import (
    DISRUPTIVE,
    Apply,
    Delete,
    LabelPod,
    Plan,
    SetConfig,
)
from tests.support.operator.planning_run import CONTEXT, Run, changes, steady
from tests.support.operator.planning_world import World


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
        'did you mean "fileReservedTime"?',
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
    world.spoilt = True
    addresses = [world.running(0, ordinal).address for ordinal in (0, 1)]
    found = plan(world)
    words = f"orders-0 has masters at {', '.join(addresses)}; orders-0-1 is not the master member"
    assert said(found, "RolesConsistent") == ("False", "TwoMasters", words)
    assert ("TwoMastersDetected", words) in [(item.reason, item.message) for item in found.events]
    touching = (*DISRUPTIVE, SetConfig)
    assert [item for item in found.actions if isinstance(item, touching)] == []
    assert {type(item) for item in changes(found)} <= {LabelPod}


def test_a_key_that_no_broker_knows_restarts_nothing_until_it_is_accepted() -> None:
    world = steady()
    world.edit(config={"fileReservedTimes": "48", "fileReservedTime": "36"})
    run = Run(world).until_steady()
    lines = world.objects["ConfigMap", "orders-0-0"]["data"]["broker.conf"].splitlines()
    assert "fileReservedTime=36" in lines, "what is known is applied"
    assert "fileReservedTimes=48" not in lines
    found = plan(world)
    text = "not applied: fileReservedTimes; failback.dev/accept-unknown-key names what is to be"
    assert said(found, "ConfigApplied") == ("False", "UnknownKey", text)
    world.annotate(accept_unknown_key="other, fileReservedTimes")
    run.until_steady()
    lines = world.objects["ConfigMap", "orders-0-0"]["data"]["broker.conf"].splitlines()
    assert "fileReservedTimes=48" in lines
    world.annotations.clear()
    run.until_steady()
    lines = world.objects["ConfigMap", "orders-0-0"]["data"]["broker.conf"].splitlines()
    assert "fileReservedTimes=48" in lines, "what is in force is not taken back"


@pytest.mark.parametrize("key", ["flushDiskTyp", "brokerConfgPath"])
def test_a_slip_opens_no_operation(key: str) -> None:
    world = steady()
    world.edit(config={key: "SYNC_FLUSH"})
    found = plan(world)
    assert "currentOperation" not in found.status
    assert changes(found) == ()


def test_a_claim_without_a_volume_holds_up_its_own_pair_only() -> None:
    world = steady(pairs=2)
    seen = world.observe()
    view = seen.member(0, 1)
    assert view.pod is not None
    assert view.claim is not None
    words = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    pod = dataclasses.replace(view.pod, ready=False, problem="Unschedulable", message=words)
    claim = dataclasses.replace(view.claim, phase="Pending", storage_class="fast")
    pending = dataclasses.replace(view, pod=pod, claim=claim)
    objects = {key: item for key, item in seen.objects.items() if key[1] != "orders-1-1"}
    seen = dataclasses.replace(seen, objects=objects, members={**seen.members, (0, 1): pending})
    found = plan(world, seen=seen)
    told = f"data-orders-0-1-0 of fast is Pending: {words}"
    assert said(found, "Ready") == ("False", "ClaimPending", told)
    made = {item.manifest["metadata"]["name"] for item in found.actions if isinstance(item, Apply)}
    assert made == {"orders-1-1"}, "the other pair goes on"
    assert [item for item in found.actions if isinstance(item, (*DISRUPTIVE, Delete))] == []


def test_a_stranger_under_our_name_is_told_with_its_address() -> None:
    world = steady()
    world.registered["orders-0"][2] = "10.9.9.9:10911"
    found = plan(world)
    words = "10.9.9.9:10911 is registered as orders-0 and is none of its members"
    assert said(found, "RolesConsistent") == ("False", "StaleRegistration", words)
    assert found.actions == ()


def test_a_slave_too_far_behind_is_told_once_and_kept_as_it_is() -> None:
    world = steady()
    seen = world.observe()
    view = seen.member(0, 1)
    assert view.pod is not None
    assert view.claim is not None
    words = "master starts at 4294967296, slave ends at 1024"
    pod = dataclasses.replace(view.pod, ready=False, prefix="TooFarBehind", prefix_message=words)
    left = dataclasses.replace(view, pod=pod, broker=None)
    seen = dataclasses.replace(seen, members={**seen.members, (0, 1): left})
    found = plan(world, seen=seen)
    wipe = f"failback.dev/force-resync-member={view.claim.uid} wipes its volume"
    told = f"orders-0-1: {words}; {wipe}"
    assert said(found, "ReplicationHealthy") == ("False", "SlaveLagging", told)
    assert ("SlaveLagging", told) in [(item.reason, item.message) for item in found.events]
    assert said(found, "Ready")[1:] == ("SlaveDown", f"orders-0-1-0 is not ready: {words}")
    assert found.actions == ()
    world.status = dict(found.status)
    again = plan(world, seen=seen)
    assert again.events == ()
    assert again.status == found.status


def test_a_status_that_is_too_large_goes_without_its_members() -> None:
    world = steady()
    world.edit(sync={"inSyncReplicas": 1})
    world.status["activeOverlay"] = {"keys": "x" * 1024 * 1024}
    found = plan(world)
    assert [pair["members"] for pair in found.status["pairs"]] == [[]]
    assert found.status["pairs"][0]["master"] == "orders-0-0"
    assert said(found, "Warning") == (
        "True",
        "StatusTruncated",
        "StatusTruncated: member detail is left out; "
        "InSyncReplicasIgnored: this engine waits for one slave, not for 0",
    )


def test_nothing_goes_on_until_one_of_two_masters_is_gone() -> None:
    world = steady()
    world.edit(slaveReadEnable=True, flushDiskType="SYNC_FLUSH")
    world.running(0, 1).config["brokerRole"] = "ASYNC_MASTER"
    world.spoilt = True
    run = Run(world).for_passes(20)
    assert world.status["currentOperation"]["blockedBy"] == ["SingleMaster"]
    assert {type(item) for item in world.log} <= {LabelPod}
    world.running(0, 1).config["brokerRole"] = "SLAVE"
    run.until_steady()
    assert [world.running(0, member).config["slaveReadEnable"] for member in (0, 1)] == 2 * ["true"]
    assert {world.running(0, member).config["flushDiskType"] for member in (0, 1)} == {"SYNC_FLUSH"}


def test_a_member_that_a_person_holds_stops_although_it_is_one_of_two_masters() -> None:
    world = steady()
    world.running(0, 1).config["brokerRole"] = "ASYNC_MASTER"
    world.spoilt = True
    world.annotate(hold_member="orders-0-1")
    Run(world).for_passes(3)
    assert world.pod(0, 1) is None


def test_a_stranger_as_master_stops_restarts_and_live_changes() -> None:
    world = steady()
    world.edit(slaveReadEnable=True, flushDiskType="SYNC_FLUSH")
    world.registered["orders-0"][0] = "10.9.9.9:10911"
    Run(world).for_passes(20)
    assert world.status["currentOperation"]["blockedBy"] == ["SingleMaster"]
    assert [item for item in world.log if isinstance(item, (*DISRUPTIVE, SetConfig))] == []
