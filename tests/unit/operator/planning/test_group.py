"""Consumer groups: written to masters whole, compared field by field."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.kinds.subscription_group import SubscriptionGroup, SubscriptionGroupStatus
from failback.operator.planning.metadata.group import plan_group
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.plan.encoding import find_condition, to_time
from failback.operator.planning.plan.types import DeleteGroup, Plan, PutGroup
from tests.support.operator.observed_tables import address, cluster_of, member, seen

NOW = 1_700_000_000.0
AS_WANTED = {
    "groupName": "billing",
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
}


def group(**spec: Any) -> SubscriptionGroup:
    metadata = {
        "name": "billing",
        "namespace": "shop",
        "uid": "uid-billing",
        "generation": 1,
        "creationTimestamp": "2023-01-01T00:00:00Z",
        "deletionTimestamp": spec.pop("deleted", None),
    }
    wanted = {"clusterRef": {"name": "orders"}, **spec}
    found = {"kind": "SubscriptionGroup", "metadata": metadata, "spec": wanted}
    return SubscriptionGroup.model_validate(found)


def pair_with(master: Any, slave: Any = None) -> ObservedCluster:
    slave = master if slave is None else slave
    return seen(member(0, 0, master=True, groups=master), member(0, 1, master=False, groups=slave))


def plan(of: SubscriptionGroup, observed: ObservedCluster, **more: Any) -> Plan:
    status, cluster = more.pop("status", {}), more.pop("cluster", cluster_of())
    found = plan_group(of, status, observed, cluster, NOW, **{"deleting": False, **more})
    SubscriptionGroupStatus.model_validate({"conditions": [], **found.status})
    return found


def verdict(found: Plan, kind: str) -> tuple[str, str]:
    condition = find_condition(found.status, kind)
    assert condition is not None, kind
    return condition["status"], condition["reason"]


def test_a_missing_group_is_written_with_every_field() -> None:
    found = plan(group(), pair_with({}))
    assert found.actions == (PutGroup(address(0, 0), AS_WANTED),)
    assert [event.reason for event in found.events] == ["GroupCreated"]


def test_a_group_that_is_there_needs_nothing() -> None:
    found = plan(group(), pair_with({"billing": {**AS_WANTED, "groupSysFlag": 0}}))
    assert (found.actions, found.wake_after) == ((), None)
    assert verdict(found, "Ready") == ("True", "OnAllMasters")
    assert verdict(found, "Synced") == ("True", "Synced")
    assert found.status["groupName"] == "billing"
    assert found.status["pairs"] == [{"name": "orders-0", "onMaster": True, "onSlaves": True}]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("consumeEnable", False),
        ("consumeFromMinEnable", False),
        ("consumeBroadcastEnable", False),
        ("notifyConsumerIdsChangedEnable", False),
        ("retryQueueNums", 3),
        ("retryMaxTimes", 1),
        ("brokerId", 2),
        ("whichBrokerWhenConsumeSlowly", 0),
    ],
)
def test_drift_of_any_field_is_repaired(field: str, value: Any) -> None:
    drifted = {"billing": {**AS_WANTED, field: value}}
    found = plan(group(), pair_with(drifted), status={"observedGeneration": 1})
    assert found.actions == (PutGroup(address(0, 0), AS_WANTED),)
    assert found.events[0].reason == "GroupDriftRepaired"
    assert field in found.events[0].message


def test_a_slave_without_the_group_is_waited_for() -> None:
    found = plan(group(), pair_with({"billing": AS_WANTED}, {}))
    assert found.actions == ()
    assert verdict(found, "Synced") == ("False", "NotOnSlave")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "NoWarning"),
        ({"whichBrokerWhenConsumeSlowly": 2}, "SlowBrokerMissing"),
        ({"consumeMessageOrderly": True}, "AttributesIgnored"),
        ({"consumeTimeoutMinute": 15}, "AttributesIgnored"),
        ({"attributes": {"a": "b"}}, "AttributesIgnored"),
    ],
)
def test_what_is_legal_but_unwise_is_a_warning(spec: dict[str, Any], reason: str) -> None:
    found = plan(group(**spec), pair_with({"billing": AS_WANTED}))
    assert verdict(found, "Warning")[1] == reason


def test_the_larger_pair_decides_whether_a_slow_broker_exists() -> None:
    cluster = cluster_of(pairs=2, slaves=1, pairOverrides=[{"index": 1, "slavesPerPair": 2}])
    found = plan(group(whichBrokerWhenConsumeSlowly=2), seen(), cluster=cluster)
    assert verdict(found, "Warning") == ("False", "NoWarning")


@pytest.mark.parametrize("remove_offsets", [False, True])
def test_a_deleted_group_goes_from_masters(remove_offsets: bool) -> None:
    going = group(deleted=to_time(NOW), deletionPolicy="Delete", removeOffsets=remove_offsets)
    found = plan(going, pair_with({"billing": AS_WANTED}), deleting=True)
    assert found.actions == (DeleteGroup("billing", address(0, 0), remove_offsets),)
    assert found.finalizer is False
    assert [event.reason for event in found.events] == ["GroupDeleted"]


def test_a_retained_group_stays() -> None:
    found = plan(group(deleted=to_time(NOW)), pair_with({"billing": AS_WANTED}), deleting=True)
    assert (found.actions, found.finalizer) == ((), False)


def test_a_master_that_does_not_have_the_group_is_not_asked_to_delete_it() -> None:
    going = group(deleted=to_time(NOW), deletionPolicy="Delete")
    found = plan(going, pair_with({}), deleting=True)
    assert (found.actions, found.finalizer) == ((), False)
