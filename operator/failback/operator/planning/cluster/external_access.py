"""Addresses that a cloud gives to members, read back from their Services. Pure.

A member that was never told an address is not made before it has one: it would announce itself
where no client outside reaches it. A member that runs keeps what it announces until the new address
is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Object, ObservedCluster
from failback.operator.planning.plan.encoding import Verdict, find_condition, names
from failback.operator.planning.plan.memory import Desired
from failback.operator.planning.state.decode import member_of
from failback.operator.render.context import Context
from failback.operator.render.members import member_name
from failback.operator.render.service import member_service_name

CONDITION: Final = "ExternalAccess"
_OF_MEMBERS: Final = frozenset({"ConfigMap", "StatefulSet"})


def address_of(service: Object | None) -> str:
    """Return the IP address or host name of a load balancer; empty while it has none."""
    status: Mapping[str, Any] = (service or {}).get("status") or {}
    entries = (status.get("loadBalancer") or {}).get("ingress") or ()
    return next((each.get("ip") or each.get("hostname") or "" for each in entries), "")


def with_addresses(context: Context, cluster: BrokerCluster, observed: ObservedCluster) -> Context:
    """Return the context with what each member announces, where load balancers are wanted."""
    if not _is_balanced(cluster):
        return context
    found = {}
    for (pair, ordinal), view in sorted(observed.members.items()):
        told = facts.properties(view.config_map).get("brokerIP1", "")
        address = _address(cluster, observed, pair, ordinal) or told
        if address:
            found[member_name(cluster, pair, ordinal)] = address
    for pair in range(cluster.spec.pairs):
        for ordinal in cluster.pair(pair).ordinals:
            if address := _address(cluster, observed, pair, ordinal):
                found[member_name(cluster, pair, ordinal)] = address
    return dataclasses.replace(context, external=found)


def without_waiting(cluster: BrokerCluster, context: Context, desired: Desired) -> Desired:
    """Leave out members that were never told an address; their Services are made."""
    if not _is_balanced(cluster):
        return desired
    return {
        key: item
        for key, item in desired.items()
        if key[0] not in _OF_MEMBERS
        or (member := member_of(item)) is None
        or member_name(cluster, *member) in context.external
    }


def external_access(view: ClusterView) -> tuple[Verdict, ...]:
    """Whether every member announces an address for clients outside; nothing where none asks."""
    if view.cluster.spec.external is None:
        if find_condition(view.previous, CONDITION) is None:
            return ()
        return (Verdict(CONDITION, True, "", "brokers announce addresses inside"),)
    waiting = [
        view.member_name(item)
        for item in view.members
        if _is_balanced(view.cluster)
        and not _address(view.cluster, view.observed, item.pair, item.ordinal)
    ]
    if waiting:
        text = f"no load balancer has an address yet for {names(waiting)}"
        return (Verdict(CONDITION, False, "WaitingForAddress", text),)
    return (Verdict(CONDITION, True, "Announced", "every member has an address outside"),)


def _is_balanced(cluster: BrokerCluster) -> bool:
    external = cluster.spec.external
    return external is not None and external.type == "LoadBalancer"


def _address(cluster: BrokerCluster, observed: ObservedCluster, pair: int, ordinal: int) -> str:
    name = member_service_name(cluster, pair, ordinal)
    return address_of(observed.objects.get(("Service", name)))
