"""PodDisruptionBudgets: at most one member of a pair, one name server, is taken away."""

from __future__ import annotations

from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.render import common
from failback.operator.render.broker import pair_selector
from failback.operator.render.context import Context, Object
from failback.operator.render.nameserver import name_server_labels, selector, statefulset_name


def pair_budget(cluster: BrokerCluster, pair: int, running: int, context: Context) -> Object:
    """Return the budget of one pair: all but one of the members that are meant to run stay.

    Said as ``minAvailable``: each member has a StatefulSet of its own, and ``maxUnavailable``
    counts only those whose pod exists. While the pod of an evicted member is not made anew, it
    would allow the eviction of the other.
    """
    marks = common.labels(cluster, "broker", cluster=cluster.name, pair=str(pair))
    name = f"{cluster.name}-{pair}"
    limit = {"minAvailable": max(0, running - 1)}
    return _budget(cluster, name, marks, pair_selector(cluster, pair), limit, context)


def name_server_budget(name_server: NameServer, context: Context) -> Object:
    """Return the budget of one NameServer."""
    marks = name_server_labels(name_server)
    name = statefulset_name(name_server)
    limit = {"maxUnavailable": 1}
    return _budget(name_server, name, marks, selector(name_server), limit, context)


def _budget(
    owner: Resource,
    name: str,
    marks: dict[str, str],
    match: dict[str, str],
    limit: dict[str, int],
    context: Context,
) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": common.metadata(owner, name, context, marks),
        "spec": {
            **limit,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": match},
        },
    }
