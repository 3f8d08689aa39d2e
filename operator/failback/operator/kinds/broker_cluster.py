"""BrokerCluster: pairs of brokers, their roles, configuration and storage.

A *pair* is one RocketMQ brokerName: a master and 0-3 slaves. A *member* is one broker
process of a pair; its ordinal is its identity for ever, its role is configuration.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from pydantic import Field

from failback.operator.kinds.base import (
    Engine,
    FlushDiskType,
    MasterRole,
    Metrics,
    Model,
    Named,
    PodTemplate,
    PropertyValue,
    Quantity,
    Resource,
    Resources,
    Spread,
    Switch,
)

_ROCKETMQ_NAME = r"^[A-Za-z0-9_-]{1,64}$"


_Value = TypeVar("_Value")


def _given(override: _Value | None, otherwise: _Value) -> _Value:
    return otherwise if override is None else override


def _default_resources() -> Resources:
    return Resources.model_validate({"requests": {"cpu": "500m", "memory": "1Gi"}})


class Sync(Model):
    """How many members must hold a message before it is acknowledged (engine 5.x only)."""

    in_sync_replicas: int | None = Field(default=None, ge=1, le=4)


class Storage(Model):
    """The volume of each member."""

    type: Literal["persistent", "ephemeral"] = "persistent"
    size: Quantity = "20Gi"
    """At least 4Gi when persistent: one commit log file of 1 GiB is pre-allocated ahead."""
    storage_class_name: str | None = None
    delete_claim: bool = False


class AntiAffinity(Model):
    """Which brokers may share a node."""

    scope: Literal["pair", "cluster"] = "pair"
    mode: Spread = "preferred"
    topology_key: str = "kubernetes.io/hostname"


class PairOverride(Model):
    """What one pair has differently. Unset fields take the cluster's value."""

    index: int = Field(ge=0, le=63)
    slaves_per_pair: int | None = Field(default=None, ge=0, le=3)
    master_role: MasterRole | None = None
    flush_disk_type: FlushDiskType | None = None
    slave_read_enable: bool | None = None
    config: dict[str, PropertyValue] = Field(default={}, max_length=128)
    resources: Resources | None = None
    storage_size: Quantity | None = None
    node_selector: dict[str, str] = Field(default={})
    master_member: int = Field(default=0, ge=0, le=3)
    """The ordinal that holds brokerId 0. Written by a RoleSwitch."""


class UpdateStrategy(Model):
    """How pods are replaced when their template changes."""

    type: Literal["RollingUpdate", "OnDelete"] = "RollingUpdate"
    min_ready_seconds: int = Field(default=10, ge=0, le=600)
    pair_timeout_seconds: int = Field(default=600, ge=60, le=7200)
    drain_master: bool = True


class Failover(Model):
    """What happens when a master is gone. ``None``: wait for its return."""

    mode: Literal["None", "Manual", "SlaveReadOnly"] = "None"


class Lifecycle(Model):
    """Start and stop of a member."""

    termination_grace_period_seconds: int = Field(default=60, ge=10, le=3600)
    drain_seconds: int = Field(default=45, ge=0, le=3590)
    liveness_probe: bool | None = None
    """Unset: on for failback, off for apache. Turn it off to freeze a broker."""
    verify_seconds: int = Field(default=60, ge=0, le=600)
    """How long a slave's start waits for its master to compare logs; 0 = no check."""


class Networking(Model):
    """Under which address brokers announce themselves."""

    broker_address: Literal["dns", "podIP", "external"] = "dns"
    external_template: str | None = Field(default=None, max_length=253)
    listen_port: int = Field(default=10911, ge=1026, le=65534)
    """Immutable. The fast port is 2 below, the HA port 1 above."""


class BrokerClusterSpec(Model):
    """What is wanted of the brokers."""

    cluster_name: str | None = Field(default=None, pattern=_ROCKETMQ_NAME)
    broker_name_prefix: str | None = Field(default=None, pattern=_ROCKETMQ_NAME)
    engine: Engine = Field(default_factory=Engine)
    name_server_ref: Named | None = None
    name_server_addresses: list[str] | None = Field(default=None, max_length=9)
    pairs: int = Field(default=1, ge=1, le=64)
    slaves_per_pair: int = Field(default=1, ge=0, le=3)
    master_role: MasterRole = "ASYNC_MASTER"
    sync: Sync = Field(default_factory=Sync)
    flush_disk_type: FlushDiskType = "ASYNC_FLUSH"
    slave_flush_disk_type: FlushDiskType | None = None
    slave_read_enable: bool = False
    """Set on the master (it suggests the slave) and on the slaves (they serve)."""
    config: dict[str, PropertyValue] = Field(default={}, max_length=128)
    """Further keys of ``broker.conf``."""
    storage: Storage = Field(default_factory=Storage)
    resources: Resources = Field(default_factory=_default_resources)
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
    anti_affinity: AntiAffinity = Field(default_factory=AntiAffinity)
    pair_overrides: list[PairOverride] = Field(default=[], max_length=64)
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    failover: Failover = Field(default_factory=Failover)
    lifecycle: Lifecycle = Field(default_factory=Lifecycle)
    pod_disruption_budget: Switch = Field(default_factory=Switch)
    networking: Networking = Field(default_factory=Networking)
    metrics: Metrics = Field(default_factory=Metrics)
    suspend: bool = False


class BrokerCluster(Resource):
    """Pairs of brokers, their roles, configuration and storage."""

    kind: Literal["BrokerCluster"] = "BrokerCluster"
    spec: BrokerClusterSpec

    @property
    def cluster_name(self) -> str:
        """The RocketMQ cluster name."""
        return self.spec.cluster_name or self.name

    def broker_name(self, pair: int) -> str:
        """The RocketMQ broker name of pair ``pair``."""
        return f"{self.spec.broker_name_prefix or self.name}-{pair}"

    def pair(self, index: int) -> Pair:
        """Return pair ``index`` with the cluster's values filled in."""
        return Pair(self, index)


class Pair:
    """One pair as it is wanted: the override of its index over the cluster's values."""

    def __init__(self, cluster: BrokerCluster, index: int) -> None:
        spec = cluster.spec
        found = [override for override in spec.pair_overrides if override.index == index]
        override = found[0] if found else PairOverride.model_validate({"index": index})
        self.index = index
        self.broker_name = cluster.broker_name(index)
        self.slaves = _given(override.slaves_per_pair, spec.slaves_per_pair)
        self.master_member = override.master_member
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
