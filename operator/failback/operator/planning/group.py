"""Decide what a SubscriptionGroup needs now. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.planning import metadata
from failback.operator.planning.encoding import names
from failback.operator.planning.metadata import Item, OnPair, Work
from failback.operator.planning.observed import Object, ObservedCluster
from failback.operator.planning.topic import why_ignored
from failback.operator.planning.types import DeleteGroup, Plan, PutGroup


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
    """Return what brings a group towards its spec on every master, and the status to write.

    Args:
        status: Its status as stored.
        observed: Of the cluster it names.
        cluster: With its status; ``None`` when there is none of that name.
        deleting: ``metadata.deletionTimestamp`` is set.
    """
    item = Item(
        resource=group,
        word="Group",
        name=group.group_name,
        table="groups",
        wanted=group_config(group),
        names_of=_name_of,
    )
    if deleting:
        return metadata.plan_deletion(
            item, status, observed, cluster, now, lambda pairs: _removal(group, pairs)
        )
    refusal = metadata.early(item, cluster, observed.groups)
    if refusal is not None or cluster is None:
        found = [refusal] if refusal is not None else []
        return metadata.settle(item, status, found, None, Work(), now)
    pairs = metadata.find_pairs(item, cluster, observed)
    written = [
        pair
        for pair in pairs
        if pair.known
        and not item.is_as_wanted(pair.stored)
        and pair.address not in observed.refused
    ]
    work = Work(
        tuple(PutGroup(pair.address, dict(item.wanted)) for pair in written),
        metadata.put_events(item, written, status),
    )
    verdicts = [
        metadata.ready(item, pairs, observed.refused),
        metadata.synced(item, pairs),
        metadata.warning(item, _warnings(group, cluster)),
    ]
    if item.is_paused or not item.is_managed:
        work = Work()
    return metadata.settle(item, status, verdicts, [_row(item, pair) for pair in pairs], work, now)


def _name_of(found: Object) -> str:
    return str(found.get("spec", {}).get("groupName") or found["metadata"]["name"])


def _row(item: Item, pair: OnPair) -> dict[str, Any]:
    """Return one entry of ``status.pairs``; what is not known is left out."""
    if not pair.known:
        return {"name": pair.name}
    return {
        "name": pair.name,
        "onMaster": item.is_as_wanted(pair.stored),
        "onSlaves": pair.on_slaves,
    }


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
