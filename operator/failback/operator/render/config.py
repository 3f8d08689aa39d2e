"""``broker.conf`` and ``namesrv.conf``: managed keys, the user's, and the restart hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

from failback.operator.engines.catalogue import quirk, restarts
from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster, Pair
from failback.operator.kinds.name_server import NameServer
from failback.operator.render import common
from failback.operator.render.context import Context, Object

PERMISSION_READ_WRITE: Final = 6
PERMISSION_READ: Final = 4


def service_name(cluster: BrokerCluster) -> str:
    """Return the headless Service that gives the cluster's pods their DNS names."""
    return f"{cluster.name}-brokers"


def member_name(cluster: BrokerCluster, pair: int, ordinal: int) -> str:
    """Return the name of a member's StatefulSet and ConfigMap."""
    return f"{cluster.name}-{pair}-{ordinal}"


def pod_name(cluster: BrokerCluster, pair: int, ordinal: int) -> str:
    """Return the name of a member's pod."""
    return f"{member_name(cluster, pair, ordinal)}-0"


def claim_name(cluster: BrokerCluster, pair: int, ordinal: int) -> str:
    """Return the name of a member's PersistentVolumeClaim, as its StatefulSet makes it."""
    return f"data-{pod_name(cluster, pair, ordinal)}"


def broker_properties(
    cluster: BrokerCluster,
    pair: Pair,
    ordinal: int,
    name_servers: Sequence[str],
    context: Context,
    *,
    draining: bool = False,
) -> dict[str, str]:
    """Return the properties of one member, the user's among them."""
    engine = cluster.spec.engine
    pod = pod_name(cluster, pair.index, ordinal)
    home = context.home(pod)
    master = pair.broker_id(ordinal) == 0
    announced, replicated = _addresses(cluster, pair.index, ordinal, context)
    member = member_name(cluster, pair.index, ordinal)
    listen_port = context.port_of(member, "remoting", cluster.listen_port(pair.index, ordinal))
    managed = {
        "brokerClusterName": cluster.cluster_name,
        "brokerName": pair.broker_name,
        "brokerId": str(pair.broker_id(ordinal)),
        "brokerRole": pair.master_role if master else "SLAVE",
        "brokerIP1": announced,
        "brokerIP2": replicated,
        "listenPort": str(listen_port),
        "namesrvAddr": ";".join(name_servers),
        "brokerPermission": str(PERMISSION_READ if draining else PERMISSION_READ_WRITE),
        "slaveReadEnable": "true" if pair.slave_read_enable else "false",
        "flushDiskType": pair.master_flush if master else pair.slave_flush,
        "storePathRootDir": f"{home}/store",
        "storePathCommitLog": f"{home}/store/commitlog",
    }
    if engine.program == "failback" and announced not in (replicated, "${POD_IP}"):
        # The announced address is that of a load balancer or node in front of the pod.
        managed["failbackBindAddress"] = "${POD_IP}"
    version = common.engine_version(engine, context)
    if quirk("haListenPort", engine.program, version) == "configurable":
        managed["haListenPort"] = str(listen_port + 1)
    if quirk("pairMembers", engine.program, version) and _gives_offsets_back(cluster, pair):
        managed["failbackMembers"] = _members(cluster, pair, context)
    if quirk("ackRule", engine.program, version) == "inSyncReplicas":
        wanted = cluster.spec.sync.in_sync_replicas
        needed = wanted or (2 if pair.master_role == "SYNC_MASTER" else 1)
        managed["totalReplicas"] = str(1 + pair.slaves)
        managed["inSyncReplicas"] = str(needed)
    return {**pair.config, **managed}


def _gives_offsets_back(cluster: BrokerCluster, pair: Pair) -> bool:
    """Whether a returned master of the pair asks its slaves for offsets."""
    guard = pair.config.get("failbackGuardReturnedOffsets")
    is_guarded = cluster.spec.engine.rules == "guarded" if guard is None else guard == "true"
    return is_guarded and pair.slaves > 0


def _members(cluster: BrokerCluster, pair: Pair, context: Context) -> str:
    """Return where the pair's members register; a pod's address is found by the pod's name."""
    found = []
    for ordinal in pair.ordinals:
        announced, _ = _addresses(cluster, pair.index, ordinal, context)
        if announced == "${POD_IP}":
            pod = pod_name(cluster, pair.index, ordinal)
            announced = context.address_of(pod, service_name(cluster))
        member = member_name(cluster, pair.index, ordinal)
        port = context.port_of(member, "remoting", cluster.listen_port(pair.index, ordinal))
        found.append(f"{announced}:{port}")
    return ";".join(found)


def _addresses(
    cluster: BrokerCluster, pair: int, ordinal: int, context: Context
) -> tuple[str, str]:
    """Return brokerIP1 (what clients receive) and brokerIP2 (what slaves connect to)."""
    own = context.address_of(pod_name(cluster, pair, ordinal), service_name(cluster))
    networking, external = cluster.spec.networking, cluster.spec.external
    if networking.broker_address == "PodIP":
        return "${POD_IP}", "${POD_IP}"
    template = networking.external_template if external is None else external.template
    if template:
        words = {
            "cluster": cluster.name,
            "pair": str(pair),
            "ordinal": str(ordinal),
            "namespace": context.namespace,
        }
        return _filled(template, words), own
    if external is not None and external.node_addresses:
        nodes = external.node_addresses
        return nodes[(4 * pair + ordinal) % len(nodes)], own
    return context.external.get(member_name(cluster, pair, ordinal), own), own


def _filled(template: str, words: Mapping[str, str]) -> str:
    """Return a template with its words in their places. No str.format: it obeys its input."""
    for word, value in words.items():
        template = template.replace(f"{{{word}}}", value)
    return template


def name_server_properties(name_server: NameServer, context: Context) -> dict[str, str]:
    """Return the properties of every replica of a NameServer."""
    port = context.port_of(f"{name_server.name}-ns", "remoting", name_server.spec.port)
    managed = {"listenPort": str(port), "kvConfigPath": "${HOME}/conf/kvConfig.json"}
    if name_server.spec.engine.program == "failback":
        http_port = context.port_of(f"{name_server.name}-ns", "http", common.HTTP_PORT)
        managed |= {"bindAddress": "${POD_IP}", "failbackHttpPort": str(http_port)}
    return {**name_server.spec.config, **managed}


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the file: one `key=value` per line in byte order of the keys."""
    lines = [f"{key}={properties[key]}" for key in sorted(properties)]
    return "\n".join(["# generated by failback-operator", *lines, ""])


def restart_hash(properties: Mapping[str, str]) -> str:
    """Return 16 hex digits over the lines whose change needs a restart.

    A live change alters the ConfigMap and not this, so it replaces no pod.
    """
    lines = [f"{key}={properties[key]}\n" for key in sorted(properties) if restarts(key)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def config_map(
    owner: Resource, name: str, file: str, text: str, marks: dict[str, str], context: Context
) -> Object:
    """Return the ConfigMap that holds one configuration file."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": common.metadata(owner, name, context, marks),
        "data": {file: text},
    }
