"""What the objects of one cluster have in common, computed once per rendering. Pure.

:class:`ClusterContext` holds the cluster in its shape of now, and :class:`MemberContext` each
broker member: its names, folders, ports, addresses and labels. The modules that build objects read
them and ask the spec only for what concerns no other object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from failback.operator.engines.catalogue import quirk
from failback.operator.kinds.base import Engine
from failback.operator.kinds.broker_cluster import BrokerCluster, Pair
from failback.operator.render import apache, common
from failback.operator.render.context import Context
from failback.operator.render.shape import (
    Guarding,
    Shape,
    live_values,
    shaped_cluster,
    shaped_pair,
    wanted_guarding,
)

ACL_MODE: Final = "failbackAclMode"
FAILBACK_TLS: Final = ("failbackTlsMode", "useTLS")
APACHE_TLS: Final = ("tls.server.mode", "tls.enable")
"""Names of the lines that say which connections a member takes, and whether its own speak TLS."""
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


def pair_selector(cluster: BrokerCluster, pair: int) -> dict[str, str]:
    """Return the labels that match the pods of one pair."""
    return {"failback.dev/cluster": cluster.name, "failback.dev/pair": str(pair)}


def member_selector(cluster: BrokerCluster, pair: int, ordinal: int) -> dict[str, str]:
    """Return the labels that match the pod of one member and no other."""
    return {**pair_selector(cluster, pair), "failback.dev/member": str(ordinal)}


@dataclass(frozen=True, slots=True)
class MemberContext:
    """One broker member as its objects are rendered."""

    pair: Pair
    """In the shape of now."""
    ordinal: int
    name: str
    """Of the StatefulSet and the ConfigMap."""
    home: str
    run_dir: str
    """Folder of hold files and death records."""
    listen_port: int
    """Port ``remoting``; the fast port is 2 below it, the HA port 1 above it."""
    http_port: int
    announced: str
    """brokerIP1: the host that clients receive."""
    replicated: str
    """brokerIP2: the host that slaves connect to."""
    marks: Mapping[str, str]
    """Labels of the member's objects that do not change with the engine's version. The role is
    never among them."""
    selector: Mapping[str, str]
    """Labels that match the member's pod and no other."""
    stopped: bool
    """Whether its StatefulSet has no replica now."""
    gated: bool
    """Whether its pod only reads where its log ends."""


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """One cluster as its objects are rendered."""

    cluster: BrokerCluster
    """With the engine of the shape."""
    place: Context
    name_servers: str
    """``namesrvAddr`` of every member."""
    service: str
    """Name of the headless Service."""
    marks: Mapping[str, str]
    """Labels of the objects that all members share."""
    version: str
    """Of the engine."""
    members: Mapping[int, Sequence[MemberContext]]
    """Pair → its members in the order of their ordinals."""
    shape: Shape
    guarding: Guarding

    @property
    def engine(self) -> Engine:
        """The engine of every member."""
        return self.cluster.spec.engine


def context_of(
    cluster: BrokerCluster, name_servers: Sequence[str], context: Context, shape: Shape | None
) -> ClusterContext:
    """Return what the objects of a cluster have in common.

    Args:
        name_servers: ``host:port`` of every name server, in index order.
        shape: How the objects deviate from the spec now; ``None`` = not at all.
    """
    shape = shape or Shape(cluster.spec.pairs)
    cluster = shaped_cluster(cluster, shape)
    pairs = [shaped_pair(cluster, index, shape) for index in range(shape.pairs)]
    return ClusterContext(
        cluster=cluster,
        place=context,
        name_servers=";".join(name_servers),
        service=service_name(cluster),
        marks=common.labels(cluster, "broker", cluster=cluster.name),
        version=common.engine_version(cluster.spec.engine, context),
        members={
            pair.index: [_member(cluster, pair, each, context, shape) for each in pair.ordinals]
            for pair in pairs
        },
        shape=shape,
        guarding=shape.guarding or wanted_guarding(cluster),
    )


def _member(
    cluster: BrokerCluster, pair: Pair, ordinal: int, context: Context, shape: Shape
) -> MemberContext:
    name, pod = member_name(cluster, pair.index, ordinal), pod_name(cluster, pair.index, ordinal)
    port = cluster.listen_port(pair.index, ordinal)
    announced, replicated = _addresses(cluster, pair.index, ordinal, context)
    held = cluster.metadata.annotations.get("failback.dev/hold-member", "").split(",")
    is_held = f"{pair.broker_name}-{ordinal}" in {each.strip() for each in held}
    return MemberContext(
        pair=pair,
        ordinal=ordinal,
        name=name,
        home=context.home(pod),
        run_dir=context.run_dir(pod),
        listen_port=context.port_of(name, "remoting", port),
        http_port=context.port_of(name, "http", common.HTTP_PORT),
        announced=announced,
        replicated=replicated,
        marks=common.labels(
            cluster, "broker", cluster=cluster.name, pair=str(pair.index), member=str(ordinal)
        ),
        selector=member_selector(cluster, pair.index, ordinal),
        stopped=is_held or (pair.index, ordinal) in shape.stopped,
        gated=(pair.index, ordinal) in shape.gated,
    )


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


