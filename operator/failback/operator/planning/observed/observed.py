"""What a pass sees: objects of the API server and answers of brokers and name servers. Pure data.

``None`` means *unknown* wherever an answer of a broker or name server is meant: none came
within the time limit. Unknown is a value: nothing is ever destroyed because of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

import msgspec

from failback.operator.render.shape import Member

Object = Mapping[str, Any]
"""One Kubernetes object, as JSON data."""
Key = tuple[str, str]
"""Kind and name of an object, in the one namespace of a pass."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as the API server shows it."""

    name: str
    uid: str
    phase: str = "Pending"
    ready: bool = False
    deleting: bool = False
    ip: str = ""
    node: str = ""
    node_uid: str = ""
    """uid of that node, where the operator may read nodes."""
    started_at: float | None = None
    """Unix time of ``status.startTime``."""
    ready_since: float | None = None
    """Unix time since which the pod is ready."""
    restart_hash: str = ""
    restarted_at: str = ""
    """Template annotations ``failback.dev/restart-hash`` and ``failback.dev/restarted-at``."""
    revision: str = ""
    """Label ``controller-revision-hash``."""
    role: str = ""
    """Label ``failback.dev/role``."""
    image: str = ""
    """``spec.containers[name=broker].image``."""
    engine: Mapping[str, str] = field(default_factory=dict)
    """Engine type, version and image that it runs, as ``running_engine.engine_of`` reads them."""
    restarts: int = 0
    problem: str = ""
    """``ImagePullError``, ``Unschedulable``, ``CrashLoop`` or empty."""
    message: str = ""
    """The platform's words for ``problem``, exit code and last words of a crash included."""
    prefix: str = ""
    """Verdict of the init container ``verify``: ``Verified``, ``Unverified``, ``Diverged``,
    ``SlaveAhead``, ``TooFarBehind``, ``Gated`` (only read) or empty."""
    prefix_message: str = ""
    tail_bytes: int | None = None
    """Of a diverged member: bytes of its log from the first that the master's log lacks or has
    differently (``ownEnd`` minus ``differsAt``, or minus ``masterEnd``, of that verdict)."""
    own_end: int | None = None
    """``ownEnd`` of that verdict: where the member's log ends, in bytes."""
    master_end: int | None = None
    """``masterEnd`` of that verdict: where the master's log ended when it was given."""
    checked_at: float | None = None
    """Unix time of that verdict."""
    gated: bool = False
    """It only reads where the member's log ends, and starts no broker."""
    stored_ms: int | None = None
    """Unix milliseconds when the last message that it read there was stored."""
    leaving: str = ""
    """What of the pod itself says that it is to go: an annotation, a condition; else empty."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim of a member."""

    name: str
    uid: str
    phase: str = "Pending"
    requested: str = ""
    capacity: str = ""
    resizing: bool = False
    needs_restart: bool = False
    """Condition ``FileSystemResizePending``."""
    storage_class: str = ""
    message: str = ""
    deleting: bool = False
    empty: bool = False
    """No volume is bound to it, nor is one to be made from anything that has data."""
    owner: tuple[str, str, str] = ("", "", "")
    """Labels with the cluster, pair and member that it is of."""
    role: str = ""
    """``master`` or ``slave``: what its member was when it was marked last."""
    epoch: int | None = None
    """Of a master its own, of a slave that of the last master whose log it had; 0 = of none.
    ``None`` = the claim is not marked."""
    log_id: str = ""
    """Which pair's epochs these are: uid of the cluster that began them, and the pair."""
    log_end: int | None = None
    """Where the commit log ended when that was marked last, in bytes: it ends there or later."""
    log_end_at: float | None = None
    """Unix time of that mark."""
    opened_by: str = ""
    """uid of the cluster that opened the member as master last."""
    marked_uid: str = ""
    """uid of the claim that was marked: another one is a copy of it."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Outcome = Literal[
    "Idle",
    "Carried",
    "WouldCarry",
    "NothingToCarry",
    "SlaveSilent",
    "OtherLog",
    "Unsupported",
    "DiskFailed",
    "Refused",
]
"""What became of a carry; ``Idle`` of a slave."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What the sidecar of an Apache member says of its last start."""

    outcome: Outcome
    at: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    offsets: Count = 0
    groups: Count = 0
    messages: Count = 0
    cut: Count = 0
    sources: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=300)], ...], msgspec.Meta(max_length=4)
    ] = ()


