"""Topics: written to masters, read back from slaves, shrunk only when consumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from failback.operator.kinds.topic import Topic, TopicStatus
from failback.operator.planning.metadata.topic import plan_topic
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.plan.encoding import find_condition, to_time
from failback.operator.planning.plan.types import DeleteTopic, Plan, PutKv, PutTopic
from tests.support.operator.observed_tables import NAME_SERVERS, address, cluster_of, member, seen

NOW = 1_700_000_000.0
AS_WANTED = {
    "topicName": "PAID",
    "readQueueNums": 8,
    "writeQueueNums": 8,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}


def topic(**spec: Any) -> Topic:
    metadata = {
        "name": "paid",
        "namespace": "shop",
        "uid": "uid-paid",
        "generation": 2,
        "creationTimestamp": "2023-01-01T00:00:00Z",
        "annotations": spec.pop("annotations", {}),
        "deletionTimestamp": spec.pop("deleted", None),
    }
    wanted = {"clusterRef": {"name": "orders"}, "topicName": "PAID", **spec}
    return Topic.model_validate({"kind": "Topic", "metadata": metadata, "spec": wanted})


def plan(
    of: Topic,
    observed: ObservedCluster,
    status: Mapping[str, Any] | None = None,
    *,
    now: float = NOW,
    cluster: Any = None,
    deleting: bool = False,
) -> Plan:
    found = plan_topic(of, status or {}, observed, cluster or cluster_of(), now, deleting=deleting)
    TopicStatus.model_validate({"conditions": [], **found.status})
    return found


def verdict(found: Plan, kind: str) -> tuple[str, str]:
    condition = find_condition(found.status, kind)
    assert condition is not None, kind
    return condition["status"], condition["reason"]


def message(found: Plan, kind: str) -> str:
    condition = find_condition(found.status, kind)
    assert condition is not None, kind
    return str(condition["message"])


def stored(**changed: Any) -> dict[str, dict[str, Any]]:
    return {"PAID": {**AS_WANTED, **changed}}


def pair_with(master: Any, slave: Any = None) -> ObservedCluster:
    slave = master if slave is None else slave
    return seen(member(0, 0, master=True, topics=master), member(0, 1, master=False, topics=slave))


def test_a_missing_topic_is_written_to_the_master_alone() -> None:
    found = plan(topic(), pair_with({}))
    wanted = {"topicName": "PAID", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
    assert found.actions == (PutTopic(address(0, 0), wanted),)
    assert [event.reason for event in found.events] == ["TopicCreated"]
    assert verdict(found, "Ready") == ("False", "NotOnMaster")
    assert "observedGeneration" not in found.status


def test_a_topic_that_is_there_needs_nothing() -> None:
    found = plan(topic(), pair_with(stored()))
    assert (found.actions, found.events, found.wake_after) == ((), (), None)
    assert verdict(found, "Ready") == ("True", "OnAllMasters")
    assert verdict(found, "Synced") == ("True", "Synced")
    assert verdict(found, "Warning") == ("False", "NoWarning")
    assert found.status["observedGeneration"] == 2
    assert found.status["topicName"] == "PAID"
    assert found.status["pairs"] == [
        {
            "name": "orders-0",
            "onMaster": True,
            "onSlaves": True,
            "readQueueNums": 8,
            "writeQueueNums": 8,
            "perm": 6,
        }
    ]


def test_a_steady_pass_changes_nothing() -> None:
    first = plan(topic(), pair_with(stored()))
    second = plan(topic(), pair_with(stored()), first.status, now=NOW + 600)
    assert second.status == first.status


def test_a_slave_that_has_not_copied_it_is_waited_for() -> None:
    found = plan(topic(), pair_with(stored(), {}))
    assert found.actions == ()
    assert verdict(found, "Ready") == ("True", "OnAllMasters")
    assert verdict(found, "Synced") == ("False", "NotOnSlave")
    assert "orders-0-1" in message(found, "Synced")
    assert found.status["pairs"][0]["onSlaves"] is False
    assert found.wake_after is not None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"perm": 4}, "perm 4 -> 6"),
        ({"readQueueNums": 4, "writeQueueNums": 4}, "readQueueNums 4 -> 8, writeQueueNums 4 -> 8"),
    ],
)
def test_drift_is_repaired_and_told(changed: dict[str, int], told: str) -> None:
    found = plan(topic(), pair_with(stored(**changed)), {"observedGeneration": 2})
    (put,) = found.actions
    assert isinstance(put, PutTopic)
    assert put.config == AS_WANTED
    assert [(event.reason, event.warning) for event in found.events] == [
        ("TopicDriftRepaired", True)
    ]
    assert told in found.events[0].message
    assert verdict(found, "Synced") == ("False", "Drifted")


def test_a_change_of_the_resource_is_no_drift() -> None:
    found = plan(topic(perm=4), pair_with(stored()), {"observedGeneration": 1})
    assert [event.reason for event in found.events] == ["TopicUpdated"]


def test_an_unmanaged_topic_shows_drift_once_and_is_left_alone() -> None:
    unmanaged = topic(annotations={"failback.dev/managed": "false"})
    first = plan(unmanaged, pair_with(stored(perm=4)))
    assert first.actions == ()
    assert [event.reason for event in first.events] == ["TopicDriftSeen"]
    assert verdict(first, "Synced") == ("False", "Drifted")
    second = plan(unmanaged, pair_with(stored(perm=4)), first.status)
    assert second.events == ()


def test_a_paused_topic_is_not_written() -> None:
    paused = topic(annotations={"failback.dev/pause-reconciliation": "true"})
    found = plan(paused, pair_with({}))
    assert found.actions == ()
    assert verdict(found, "Paused") == ("True", "Requested")


def test_a_slave_is_never_written_to() -> None:
    observed = seen(member(0, 0, master=True, answers=False), member(0, 1, master=False, topics={}))
    found = plan(topic(), observed)
    assert found.actions == ()
    assert verdict(found, "Ready") == ("False", "MasterDown")
    assert verdict(found, "Synced") == ("Unknown", "UnableToRetrieve")
    assert found.status["pairs"] == [{"name": "orders-0"}]


def test_a_member_whose_file_says_master_but_who_runs_as_slave_is_not_written_to() -> None:
    observed = pair_with({})
    broker = observed.members[0, 0].broker
    assert broker is not None
    assert broker.config is not None
    dict.update(broker.config, brokerRole="SLAVE")
    found = plan(topic(), observed)
    assert found.actions == ()
    assert verdict(found, "Ready") == ("False", "MasterDown")


def test_each_pair_is_written_on_its_own_master() -> None:
    observed = seen(
        member(0, 0, master=False, topics={}),
        member(0, 1, master=True, topics={}),
        member(1, 0, master=True, topics=stored()),
        member(1, 1, master=False, topics=stored()),
    )
    found = plan(topic(), observed, cluster=cluster_of(pairs=2))
    assert [put.address for put in found.actions if isinstance(put, PutTopic)] == [address(0, 1)]


def test_named_pairs_alone_get_the_topic_and_a_wrong_name_is_a_warning() -> None:
    observed = seen(member(0, 0, master=True, topics={}), member(1, 0, master=True, topics={}))
    found = plan(
        topic(pairs=["orders-1", "orders-7"]), observed, cluster=cluster_of(pairs=2, slaves=0)
    )
    assert [put.address for put in found.actions if isinstance(put, PutTopic)] == [address(1, 0)]
    assert verdict(found, "Warning") == ("True", "PairMissing")
    assert "orders-7" in message(found, "Warning")


# --- fewer queues -------------------------------------------------------------------------------


def shrunk(**more: Any) -> ObservedCluster:
    table = stored(writeQueueNums=4)
    members = (member(0, 0, master=True, topics=table), member(0, 1, master=False, topics=table))
    return seen(*members, **more)


FEWER = {"readQueueNums": 4, "writeQueueNums": 4}


def test_fewer_queues_begin_with_the_write_queues() -> None:
    found = plan(topic(**FEWER), pair_with(stored()))
    (put,) = found.actions
    assert isinstance(put, PutTopic)
    assert (put.config["readQueueNums"], put.config["writeQueueNums"]) == (8, 4)
    assert verdict(found, "Ready") == ("False", "ShrinkingReads")
    assert verdict(found, "Shrinking") == ("False", "NotShrinking")


def test_read_queues_stay_until_producers_have_heard_of_it() -> None:
    lags = {("PAID", 0): dict.fromkeys(range(8), 0)}
    first = plan(topic(**FEWER), shrunk(topic_lags=lags))
    assert first.actions == ()
    assert verdict(first, "Shrinking") == ("True", "ClosedForProducers")
    early = plan(topic(**FEWER), shrunk(topic_lags=lags), first.status, now=NOW + 34)
    assert early.actions == ()
    late = plan(topic(**FEWER), shrunk(topic_lags=lags), first.status, now=NOW + 36)
    (put,) = late.actions
    assert isinstance(put, PutTopic)
    assert put.config == {**AS_WANTED, **FEWER}


@pytest.mark.parametrize(
    ("lags", "told"),
    [
        ({}, "waits to know what is consumed"),
        ({("PAID", 0): {3: 9, 5: 1}}, "consumers of queues 5"),
    ],
)
def test_read_queues_stay_until_they_are_consumed(lags: Any, told: str) -> None:
    first = plan(topic(**FEWER), shrunk())
    found = plan(topic(**FEWER), shrunk(topic_lags=lags), first.status, now=NOW + 600)
    assert found.actions == ()
    assert verdict(found, "Ready") == ("False", "ShrinkingReads")
    assert told in message(found, "Ready")


def test_unread_messages_in_queues_that_stay_are_no_obstacle() -> None:
    first = plan(topic(**FEWER), shrunk())
    lags = {("PAID", 0): {0: 10**6, 4: 0, 5: 0, 6: 0, 7: 0}}
    found = plan(topic(**FEWER), shrunk(topic_lags=lags), first.status, now=NOW + 600)
    assert len(found.actions) == 1


# --- order --------------------------------------------------------------------------------------


def test_an_ordered_topic_is_announced_at_every_name_server_that_lacks_it() -> None:
    observed = seen(
        member(0, 0, master=True, topics=stored()),
        member(1, 0, master=True, topics=stored()),
        order_configs={NAME_SERVERS[0]: {"PAID": "orders-0:8;orders-1:8"}, NAME_SERVERS[1]: {}},
    )
    found = plan(topic(order=True), observed, cluster=cluster_of(pairs=2, slaves=0))
    assert found.actions == (
        PutKv((NAME_SERVERS[1],), "ORDER_TOPIC_CONFIG", "PAID", "orders-0:8;orders-1:8"),
    )


def test_an_order_that_nobody_wants_any_more_is_withdrawn() -> None:
    observed = pair_with(stored())
    announced = {NAME_SERVERS[0]: {"PAID": "orders-0:8", "OTHER": "orders-0:1"}}
    found = plan(topic(), seen(*observed.members.values(), order_configs=announced))
    assert found.actions == (PutKv((NAME_SERVERS[0],), "ORDER_TOPIC_CONFIG", "PAID", ""),)


# --- refusals -----------------------------------------------------------------------------------


def test_a_cluster_that_is_not_there() -> None:
    found = plan_topic(topic(), {}, seen(), None, NOW, deleting=False)
    assert verdict(found, "Ready") == ("False", "ClusterMissing")
    assert message(found, "Ready") == "there is no BrokerCluster orders"


def twin(created: str, name: str = "twin", topic_name: str = "PAID") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"topicName": topic_name}}


@pytest.mark.parametrize(
    ("other", "duplicate"),
    [
        (twin("2022-01-01T00:00:00Z"), True),
        (twin("2024-01-01T00:00:00Z"), False),
        (twin("2023-01-01T00:00:00Z", "another"), True),
        (twin("2023-01-01T00:00:00Z", "zzz"), False),
        (twin("2022-01-01T00:00:00Z", topic_name="OTHER"), False),
    ],
)
def test_of_two_resources_for_one_topic_the_older_wins(
    other: dict[str, Any], duplicate: bool
) -> None:
    observed = seen(member(0, 0, master=True, topics={}), topics=(other,))
    found = plan(topic(), observed, cluster=cluster_of(slaves=0))
    assert (verdict(found, "Ready") == ("False", "Duplicate")) == duplicate
    assert bool(found.actions) != duplicate


def test_an_older_resource_that_is_going_leaves_the_topic_to_the_younger() -> None:
    going = twin("2022-01-01T00:00:00Z")
    going["metadata"]["deletionTimestamp"] = to_time(NOW)
    observed = seen(member(0, 0, master=True, topics={}), topics=(going,))
    found = plan(topic(), observed, cluster=cluster_of(slaves=0))
    assert len(found.actions) == 1


def test_what_the_broker_refuses_for_good_is_told_once_and_not_sent_again() -> None:
    observed = seen(
        member(0, 0, master=True, topics={}), refused={address(0, 0): "topic name is illegal"}
    )
    first = plan(topic(), observed, cluster=cluster_of(slaves=0))
    assert first.actions == ()
    assert verdict(first, "Ready") == ("False", "Rejected")
    assert [event.reason for event in first.events] == ["TopicRejected"]
    second = plan(topic(), observed, first.status, cluster=cluster_of(slaves=0))
    assert second.events == ()


def test_a_spec_that_breaks_a_rule_is_not_carried_out() -> None:
    found = plan(topic(readQueueNums=4, writeQueueNums=8), pair_with({}))
    assert found.actions == ()
    assert verdict(found, "Ready") == ("False", "InvalidSpec")


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ({"type": "Failback"}, "only engine apache 5.x knows them"),
        ({"type": "Apache", "version": "5.3.3"}, "not sent to brokers of 5.x yet"),
    ],
)
def test_attributes_without_effect_are_not_silent(engine: dict[str, str], told: str) -> None:
    found = plan(
        topic(attributes={"message.type": "FIFO"}),
        pair_with(stored()),
        cluster=cluster_of(engine=engine),
    )
    assert verdict(found, "Warning") == ("True", "AttributesIgnored")
    assert told in message(found, "Warning")


def test_an_annotation_nobody_knows_is_a_warning() -> None:
    found = plan(topic(annotations={"failback.dev/mangaed": "false"}), pair_with(stored()))
    assert verdict(found, "Warning") == ("True", "UnknownAnnotation")


# --- deletion -----------------------------------------------------------------------------------


def deleted(**spec: Any) -> Topic:
    return topic(deleted=to_time(NOW), **spec)


def test_a_finalizer_waits_for_what_a_deletion_would_undo_and_for_nothing_else() -> None:
    asks = {"deletionPolicy": "Delete"}
    assert plan(topic(**asks), pair_with(stored())).finalizer is True
    assert plan(topic(), pair_with(stored())).finalizer is False, "Retain undoes nothing"
    unmanaged = topic(annotations={"failback.dev/managed": "false"}, **asks)
    assert plan(unmanaged, pair_with(stored())).finalizer is False
    assert plan_topic(topic(**asks), {}, seen(), None, NOW, deleting=False).finalizer is False
    broken = topic(**asks, readQueueNums=4, writeQueueNums=8)
    assert plan(broken, pair_with(stored())).finalizer is None, "what it left is not known"


def test_a_retained_topic_stays_when_its_resource_goes() -> None:
    found = plan(deleted(), pair_with(stored()), deleting=True)
    assert (found.actions, found.finalizer) == ((), False)
    assert [event.reason for event in found.events] == ["TopicRetained"]


def test_a_deleted_topic_goes_from_masters_and_name_servers() -> None:
    found = plan(deleted(deletionPolicy="Delete", order=True), pair_with(stored()), deleting=True)
    assert found.actions == (
        DeleteTopic("PAID", (address(0, 0),), NAME_SERVERS, "orders"),
        PutKv(NAME_SERVERS, "ORDER_TOPIC_CONFIG", "PAID", ""),
    )
    assert found.finalizer is False
    assert [event.reason for event in found.events] == ["TopicDeleted"]


def test_name_servers_of_others_get_no_order() -> None:
    others = frozenset(NAME_SERVERS)
    known = replace(
        pair_with(stored()), read_only=others, order_configs={key: {} for key in NAME_SERVERS}
    )
    going = deleted(deletionPolicy="Delete", order=True)
    assert plan(going, known, deleting=True).actions == (
        DeleteTopic("PAID", (address(0, 0),), (), "orders"),
        PutKv((), "ORDER_TOPIC_CONFIG", "PAID", ""),
    )
    ordered = plan(topic(order=True), known)
    assert not [each for each in ordered.actions if isinstance(each, PutKv)]
    assert verdict(ordered, "Warning") == ("True", "NameServersReadOnly")
    one = replace(known, read_only=frozenset(NAME_SERVERS[:1]))
    (removal, _) = plan(going, one, deleting=True).actions
    assert removal == DeleteTopic("PAID", (address(0, 0),), NAME_SERVERS[1:], "orders")


def test_name_servers_are_told_even_if_masters_have_forgotten_it_already() -> None:
    found = plan(deleted(deletionPolicy="Delete"), pair_with({}), deleting=True)
    assert found.actions == (DeleteTopic("PAID", (), NAME_SERVERS, "orders"),)


def test_an_ordered_topic_that_masters_have_forgotten_leaves_no_order_behind() -> None:
    found = plan(deleted(deletionPolicy="Delete", order=True), pair_with({}), deleting=True)
    assert [type(each) for each in found.actions] == [DeleteTopic, PutKv]


def test_deletion_waits_a_minute_for_a_master_and_then_gives_up() -> None:
    observed = seen(member(0, 0, master=True, answers=False))
    going = deleted(deletionPolicy="Delete")
    waits = plan(going, observed, now=NOW + 59, deleting=True)
    assert (waits.actions, waits.finalizer) == ((), None)
    given_up = plan(going, observed, now=NOW + 61, deleting=True)
    assert given_up.finalizer is False
    assert [(event.reason, event.warning) for event in given_up.events] == [("TopicRetained", True)]


def test_of_a_topic_that_no_master_has_nobody_says_that_it_is_retained() -> None:
    going = deleted(deletionPolicy="Delete")
    found = plan(going, pair_with({}), now=NOW + 3600, deleting=True)
    assert found.actions == (DeleteTopic("PAID", (), NAME_SERVERS, "orders"),)
    assert [event.reason for event in found.events] == ["TopicDeleted"]


@pytest.mark.parametrize("created", ["2022-01-01T00:00:00Z", "2024-01-01T00:00:00Z"])
def test_of_two_resources_of_one_topic_the_first_to_go_deletes_nothing(created: str) -> None:
    observed = seen(member(0, 0, master=True, topics=stored()), topics=(twin(created),))
    found = plan(
        deleted(deletionPolicy="Delete"), observed, cluster=cluster_of(slaves=0), deleting=True
    )
    assert (found.actions, found.finalizer) == ((), False)


def test_without_a_cluster_there_is_nothing_to_delete() -> None:
    going = deleted(deletionPolicy="Delete")
    found = plan_topic(going, {}, seen(), None, NOW, deleting=True)
    assert (found.actions, found.finalizer) == ((), False)


def test_neither_of_two_masters_is_written_to() -> None:
    both = (member(0, 0, master=True, topics={}), member(0, 1, master=True, topics={}))
    found = plan(topic(), seen(*both))
    assert found.actions == ()
    assert verdict(found, "Ready") == ("False", "TwoMasters")
    assert message(found, "Ready") == "orders-0 has two masters, neither is written to"
    assert verdict(found, "Synced") == ("Unknown", "UnableToRetrieve")
    gone = topic(deletionPolicy="Delete", deleted=to_time(NOW))
    leaving = plan(gone, seen(*both), deleting=True)
    assert (leaving.actions, leaving.finalizer) == ((), None)
