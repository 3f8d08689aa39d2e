"""PodDisruptionBudgets: at most one member of a pair, one name server, is taken away."""

from __future__ import annotations

from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.render import common
from failback.operator.render.broker import pair_selector
from failback.operator.render.context import Context, Object
from failback.operator.render.nameserver import name_server_labels, selector, statefulset_name


def pair_budget(cluster: BrokerCluster, pair: int, context: Context) -> Object:
    """Return the budget of one pair."""
    marks = common.labels(cluster, "broker", cluster=cluster.name, pair=str(pair))
    name = f"{cluster.name}-{pair}"
    return _budget(cluster, name, marks, pair_selector(cluster, pair), context)


def name_server_budget(name_server: NameServer, context: Context) -> Object:
    """Return the budget of one NameServer."""
    marks = name_server_labels(name_server)
    name = statefulset_name(name_server)
    return _budget(name_server, name, marks, selector(name_server), context)


def _budget(
    owner: Resource,
    name: str,
    marks: dict[str, str],
    match: dict[str, str],
    context: Context,
) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": common.metadata(owner, name, context, marks),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": match},
        },
    }