@dataclass(frozen=True, slots=True)
class Broker:
    """Answers of one broker process; each part is ``None`` while unknown."""

    address: str
    config: Mapping[str, str] | None = None
    """GET_BROKER_CONFIG (26)."""
    config_version: int | None = None
    """Counter of the data version in that answer's header."""
    runtime: Mapping[str, str] | None = None
    """GET_BROKER_RUNTIME_INFO (28)."""
    end: int | None = None
    """``commitLogMaxOffset`` of 28, in bytes."""
    end_at: float | None = None
    """Unix time of the answer that ``end`` is from; ``None`` = the time of the pass."""
    end_changed_at: float | None = None
    """Unix time when ``end`` was last seen to change."""
    stalled_since: float | None = None
    """Of a slave: Unix time since which it is behind its master's end and does not move."""
    start: int | None = None
    """``commitLogMinOffset`` of 28."""
    topics: Mapping[str, Mapping[str, Any]] | None = None
    """GET_ALL_TOPIC_CONFIG (21): topic name → its configuration in RocketMQ's field names."""
    groups: Mapping[str, Mapping[str, Any]] | None = None
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): group name → its configuration."""
    offsets: Mapping[str, Mapping[int, int]] | None = None
    """GET_ALL_CONSUMER_OFFSET (43): ``topic@group`` → queue → offset."""
    offsets_at: float | None = None
    offsets_before: Mapping[str, Mapping[int, int]] | None = None
    """The same answer of three sync periods ago, or older."""
    metrics: Mapping[str, float] | None = None
    """Gauges of ``/metrics`` that planning needs, by name; engine failback only."""
    carried: Carried | None = None
    """``/carry`` of its pod's sidecar; engine apache only."""
    problem: str = ""
    """Why a question had no answer, in words that name the address; empty where all had one."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """All that is known of one member."""

    pair: int
    ordinal: int
    statefulset: Object | None = None
    config_map: Object | None = None
    claim: Claim | None = None
    pod: Pod | None = None
    broker: Broker | None = None
    """``None`` when there is no pod to ask."""

    @property
    def exists(self) -> bool:
        """It has an object or a pod; a bare claim is no member."""
        return not (self.statefulset is None and self.config_map is None and self.pod is None)

    @property
    def is_ready(self) -> bool:
        """It has a ready pod that is not going away."""
        return self.pod is not None and self.pod.ready and not self.pod.deleting


@dataclass(frozen=True, slots=True)
class Route:
    """What one name server says."""

    name_server: str
    brokers: Mapping[str, Mapping[int, str]] | None = None
    """GET_BROKER_CLUSTER_INFO (106): broker name → broker id → address."""
    permissions: Mapping[str, int] | None = None
    """Broker name → lowest ``perm`` of its queue data over the topics asked for (105)."""
    problem: str = ""
    """Why it gave no list, in words that name its address; empty where it gave one."""


NO_GROUP: Final = "nobody"
"""Stands for the group of messages that no group has begun to read."""


@dataclass(frozen=True, slots=True)
class PairLag:
    """Backlog of one pair, asked for only while it drains."""

    unread: Mapping[str, int] = field(default_factory=dict)
    """``group@topic`` → messages, the largest first. :data:`NO_GROUP` stands for messages of a
    topic of which no group has an offset."""
    groups: frozenset[str] = frozenset()
    """Groups that have an offset of any topic there."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Consumer offsets that a RoleSwitch put into a ConfigMap."""

    uid: str
    """Of the ConfigMap."""
    table: Mapping[str, Mapping[int, int]] | None = None
    """``topic@group`` → queue → offset; ``None`` when it can't be read."""
    label: str = ""
    """Which snapshot of which switch this is."""


@dataclass(frozen=True, slots=True)
class ObservedCluster:
    """Everything one pass over a BrokerCluster sees."""

    at: float
    """Unix time of the pass."""
    objects: Mapping[Key, Object] = field(default_factory=dict)
    """Children that carry our owner reference: StatefulSets, ConfigMaps, Services, budgets."""
    foreign: frozenset[Key] = frozenset()
    """Objects of names we need that belong to another owner."""
    rival: str = ""
    """Why an older BrokerCluster has this one's broker names; empty when none has."""
    members: Mapping[Member, MemberView] = field(default_factory=dict)
    """Members that have any object, wanted or not."""
    refused_pods: Mapping[str, str] = field(default_factory=dict)
    """Pods that are not there → what refused them last."""
    has_key: bool = True
    """Whether the operator can sign requests to this cluster."""
    name_servers_take_tls: bool = True
    """Whether its name servers do, as far as the operator runs them."""
    name_servers: Sequence[str] | None = None
    """``host:port`` in index order; ``None`` when the NameServer resource does not exist."""
    read_only: frozenset[str] = frozenset()
    """Those of the name servers that another owner runs: they get no order."""
    routes: Sequence[Route] = ()
    master_since: Mapping[int, float] = field(default_factory=dict)
    """Pair → Unix time since which all answering name servers agree on one id-0 address."""
    recent_masters: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Pair → addresses seen as id 0 at any name server within the last 60 s, sorted."""
    budgets: Mapping[int, int] = field(default_factory=dict)
    """Pair → ``disruptionsAllowed`` of its PodDisruptionBudget."""
    lags: Mapping[int, PairLag] = field(default_factory=dict)
    """Pairs that leave → what is not consumed yet; a pair is missing while unknown."""
    leases: Mapping[str, Object] = field(default_factory=dict)
    topics: Sequence[Object] = ()
    """Topic resources of the cluster."""
    groups: Sequence[Object] = ()
    """SubscriptionGroup resources of the cluster."""
    role_switches: Sequence[Object] = ()
    experiments: Sequence[Object] = ()
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    """ConfigMap → offset snapshot of a running RoleSwitch."""
    masterless_since: Mapping[int, float] = field(default_factory=dict)
    """Pair → Unix time since which every name server that answers lists no id 0 of it; a pair is
    missing while some name server lists one, or none answers."""
    order_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Name server → topic → value in its namespace ``ORDER_TOPIC_CONFIG`` (219); name servers
    that do not answer are missing."""
    topic_lags: Mapping[tuple[str, int], Mapping[int, int]] = field(default_factory=dict)
    """Topic and pair → read queue → messages that its slowest group has yet to consume (208 of
    every group of 300). Asked only for topics that lose read queues; missing while unknown."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Address → why that broker refused the last PutTopic or PutGroup of this resource for good
    (a code that repetition does not change); kept until the resource's generation changes."""
    served_kinds: frozenset[str] = frozenset()
    """Optional kinds that the API server serves: ``PodMonitor``, ``SparkApplication``."""
    fenced_nodes: frozenset[str] = frozenset()
    """uids named by ``failback.dev/node-fenced``."""
    leaving_nodes: Mapping[str, str] | None = field(default_factory=dict)
    """Node of a member → why it takes no new pods; ``None`` where the operator may not read nodes.
    Asked only with ``failover.onDrain``."""
    other_operators: tuple[str, ...] = ()
    """Versions of this operator and of another one that writes the same status."""
    version_shown: str = ""
    """Version for the status; empty = our own."""

    def member(self, pair: int, ordinal: int) -> MemberView:
        """Return what is known of a member; an empty view when nothing is."""
        return self.members.get((pair, ordinal)) or MemberView(pair, ordinal)

    @property
    def own_name_servers(self) -> tuple[str, ...]:
        """The name servers that take orders: the namespace's own, and those the chart lists."""
        return tuple(each for each in self.name_servers or () if each not in self.read_only)


