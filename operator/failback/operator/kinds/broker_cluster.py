"""BrokerCluster: pairs of brokers, their roles, configuration and storage.

A *pair* is one RocketMQ brokerName: a master and 0-3 slaves. A *member* is one broker
process of a pair; its ordinal is its identity for ever, its role is configuration.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, TypeVar

from pydantic import Field

from failback.operator.kinds.base import (
    KEY_NAME,
    Address,
    Engine,
    FlushDiskType,
    LabelValue,
    MasterRole,
    Metrics,
    Model,
    Named,
    OptionalName,
    PodTemplate,
    PropertyValue,
    Resource,
    Resources,
    Size,
    Spread,
    Status,
    Switch,
    keyed_by,
)
from failback.operator.kinds.broker_cluster_status import BrokerClusterStatus
from failback.operator.kinds.external import PORTS_OF_MEMBER, PORTS_OF_PAIR, TEMPLATE, External
from failback.operator.kinds.guarding import Acl, Tls

_ROCKETMQ_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"


_Value = TypeVar("_Value")


def _given(override: _Value | None, otherwise: _Value) -> _Value:
    return otherwise if override is None else override


def _default_resources() -> Resources:
    return Resources.model_validate({"requests": {"cpu": "500m", "memory": "1Gi"}})


class Sync(Model):
    """How many members must hold a message before it is acknowledged (engine 5.x only)."""

    in_sync_replicas: int | None = Field(default=None, ge=1, le=4)
    """Members that hold a message before SYNC_MASTER acknowledges it, the master among them.
    Unset: 2. Engine Apache 5.x only, else a warning."""


class Storage(Model):
    """The volume of each member."""

    type: Literal["Persistent", "Ephemeral"] = "Persistent"
    """Persistent: a volume claim per member. Ephemeral: gone with the pod. Immutable."""
    size: Size = "20Gi"
    """At least 4Gi when Persistent: one commit log file of 1 GiB is pre-allocated ahead. Grows
    live where the storage class allows it, never shrinks."""
    storage_class_name: OptionalName | None = None
    """StorageClass of the claims. Unset: the cluster's default class. Immutable."""
    delete_claim: bool = False
    """Whether claims, and with them all messages, go when the object is deleted."""


class AntiAffinity(Model):
    """Which brokers may share a node."""

    scope: Literal["Pair", "Cluster"] = "Pair"
    """Pair: members of one pair keep apart. Cluster: all brokers do."""
    mode: Spread = "Preferred"
    """Preferred: if possible. Required: else the pod stays pending. None: anywhere."""
    topology_key: str = Field(
        default="kubernetes.io/hostname", min_length=1, max_length=317, pattern=KEY_NAME
    )
    """Label of nodes that fail together, such as kubernetes.io/hostname or
    topology.kubernetes.io/zone."""


class PairOverride(Model):
    """Settings of one pair that differ from the cluster's. Unset fields take the cluster's
    value."""

    index: int = Field(ge=0, le=63)
    """Index of the pair, from 0."""
    slaves_per_pair: int | None = Field(default=None, ge=0, le=3)
    """As spec.slavesPerPair."""
    master_role: MasterRole | None = None
    """As spec.masterRole."""
    flush_disk_type: FlushDiskType | None = None
    """As spec.flushDiskType."""
    slave_read_enable: bool | None = None
    """As spec.slaveReadEnable."""
    config: dict[str, PropertyValue] = Field(default={}, max_length=128)
    """Further keys of broker.conf, over those of spec.config."""
    resources: Resources | None = None
    """As spec.resources."""
    storage_size: Size | None = None
    """As spec.storage.size."""
    node_selector: dict[str, LabelValue] = Field(default={}, max_length=32)
    """Labels that a node of this pair must have, over those of spec.podTemplate."""
    master_member: int | None = Field(default=None, ge=0, le=3)
    """The member of a new pair that holds brokerId 0 first; unset: member 0. After that the
    status and the claims say who is master; a later edit is a warning and changes nothing."""


class UpdateStrategy(Model):
    """How pods are replaced when their template changes: slaves first, one pair at a time."""

    type: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    """OnDelete: the operator only lists them in status.pendingRestarts."""
    min_ready_seconds: int = Field(default=10, ge=0, le=600)
    """How long a replaced member must be ready before the next goes."""
    pair_timeout_seconds: int = Field(default=600, ge=60, le=7200)
    """How long one pair may take before OperationTimedOut is reported."""
    drain_master: bool | Literal["Auto"] = Field(
        default="Auto", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True}
    )
    """Whether a master stops taking messages before it is replaced. Auto: where another open pair
    has all its topics; else that would only make the outage longer. true means the same; false:
    never."""