def broker_properties(context: ClusterContext, member: MemberContext) -> dict[str, str]:
    """Return the properties of one member, the user's among them."""
    pair, engine = member.pair, context.engine
    master = pair.broker_id(member.ordinal) == 0
    draining = master and pair.index in context.shape.closed
    managed = {
        "brokerClusterName": context.cluster.cluster_name,
        "brokerName": pair.broker_name,
        "brokerId": str(pair.broker_id(member.ordinal)),
        "brokerRole": pair.master_role if master else "SLAVE",
        "brokerIP1": member.announced,
        "brokerIP2": member.replicated,
        "listenPort": str(member.listen_port),
        "namesrvAddr": context.name_servers,
        "brokerPermission": str(PERMISSION_READ if draining else PERMISSION_READ_WRITE),
        "slaveReadEnable": "true" if pair.slave_read_enable else "false",
        "flushDiskType": pair.master_flush if master else pair.slave_flush,
        "storePathRootDir": f"{member.home}/store",
        "storePathCommitLog": f"{member.home}/store/commitlog",
    }
    if engine.program == "failback" and member.announced not in (member.replicated, "${POD_IP}"):
        # What is announced is an address of something in front of the pod.
        managed["failbackBindAddress"] = "${POD_IP}"
    if quirk("haListenPort", engine.program, context.version) == "configurable":
        managed["haListenPort"] = str(member.listen_port + 1)
    if quirk("pairMembers", engine.program, context.version) and _gives_offsets_back(engine, pair):
        managed["failbackMembers"] = _pair_members(context, pair.index)
    if quirk("ackRule", engine.program, context.version) == "inSyncReplicas":
        wanted = context.cluster.spec.sync.in_sync_replicas
        needed = wanted or (2 if pair.master_role == "SYNC_MASTER" else 1)
        managed["totalReplicas"] = str(1 + pair.slaves)
        managed["inSyncReplicas"] = str(needed)
    managed |= _guarding_properties(context, member)
    # By default it listens at brokerIP1 alone, which may be an address of something else.
    on = apache.exporter(engine, pair.config, context.place)
    host = {"metricsPromExporterHost": "${POD_IP}"} if on else {}
    return live_values(pair, member.ordinal, {**host, **pair.config, **managed}, context.shape)


def _guarding_properties(context: ClusterContext, member: MemberContext) -> dict[str, str]:
    """Return the lines about access control and TLS.

    Apache's brokers have other names for TLS, and take them from JAVA_OPT_EXT: the lines say what
    a pod was made with.
    """
    guarding, spec = context.guarding, context.cluster.spec
    apaches = context.engine.program == "apache"
    found = {}
    if spec.acl is not None or spec.tls is not None:
        found["failbackAccessFolder"] = common.access_folder(member.home)
    if guarding.acl:
        found["aclEnable"] = "true"
    if guarding.acl_mode and not apaches:
        found[ACL_MODE] = guarding.acl_mode
    if guarding.tls:
        mode, own = APACHE_TLS if apaches else FAILBACK_TLS
        found |= {mode: guarding.tls, own: "true" if guarding.own_tls else "false"}
    return found


def is_carried(context: ClusterContext, pair: Pair) -> bool:
    """Whether a start of the pair's master is given what its slaves know (offsetCarry)."""
    mode = context.cluster.spec.offset_carry.mode
    return (
        could_carry(context.cluster, pair)
        and quirk("offsetCarry", "failback", context.place.version) is True
        and (mode == "Report" or not offsets_in_rocksdb(pair, context.version))
    )


def could_carry(cluster: BrokerCluster, pair: Pair) -> bool:
    """Whether a carry is wanted for a pair, and its engine and slaves allow it."""
    wanted = cluster.spec.offset_carry.mode != "Off"
    return wanted and cluster.spec.engine.program == "apache" and pair.slaves > 0


def offsets_in_rocksdb(pair: Pair, version: str) -> str:
    """Return the setting for which Apache's brokers keep offsets in RocksDB; empty if none has."""
    settings = str(quirk("offsetsInRocksDb", "apache", version)).split()
    given = {f"{key}={value}" for key, value in pair.config.items()}
    return next((each for each in settings if each in given), "")


def other_members(context: ClusterContext, member: MemberContext) -> str:
    """Return the ``host:port`` of the pair's other members, one a line: a pod's own name."""
    place, service = context.place, context.service
    return "".join(
        f"{place.address_of(f'{each.name}-0', service)}:{each.listen_port}\n"
        for each in context.members[member.pair.index]
        if each.ordinal != member.ordinal
    )


def _gives_offsets_back(engine: Engine, pair: Pair) -> bool:
    """Whether a returned master of the pair asks its slaves for offsets."""
    guard = pair.config.get("failbackGuardReturnedOffsets")
    is_guarded = engine.rules == "guarded" if guard is None else guard == "true"
    return is_guarded and pair.slaves > 0


def _pair_members(context: ClusterContext, pair: int) -> str:
    """Return where the pair's members register; a pod's address is found by the pod's name."""
    return ";".join(
        f"{_host(context, member)}:{member.listen_port}" for member in context.members[pair]
    )


def _host(context: ClusterContext, member: MemberContext) -> str:
    if member.announced != "${POD_IP}":
        return member.announced
    return context.place.address_of(f"{member.name}-0", context.service)
