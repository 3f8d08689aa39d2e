"""Topics and subscription groups as resources: written, copied, repaired, shown, removed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec
import pytest

from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, is_true, operator
from tests.support.operator.quick_pair import QUICK, QuickPair
from tests.support.operator.resources import resource

CLUSTER = {"clusterRef": {"name": "orders"}}
UNMANAGED = {"failback.dev/managed": "false"}
PAIR = "orders-0"


@pytest.fixture(scope="module")
def pair(control_plane: ControlPlane, node: NodeProcess) -> Iterator[QuickPair]:
    """One pair and its operator for all tests of this file."""
    namespace = Namespace(control_plane)
    try:
        with operator(namespace, **QUICK):
            found = QuickPair(namespace)
            found.create()
            found.wait_settled()
            yield found
    finally:
        namespace.clean_up()


def has_reason(kind: str, reason: str) -> Callable[[Object], bool]:
    return lambda item: condition_of(item, kind).get("reason") == reason


def wait_synced(pair: QuickPair, kind: str, name: str) -> Object:
    """Wait until masters have an item as wanted and slaves as their masters."""

    def holds(item: Object) -> bool:
        newest = item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]
        return bool(newest and is_true("Ready")(item) and is_true("Synced")(item))

    return pair.api.wait(kind, name, holds, seconds=120)


def repairs_with(pair: QuickPair, words: str) -> list[Object]:
    """Return the events of repaired topics that say this."""
    return [item for item in pair.events("TopicDriftRepaired") if words in item["message"]]


async def topics_of(pair: QuickPair, member: int) -> dict[str, TopicConfig]:
    async with pair.admin() as admin:
        return dict((await admin.all_topic_config(pair.address(member))).topic_config_table)


async def groups_of(pair: QuickPair, member: int) -> dict[str, SubscriptionGroupConfig]:
    async with pair.admin() as admin:
        return dict((await admin.all_groups(pair.address(member))).subscription_group_table)


@pytest.mark.sample
async def test_a_topic_goes_to_the_master_and_its_copy_is_shown(pair: QuickPair) -> None:
    pair.api.create(
        resource("Topic", "paid", **CLUSTER, topicName="PAID", readQueueNums=6, writeQueueNums=4)
    )
    shown = wait_synced(pair, "Topic", "paid")["status"]
    row = {"name": PAIR, "onMaster": True, "onSlaves": True}
    assert shown["pairs"] == [{**row, "readQueueNums": 6, "writeQueueNums": 4, "perm": 6}]
    assert shown["topicName"] == "PAID"
    for member in (0, 1):
        stored = (await topics_of(pair, member))["PAID"]
        assert (stored.read_queue_nums, stored.write_queue_nums, stored.perm) == (6, 4, 6)
    async with pair.admin() as admin:
        route = await admin.route("PAID")
    assert [(data.broker_name, data.write_queue_nums) for data in route.queue_datas] == [(PAIR, 4)]
    assert PAIR in pair.wait_event("TopicCreated", "paid")

    pair.api.patch("Topic", "paid", {"spec": {"readQueueNums": 8, "writeQueueNums": 8}})
    assert wait_synced(pair, "Topic", "paid")["status"]["pairs"][0]["writeQueueNums"] == 8
    assert "writeQueueNums 4 -> 8" in pair.wait_event("TopicUpdated", "paid")
    assert (await topics_of(pair, 1))["PAID"].write_queue_nums == 8


async def test_a_group_goes_to_the_master_and_its_copy_is_shown(pair: QuickPair) -> None:
    pair.api.create(resource("SubscriptionGroup", "billing", **CLUSTER, retryMaxTimes=3))
    shown = wait_synced(pair, "SubscriptionGroup", "billing")["status"]
    assert shown["pairs"] == [{"name": PAIR, "onMaster": True, "onSlaves": True}]
    on_master, on_slave = [(await groups_of(pair, member))["billing"] for member in (0, 1)]
    assert on_master.retry_max_times == 3
    assert msgspec.to_builtins(on_slave) == msgspec.to_builtins(on_master)
    assert PAIR in pair.wait_event("GroupCreated", "billing")


async def test_what_somebody_changes_at_the_broker_is_put_back_and_told(pair: QuickPair) -> None:
    pair.api.create(resource("Topic", "kept", **CLUSTER))
    pair.api.create(resource("SubscriptionGroup", "keeper", **CLUSTER))
    wait_synced(pair, "Topic", "kept")
    wait_synced(pair, "SubscriptionGroup", "keeper")
    async with pair.admin() as admin:
        await admin.create_topic(pair.address(0), TopicConfig("kept", 8, 8, perm=4))
        await admin.create_group(
            pair.address(0), SubscriptionGroupConfig("keeper", retry_max_times=1)
        )
    assert "perm 4 -> 6" in pair.wait_event("TopicDriftRepaired", "kept")
    assert "retryMaxTimes 1 -> 16" in pair.wait_event("GroupDriftRepaired", "keeper")
    assert (await topics_of(pair, 0))["kept"].perm == 6
    assert (await groups_of(pair, 0))["keeper"].retry_max_times == 16
    for _ in range(600):
        topic_copy, group_copy = (await topics_of(pair, 1))["kept"], await groups_of(pair, 1)
        if topic_copy.perm == 6 and group_copy["keeper"].retry_max_times == 16:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("the slave still has what was repaired")


async def test_what_is_not_managed_is_only_shown(pair: QuickPair) -> None:
    pair.api.create(resource("Topic", "shown", **CLUSTER))
    wait_synced(pair, "Topic", "shown")
    pair.api.patch("Topic", "shown", {"metadata": {"annotations": UNMANAGED}})
    async with pair.admin() as admin:
        await admin.create_topic(pair.address(0), TopicConfig("shown", 8, 8, perm=4))
    drifted = pair.api.wait("Topic", "shown", has_reason("Synced", "Drifted"), seconds=60)
    assert "perm 4 -> 6" in condition_of(drifted, "Synced")["message"]
    assert "perm 4 -> 6" in pair.wait_event("TopicDriftSeen", "shown")
    # A managed twin of this drift would be repaired by now: the other is, a moment after it.
    async with pair.admin() as admin:
        await admin.create_topic(pair.address(0), TopicConfig("kept", 8, 8, perm=2))
    wait_until(lambda: repairs_with(pair, "perm 2 -> 6"), "the repair of another topic", 60)
    assert (await topics_of(pair, 0))["shown"].perm == 4
    assert pair.events("TopicDriftRepaired", "shown") == []

    pair.api.patch("Topic", "shown", {"metadata": {"annotations": {"failback.dev/managed": None}}})
    wait_synced(pair, "Topic", "shown")
    assert (await topics_of(pair, 0))["shown"].perm == 6


async def test_the_younger_of_two_resources_for_one_topic_waits(pair: QuickPair) -> None:
    pair.api.create(resource("Topic", "first", **CLUSTER, topicName="SHARED", writeQueueNums=4))
    wait_synced(pair, "Topic", "first")
    pair.api.create(
        resource("Topic", "a-second", **CLUSTER, topicName="SHARED", deletionPolicy="Delete")
    )
    twin = pair.api.wait("Topic", "a-second", has_reason("Ready", "Duplicate"), seconds=60)
    assert "Topic/first" in condition_of(twin, "Ready")["message"]
    assert (await topics_of(pair, 0))["SHARED"].write_queue_nums == 4
    pair.api.delete("Topic", "a-second")
    pair.api.wait_gone("Topic", "a-second")
    assert "SHARED" in await topics_of(pair, 0), "it is the older one's"


async def test_deletion_removes_what_the_policy_says_and_keeps_the_rest(pair: QuickPair) -> None:
    gone = {"deletionPolicy": "Delete"}
    pair.api.create(resource("Topic", "fleeting", **CLUSTER, **gone))
    pair.api.create(resource("Topic", "lasting", **CLUSTER))
    pair.api.create(resource("SubscriptionGroup", "passing", **CLUSTER, **gone, removeOffsets=True))
    pair.api.create(resource("SubscriptionGroup", "staying", **CLUSTER))
    topics, groups = ("fleeting", "lasting"), ("passing", "staying")
    for name in topics:
        wait_synced(pair, "Topic", name)
    for name in groups:
        wait_synced(pair, "SubscriptionGroup", name)
    async with pair.admin() as admin:
        for name in groups:
            await admin.update_offset(pair.address(0), name, "lasting", 0, 5)
    for name in topics:
        pair.api.delete("Topic", name)
    for name in groups:
        pair.api.delete("SubscriptionGroup", name)
    for name in topics:
        pair.api.wait_gone("Topic", name)
    for name in groups:
        pair.api.wait_gone("SubscriptionGroup", name)

    async with pair.admin() as admin:
        left = await topics_of(pair, 0)
        assert ("fleeting" in left, "lasting" in left) == (False, True)
        left_groups = await groups_of(pair, 0)
        assert ("passing" in left_groups, "staying" in left_groups) == (False, True)
        offsets = await admin.all_offsets(pair.address(0))
        assert ("lasting@passing" in offsets, "lasting@staying" in offsets) == (False, True)
        assert "fleeting" not in await admin.topic_list()

    for _ in range(600):
        on_slave = {**await topics_of(pair, 1), **await groups_of(pair, 1)}
        if not on_slave.keys() & {"fleeting", "passing"}:
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("the slave still has a copy of what was deleted")
    assert "fleeting" in pair.wait_event("TopicDeleted", "fleeting")
    assert "lasting" in pair.wait_event("TopicRetained", "lasting")
    assert "passing" in pair.wait_event("GroupDeleted", "passing")
    assert "staying" in pair.wait_event("GroupRetained", "staying")