class Failover(Model):
    """Behaviour when a master is gone."""

    mode: Literal["None", "Manual", "SlaveReadOnly"] = "None"
    """None: wait for its return. Manual: a RoleSwitch of mode Forced is allowed. SlaveReadOnly:
    slaveReadEnable is on while a master is down. Nothing is ever promoted by itself."""
    on_drain: Literal["Switch", "Wait", "Allow"] = "Allow"
    """What an eviction of a master waits for. Switch: until another member is master, which the
    operator sees to where it learns of the drain. Wait: until a RoleSwitch of yours made another
    one master. Allow: for nothing. Switch is recommended wherever pairs have slaves."""


class Lifecycle(Model):
    """Start and stop of a member."""

    termination_grace_period_seconds: int = Field(default=60, ge=10, le=3600)
    """Seconds between SIGTERM and SIGKILL."""
    drain_seconds: int = Field(default=45, ge=0, le=3590)
    """How long a stopping master waits for its slaves; at most the grace period less 10."""
    liveness_probe: bool | None = None
    """Unset: on for Failback, off for Apache. Turn it off to freeze a broker."""
    verify_seconds: int = Field(default=60, ge=0, le=600)
    """How long a slave's start waits for its master to compare logs; 0 = no check."""


class OffsetCarry(Model):
    """Whether a master of Apache that returns is given, before it starts, what its slaves know
    better of consumer offsets. A change restarts the pods one by one."""

    mode: Literal["Auto", "Off", "Report"] = "Auto"
    """Auto: on for Apache with slaves, where offsets are kept as JSON. "Off" (in quotes: a bare Off
    is false in YAML 1.1): never, for experiments that measure the bare engine. Report: only say
    what would be raised."""
    wait_seconds: int = Field(default=15, ge=0, le=600)
    """How long a start waits for a slave that does not answer."""
    when_unknown: Literal["Start", "Wait"] = "Start"
    """What a master does that no slave answered. Start: start without. Wait: until one answers."""
    top_up_seconds: int = Field(default=20, ge=0, le=600)
    """How long after the start offsets that were committed to a slave meanwhile are brought to the
    master, for groups without members; 0 = not at all."""
    keep_members: bool = True
    """Whether a slave without a master asks members how far they are: Go clients commit to a master
    only."""


class Networking(Model):
    """Under which address brokers announce themselves."""

    broker_address: Literal["DNS", "PodIP", "External"] = "DNS"
    """DNS: the member's stable name. PodIP: changes with every pod. External: the template;
    spec.external does the same and more."""
    external_template: str | None = Field(
        default=None, min_length=1, max_length=253, pattern=TEMPLATE
    )
    """Host name for brokerAddress External, another one for each member. {cluster} {pair} {ordinal}
    {namespace} are filled in; there are no other words."""
    listen_port: int = Field(default=10911, ge=1026, le=65534)
    """Immutable. The fast port is 2 below, the HA port 1 above."""


class BrokerClusterSpec(Model):
    """The desired brokers: pairs, roles, storage, configuration."""

    cluster_name: str | None = Field(default=None, pattern=_ROCKETMQ_NAME, max_length=64)
    """The RocketMQ cluster name. Unset: metadata.name. Immutable."""
    broker_name_prefix: str | None = Field(default=None, pattern=_ROCKETMQ_NAME, max_length=64)
    """Pair i has the broker name PREFIX-i. Unset: metadata.name. Immutable."""
    engine: Engine = Field(default_factory=Engine)
    """Which broker program runs: Failback's or Apache's, its version and image. A change restarts
    the pods one by one."""
    name_server_ref: Named | None = None
    """The NameServer of this namespace. Exactly one of this and nameServerAddresses."""
    name_server_addresses: list[Address] | None = Field(default=None, max_length=9)
    """host:port of name servers that run elsewhere. Changed live."""
    pairs: int = Field(default=1, ge=1, le=64)
    """Number of pairs. A pair that is taken away is drained first; unread messages block it."""
    slaves_per_pair: int = Field(default=1, ge=0, le=3)
    """Number of slaves of each master."""
    master_role: MasterRole = "ASYNC_MASTER"
    """SYNC_MASTER acknowledges a message only when a slave has it. Restarts masters."""
    sync: Sync = Field(default_factory=Sync)
    """How many members must hold a message (engine Apache 5.x only)."""
    flush_disk_type: FlushDiskType = "ASYNC_FLUSH"
    """SYNC_FLUSH acknowledges a message only when it is on the disk. Restarts brokers."""
    slave_flush_disk_type: FlushDiskType | None = None
    """The same for slaves. Unset: as flushDiskType."""
    slave_read_enable: bool = False
    """Whether a broker may send readers that are far behind to a slave. Changed live, without a
    restart: on the slaves first (they serve), then on the master (it suggests them); off in the
    reverse order. RocketMQ's default is false."""
    config: dict[str, PropertyValue] = Field(default={}, max_length=128)
    """Further keys of broker.conf. Values are texts: numbers, true and false stand in quotes. Some
    change live, the others restart brokers; keys that have a field of their own are refused."""
    storage: Storage = Field(default_factory=Storage)
    """The volume of each member."""
    resources: Resources = Field(default_factory=_default_resources)
    """Requests and limits of the container. A change restarts the pods one by one."""
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
    """Additions to the pods. A change restarts them one by one."""
    anti_affinity: AntiAffinity = Field(default_factory=AntiAffinity)
    """Which brokers may share a node."""
    pair_overrides: list[PairOverride] = keyed_by("index", default=[], max_length=64)
    """Settings of single pairs that differ from the cluster's, by index."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How pods are replaced when their template changes."""
    failover: Failover = Field(default_factory=Failover)
    """Behaviour when a master is gone."""
    lifecycle: Lifecycle = Field(default_factory=Lifecycle)
    """Start and stop of a member."""
    pod_disruption_budget: Switch = Field(default_factory=Switch)
    """A budget per pair that lets evictions take one member at a time."""
    offset_carry: OffsetCarry = Field(default_factory=OffsetCarry)
    """What a master that returns is given of its slaves' offsets (engine Apache only)."""
    networking: Networking = Field(default_factory=Networking)
    """Under which address brokers announce themselves."""
    external: External | None = None
    """Access for clients outside the Kubernetes cluster. Unset: none."""
    acl: Acl | None = None
    """Access control. Switched on and off without an outage. Unset: none."""
    tls: Tls | None = None
    """TLS; name servers must take it, too. Switched on and off without an outage. Unset: none."""
    metrics: Metrics = Field(default_factory=Metrics)
    """How metrics are collected."""
    suspend: bool = False
    """While true the operator changes nothing but the status."""
    deletion_protection: bool = False
    """While true the API server refuses to delete this object, where the chart's admission
    policies are in force (Kubernetes 1.30). The end of its whole namespace is not refused."""


