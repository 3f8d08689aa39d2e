"""Decide what a SubscriptionGroup needs now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.planning.metadata import items
from failback.operator.planning.metadata.items import Item, OnPair, Work
from failback.operator.planning.metadata.on_masters import Ways, plan_item, to_write
from failback.operator.planning.metadata.topic import why_ignored
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.plan.encoding import names
from failback.operator.planning.plan.types import DeleteGroup, Plan, PutGroup


def group_config(group: SubscriptionGroup) -> dict[str, Any]:
    """Return what a broker's table is to say of the group, in RocketMQ's field names.

    Every field is named: a write replaces the whole object, and what it leaves out turns false.
    """
    spec = group.spec
    return {
        "groupName": group.group_name,
        "consumeEnable": spec.consume_enable,
        "consumeFromMinEnable": spec.consume_from_min_enable,
        "consumeBroadcastEnable": spec.consume_broadcast_enable,
        "retryQueueNums": spec.retry_queue_nums,
        "retryMaxTimes": spec.retry_max_times,
        "brokerId": spec.broker_id,
        "whichBrokerWhenConsumeSlowly": spec.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": spec.notify_consumer_ids_changed_enable,
    }


def plan_group(
    group: SubscriptionGroup,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    cluster: BrokerCluster | None,
    now: float,
    *,
    deleting: bool,
) -> Plan:
    """Return what brings a group towards its spec; arguments as of :func:`plan_item`."""
    item = Item(
        resource=group,
        word="Group",
        name=group.group_name,
        wanted=group_config(group),
    )
    ways = Ways(
        work=lambda pairs: _work(item, status, observed, pairs),
        row=lambda stored: {},
        warnings=lambda found: _warnings(group, found),
        remove=lambda pairs: _removal(group, pairs),
    )
    return plan_item(item, ways, status, observed, cluster, now, deleting=deleting)


def _work(
    item: Item, status: Mapping[str, Any], observed: ObservedCluster, pairs: Sequence[OnPair]
) -> Work:
    written = to_write(item, pairs, observed.refused)
    puts = tuple(PutGroup(pair.address, dict(item.wanted)) for pair in written)
    return Work(puts, items.put_events(item, written, status))


def _warnings(group: SubscriptionGroup, cluster: BrokerCluster) -> list[tuple[str, str]]:
    spec = group.spec
    given = {
        "attributes": bool(spec.attributes),
        "consumeMessageOrderly": spec.consume_message_orderly is not None,
        "consumeTimeoutMinute": spec.consume_timeout_minute is not None,
    }
    fields = [name for name, present in given.items() if present]
    found = []
    if fields:
        found.append(("AttributesIgnored", f"{names(fields)}: {why_ignored(cluster)}"))
    slaves = max(cluster.pair(index).slaves for index in range(cluster.spec.pairs))
    slow = spec.which_broker_when_consume_slowly
    if slow > slaves:
        text = f"whichBrokerWhenConsumeSlowly is {slow}, pairs have {slaves} slaves"
        found.append(("SlowBrokerMissing", text))
    return found


def _removal(group: SubscriptionGroup, pairs: Sequence[OnPair]) -> tuple[DeleteGroup, ...]:
    return tuple(
        DeleteGroup(group.group_name, pair.address, group.spec.remove_offsets)
        for pair in pairs
        if pair.stored is not None
    )
