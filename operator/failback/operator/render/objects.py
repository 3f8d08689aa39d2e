"""All objects of a custom resource, in a fixed order.

Depends on its arguments only: equal resources and contexts give byte-equal objects, in any
process. Names are functions of the resource's name and the indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from failback.operator.kinds.base import PodMonitor, Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.render import apache, common
from failback.operator.render.broker import member_labels, statefulset
from failback.operator.render.config import config_map, name_server_properties, properties_text
from failback.operator.render.context import Context, Object
from failback.operator.render.members import (
    APACHE_TLS,
    ClusterContext,
    broker_properties,
    context_of,
    is_carried,
    other_members,
    pair_selector,
)
from failback.operator.render.nameserver import (
    addresses,
    name_server_labels,
    selector,
    statefulset_name,
)
from failback.operator.render.nameserver import statefulset as name_server_statefulset
from failback.operator.render.service import (
    broker_service,
    member_service,
    name_server_external,
    name_server_services,
)
from failback.operator.render.shape import Shape


def render_name_server(name_server: NameServer, context: Context) -> list[Object]:
    """Return the objects of one NameServer; none while it is suspended."""
    if name_server.spec.suspend:
        return []
    name = statefulset_name(name_server)
    marks = common.versioned(
        name_server_labels(name_server), common.engine_version(name_server.spec.engine, context)
    )
    text = properties_text(name_server_properties(name_server, context))
    files = {"namesrv.conf": text, **apache.log_files(name_server.spec.engine, "namesrv", context)}
    if tls := name_server.spec.tls:
        values = {**tls.settings(), "tls.server.mode": tls.mode.lower()}
        files[common.TLS_FILE] = properties_text(values)
    found = [
        config_map(name_server, name, files, marks, context),
        *name_server_services(name_server, context),
        *([name_server_external(name_server, context)] if name_server.spec.external else ()),
        name_server_statefulset(name_server, context),
    ]
    if name_server.spec.pod_disruption_budget.enabled:
        own, limit = name_server_labels(name_server), {"maxUnavailable": 1}
        found.append(_budget(name_server, name, own, selector(name_server), limit, context))
    monitor = name_server.spec.metrics.pod_monitor
    if context.pod_monitors and monitor.enabled:
        match = selector(name_server)
        found.append(_pod_monitor(name_server, name, monitor, marks, match, context))
    return found


def render_cluster(
    cluster: BrokerCluster,
    name_servers: Sequence[str],
    context: Context,
    shape: Shape | None = None,
) -> list[Object]:
    """Return the objects of one BrokerCluster; none while it is suspended.

    Args:
        name_servers: `host:port` of every name server, in index order.
        shape: How the objects deviate from the spec now; ``None`` = not at all.
    """
    if cluster.spec.suspend:
        return []
    found = context_of(cluster, name_servers, context, shape)
    objects = [broker_service(found)]
    for index in found.members:
        objects += _pair(found, index)
    monitor = cluster.spec.metrics.pod_monitor
    if context.pod_monitors and monitor.enabled:
        marks = dict(found.marks)
        match = {"failback.dev/cluster": cluster.name, "app.kubernetes.io/component": "broker"}
        objects.append(_pod_monitor(cluster, cluster.name, monitor, marks, match, context))
    return objects


def _pair(context: ClusterContext, index: int) -> Iterator[Object]:
    cluster, external = context.cluster, context.cluster.spec.external
    objects: list[Object] = []
    for member in context.members[index]:
        properties = broker_properties(context, member)
        marks = member_labels(context, member)
        files = apache.log_files(context.engine, "broker", context.place)
        files["broker.conf"] = properties_text(properties)
        if (tls := cluster.spec.tls) is not None:
            own = {"tls.enable": properties[APACHE_TLS[1]]} if APACHE_TLS[1] in properties else {}
            files[common.TLS_FILE] = properties_text({**tls.settings(), **own})
        if is_carried(context, member.pair):
            files[common.MEMBERS_FILE] = other_members(context, member)
        if external is not None and external.type != "Template":
            yield member_service(context, member)
        objects += (
            config_map(cluster, member.name, files, marks, context.place),
            statefulset(context, member, properties),
        )
    if cluster.spec.pod_disruption_budget.enabled:
        yield from _pair_budgets(context, index)
    yield from objects


def _pair_budgets(context: ClusterContext, pair: int) -> Iterator[Object]:
    """Yield the budgets of one pair: all but one of the members that are meant to run stay.

    The limit is ``minAvailable``: each member has a StatefulSet of its own, and ``maxUnavailable``
    counts only those that have a pod. While an evicted member has no new pod, ``maxUnavailable``
    would allow the eviction of the other member.

    With ``failover.onDrain`` the master has a budget of its own, of 0. No pod is of two budgets:
    the API server would fail its eviction (500), which ends a drain. So the other one counts
    slaves only, and keeps all of them while no master is ready.
    """
    cluster = context.cluster
    running = sum(not member.stopped for member in context.members[pair])
    marks = common.labels(cluster, "broker", cluster=cluster.name, pair=str(pair))
    name, match = f"{cluster.name}-{pair}", pair_selector(cluster, pair)
    limit = {"minAvailable": max(0, running - 1 - (pair in context.shape.masters_held))}
    budget = _budget(cluster, name, marks, match, limit, context.place)
    if cluster.spec.failover.on_drain != "Allow":
        role = {"key": common.ROLE_LABEL, "operator": "NotIn", "values": ["master"]}
        budget["spec"]["selector"]["matchExpressions"] = [role]
        own = {**match, common.ROLE_LABEL: "master"}
        none, marks = {"maxUnavailable": 0}, dict(context.marks)  # without the label of a pair:
        # what the operator itself takes away goes by the other one
        yield _budget(cluster, f"{name}-master", marks, own, none, context.place)
    yield budget


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


def _pod_monitor(
    owner: Resource,
    name: str,
    wanted: PodMonitor,
    marks: dict[str, str],
    match: dict[str, str],
    context: Context,
) -> Object:
    """Return the PodMonitor of the Prometheus operator that scrapes the pods of ``match``."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": common.metadata(owner, name, context, {**wanted.labels, **marks}),
        "spec": {
            "selector": {"matchLabels": match},
            "podMetricsEndpoints": [
                {"port": port, "path": "/metrics", "interval": wanted.interval}
                for port in apache.METRICS_PORTS
            ],
        },
    }


def name_servers_of(
    cluster: BrokerCluster, items: Sequence[Resource], context: Context
) -> list[str]:
    """Return the addresses a cluster registers at: its own list, or its NameServer's.

    Raises:
        LookupError: The NameServer it names is not among ``items``.
    """
    if cluster.spec.name_server_ref is None:
        return list(cluster.spec.name_server_addresses or ())
    wanted = cluster.spec.name_server_ref.name
    for item in items:
        if isinstance(item, NameServer) and item.name == wanted:
            return addresses(item, context)
    raise LookupError(f"{cluster.label}: there is no NameServer {wanted}")


def render(items: Sequence[Resource], context: Context) -> list[Object]:
    """Return the objects of every NameServer and BrokerCluster of the context's namespace."""
    found: list[Object] = []
    own = [item for item in items if item.namespace == context.namespace]
    for item in own:
        if isinstance(item, NameServer):
            found += render_name_server(item, context)
    for item in own:
        if isinstance(item, BrokerCluster):
            found += render_cluster(item, name_servers_of(item, own, context), context)
    return found