class BrokerCluster(Resource):
    """Pairs of brokers, their roles, configuration and storage.

    Conditions: Ready, ConfigApplied, RolesConsistent, ReplicationHealthy, MetadataSynced,
    OffsetsCarried, DrainWaits, ScalingDown, ExternalAccess, AccessControl, TLS, Reconciling,
    Stalled, Paused, Warning.
    """

    status_model: ClassVar[type[Status]] = BrokerClusterStatus

    kind: Literal["BrokerCluster"] = "BrokerCluster"
    spec: BrokerClusterSpec

    @property
    def cluster_name(self) -> str:
        """The RocketMQ cluster name."""
        return self.spec.cluster_name or self.name

    def broker_name(self, pair: int) -> str:
        """The RocketMQ broker name of pair ``pair``."""
        return f"{self.spec.broker_name_prefix or self.name}-{pair}"

    def listen_port(self, pair: int, ordinal: int) -> int:
        """Return the port of a member: with node ports each has its own."""
        external = self.spec.external
        if external is None or external.first_node_port is None:
            return self.spec.networking.listen_port
        return external.first_node_port + PORTS_OF_PAIR * pair + PORTS_OF_MEMBER * ordinal

    def pair(self, index: int) -> Pair:
        """Return pair ``index`` with the cluster's values filled in."""
        return Pair(self, index)


_NO_OVERRIDE: Final = PairOverride.model_validate({"index": 0})
"""Of any pair that the spec does not override."""


class Pair:
    """One pair as it is wanted: the override of its index over the cluster's values."""

    def __init__(self, cluster: BrokerCluster, index: int) -> None:
        spec = cluster.spec
        found = [override for override in spec.pair_overrides if override.index == index]
        override = found[0] if found else _NO_OVERRIDE
        self.index = index
        self.broker_name = cluster.broker_name(index)
        self.slaves = _given(override.slaves_per_pair, spec.slaves_per_pair)
        self.first_master = override.master_member
        self.master_member = _given(override.master_member, 0)
        self.master_role = _given(override.master_role, spec.master_role)
        self.slave_read_enable = _given(override.slave_read_enable, spec.slave_read_enable)
        self.master_flush: str = _given(override.flush_disk_type, spec.flush_disk_type)
        self.slave_flush: str = _given(spec.slave_flush_disk_type, self.master_flush)
        self.config = {**spec.config, **override.config}
        self.resources = _given(override.resources, spec.resources)
        self.storage_size = _given(override.storage_size, spec.storage.size)
        self.node_selector = {**spec.pod_template.node_selector, **override.node_selector}

    @property
    def ordinals(self) -> range:
        """The ordinals of the pair's members."""
        return range(self.slaves + 1)

    def broker_id(self, ordinal: int) -> int:
        """The brokerId of a member: the ids of a pair are a permutation of its ordinals."""
        if ordinal == self.master_member:
            return 0
        return self.master_member if ordinal == 0 else ordinal
