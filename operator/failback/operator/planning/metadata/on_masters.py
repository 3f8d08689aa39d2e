"""Decide what an item on masters needs now: what Topic and SubscriptionGroup share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.metadata import items
from failback.operator.planning.metadata.items import Config, Item, OnPair, Work
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.plan.types import Action, Plan

_NOTHING_TO_UNDO: Final = frozenset({"ClusterMissing", "Duplicate"})
"""Reasons of ``Ready`` for which a deletion takes nothing from any broker."""


@dataclass(frozen=True, slots=True)
class Ways:
    """What the kinds do differently."""

    work: Callable[[Sequence[OnPair]], Work]
    """Item on pairs → what is to be written now."""
    row: Callable[[Config], Mapping[str, Any]]
    """Item in a master's table → what an entry of ``status.pairs`` has beside the common fields."""
    warnings: Callable[[BrokerCluster], list[tuple[str, str]]]
    """Reasons and messages of the condition Warning."""
    remove: Callable[[list[OnPair]], tuple[Action, ...]]
    """What deletes the item from pairs, as :func:`items.plan_deletion` takes it."""


def plan_item(
    item: Item,
    ways: Ways,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    cluster: BrokerCluster | None,
    now: float,
    *,
    deleting: bool,
) -> Plan:
    """Return what brings an item towards its spec on every master, and the status to write.

    Args:
        status: Of the resource, as stored.
        observed: Of the cluster it names.
        cluster: With its status; ``None`` when there is none of that name.
        deleting: ``metadata.deletionTimestamp`` is set.
    """
    if deleting:
        return items.plan_deletion(item, status, observed, cluster, now, ways.remove)
    refusal = items.early(item, cluster, item.siblings(observed))
    if refusal is not None or cluster is None:
        found = [refusal] if refusal is not None else []
        nothing = refusal is not None and refusal.reason in _NOTHING_TO_UNDO
        finalizer = False if nothing else None
        return items.settle(item, status, found, None, Work(), now, finalizer=finalizer)
    pairs = items.find_pairs(item, cluster, observed)
    work = ways.work(pairs)
    verdicts = [
        work.unready or items.ready(item, pairs, observed.refused),
        items.synced(item, pairs),
        items.warning(item, ways.warnings(cluster)),
        *work.more,
    ]
    if item.is_paused or not item.is_managed:
        work = Work()
    rows = [_row(item, pair, ways) for pair in pairs]
    undo = item.resource.spec.deletion_policy == "Delete" and item.is_managed
    return items.settle(item, status, verdicts, rows, work, now, finalizer=undo)


def to_write(item: Item, pairs: Sequence[OnPair], refused: Mapping[str, str]) -> list[OnPair]:
    """Return the pairs whose master has not what is wanted, and has not refused it."""
    return [
        pair
        for pair in pairs
        if pair.known and not item.is_as_wanted(pair.stored) and pair.address not in refused
    ]


def _row(item: Item, pair: OnPair, ways: Ways) -> dict[str, Any]:
    """Return one entry of ``status.pairs``; what is not known is left out."""
    if not pair.known:
        return {"name": pair.name}
    return {
        "name": pair.name,
        "onMaster": item.is_as_wanted(pair.stored),
        "onSlaves": pair.on_slaves,
        **ways.row(pair.stored or {}),
    }