@dataclass(frozen=True, slots=True)
class ObservedNameServer:
    """Everything one pass over a NameServer sees."""

    at: float
    """Unix time of the pass."""
    objects: Mapping[Key, Object] = field(default_factory=dict)
    foreign: frozenset[Key] = frozenset()
    pods: Mapping[int, Pod] = field(default_factory=dict)
    """Replica index → its pod."""
    plain_clusters: tuple[str, ...] = ()
    """BrokerClusters of it with a member that does not speak TLS."""
    tls_clusters: tuple[str, ...] = ()
    """BrokerClusters of it with a member that speaks TLS."""
    routes: Mapping[str, Route] = field(default_factory=dict)
    """Address → what it answered (106) last; an address without a pod is missing."""
    refused_pods: Mapping[str, str] = field(default_factory=dict)
    served_kinds: frozenset[str] = frozenset()
    other_operators: tuple[str, ...] = ()
    """Versions of this operator and of another one that writes the same status."""
    version_shown: str = ""
    """Version for the status; empty = our own."""

    def is_answering(self, address: str) -> bool:
        """Tell whether a name server gave its list of brokers when it was asked last."""
        return address in self.routes and self.routes[address].brokers is not None


@dataclass(frozen=True, slots=True)
class ObservedExperiment:
    """Everything one pass over a ChaosExperiment sees."""

    at: float
    """Unix time of the pass."""
    namespace_labels: Mapping[str, str] | None = None
    """Labels of the namespace; ``None`` while unknown."""
    cluster: Object | None = None
    """The BrokerCluster; ``None`` when there is none."""
    config_maps: Mapping[str, Object] = field(default_factory=dict)
    """The cluster's ConfigMaps by name, for the overlay of an arm."""
    broker_pods: Sequence[Object] = ()
    """Pods of the cluster's brokers, for their liveness probes."""
    lease: Object | None = None
    """Lease ``failback-<cluster>-chaos``."""
    jobs: Mapping[str, Object] = field(default_factory=dict)
    """Jobs that the experiment owns, by name."""
    settings: Object | None = None
    """The ConfigMap that its Jobs read."""
    pods: Mapping[str, Object] = field(default_factory=dict)
    """Newest pod of each of those Jobs, by the Job's name."""
    refused_pods: Mapping[str, str] = field(default_factory=dict)
    """Jobs that have no pod → what refused it last."""
    claim: Object | None = None
    """The claim of the run volume."""
    progress: Mapping[str, Any] | None = None
    """Answer of the running Job to ``GET /run``; ``None`` when it did not answer."""


@dataclass(frozen=True, slots=True)
class ObservedReport:
    """Everything one pass over a ReconsumptionReport sees."""

    at: float
    experiment: Object | None = None
    """The ChaosExperiment that it refers to; ``None`` when there is none."""
    job: Object | None = None
    pod: Object | None = None
    """Newest pod of the Job."""
    refused_pod: str = ""
    """What refused it last; empty if nothing did."""
    application: Object | None = None
    """The SparkApplication."""
    claim: Object | None = None
    """The claim that holds the runs."""
    served_kinds: frozenset[str] = frozenset()
    """Optional kinds that the API server serves."""
