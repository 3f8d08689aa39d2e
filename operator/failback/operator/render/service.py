"""Services: stable names of pods, and one address for clients that take only one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.external import External, NameServerExternal
from failback.operator.kinds.name_server import NameServer
from failback.operator.render import common
from failback.operator.render.context import Context, Object
from failback.operator.render.members import (
    ClusterContext,
    MemberContext,
    member_name,
)
from failback.operator.render.nameserver import name_server_labels, selector, statefulset_name

OUTSIDE: Final = "failback.dev/external"
"""Label of a Service for clients outside; the Service is deleted when the spec wants none."""


def broker_service(context: ClusterContext) -> Object:
    """Return the headless Service of all brokers; names resolve before pods are ready."""
    cluster = context.cluster
    port = cluster.spec.networking.listen_port
    ports = {"remoting": port, "fast": port - 2, "ha": port + 1, "http": common.HTTP_PORT}
    metadata = common.metadata(cluster, context.service, context.place, dict(context.marks))
    match = {"failback.dev/cluster": cluster.name, "app.kubernetes.io/component": "broker"}
    return _service(metadata, match, ports, **_HEADLESS)


_HEADLESS: Final = {"clusterIP": "None", "publishNotReadyAddresses": True}


def _service(
    metadata: Object, match: Mapping[str, str], ports: Mapping[str, int], **how: Any
) -> Object:
    """Return a Service; its spec begins with ``how``."""
    listed = [{"name": name, "port": number} for name, number in ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {**how, "selector": dict(match), "ports": listed},
    }


def member_service_name(cluster: BrokerCluster, pair: int, ordinal: int) -> str:
    """Return the name of the Service under which a member is reached from outside."""
    return f"{member_name(cluster, pair, ordinal)}-external"


def member_service(context: ClusterContext, member: MemberContext) -> Object:
    """Return the Service of one member for clients outside: its port, and that for VIP channels."""
    cluster, external = context.cluster, context.cluster.spec.external
    assert external is not None
    port = cluster.listen_port(member.pair.index, member.ordinal)
    name = member_service_name(cluster, member.pair.index, member.ordinal)
    match = {key: text for key, text in member.marks.items() if key.startswith("failback.dev/")}
    return _outside(
        common.metadata(cluster, name, context.place, dict(member.marks)),
        external,
        {**match, "app.kubernetes.io/component": "broker"},
        {"remoting": (port, port), "fast": (port - 2, port - 2)},
    )


def name_server_external(name_server: NameServer, context: Context) -> Object:
    """Return the Service of all name servers for clients outside."""
    external = name_server.spec.external
    assert external is not None
    name = external_name(name_server)
    return _outside(
        common.metadata(name_server, name, context, name_server_labels(name_server)),
        external,
        selector(name_server),
        {"remoting": (name_server.spec.port, external.node_port or 0)},
    )


def external_name(name_server: NameServer) -> str:
    """Return the name of the Service of :func:`name_server_external`."""
    return f"{name_server.name}-external"


def _outside(
    metadata: Object,
    external: External | NameServerExternal,
    match: Mapping[str, str],
    ports: Mapping[str, tuple[int, int]],
) -> Object:
    """Return a Service for clients outside.

    A slave that is not ready yet asks its master under the announced address, so the Service
    also leads to pods that are not ready.

    Args:
        ports: Name → port of the pod, and of the nodes where they are node ports.
    """
    metadata["labels"] = {**metadata["labels"], OUTSIDE: "true"}
    metadata = {**metadata, "annotations": dict(external.annotations)}
    inner = {name: port for name, (port, _) in ports.items()}
    found = _service(metadata, match, inner, type=external.type, publishNotReadyAddresses=True)
    for entry in found["spec"]["ports"]:
        entry["targetPort"] = entry["name"]
        if external.type == "NodePort":
            entry["nodePort"] = ports[entry["name"]][1]
    return found


def name_server_services(name_server: NameServer, context: Context) -> list[Object]:
    """Return the headless Service of the replicas, and the one address of the ready ones."""
    names = (statefulset_name(name_server), f"{name_server.name}-namesrv")
    marks, match = name_server_labels(name_server), selector(name_server)
    headless, one = (common.metadata(name_server, each, context, marks) for each in names)
    ports = {"remoting": name_server.spec.port}
    pods = _service(headless, match, {**ports, "http": common.HTTP_PORT}, **_HEADLESS)
    return [pods, _service(one, match, ports)]
