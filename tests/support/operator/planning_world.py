"""A cluster in memory: API server, StatefulSet controller, kubelets, brokers and name servers.

Enough of each to run whole operations of the operator to their end in milliseconds: actions
change objects, :meth:`World.tick` lets the controllers and the brokers go on, and
:meth:`World.observe` is what the next pass sees. Nothing here decides anything for the operator.
Real servers and brokers are tested elsewhere; this world exists to be stopped at every step.
Objects and tables are replaced, never changed in place, so that an observation stays what it was.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from failback.operator.kinds.base import parse_quantity
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import (
    Broker,
    Claim,
    Key,
    MemberView,
    ObservedCluster,
    PairLag,
    Pod,
    Route,
)
from failback.operator.planning.plan import types
from failback.operator.planning.plan.encoding import to_time
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Member
from failback.operator.schema.decoding import decode

SYSTEM_TOPICS = ("TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX")


class Refused(Exception):
    """The API server or a broker refused an action; the pass stops there."""


@dataclass
class Store:
    """What lies on a volume."""

    end: int = 0
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)


@dataclass
class SimClaim:
    """A PersistentVolumeClaim and its volume."""

    uid: str
    requested: str
    capacity: str
    store: Store
    needs_restart: bool = False
    deleted: bool = False


@dataclass
class SimPod:
    """A pod and, once it is up, the broker process in it."""

    uid: str
    statefulset: str
    template: dict[str, Any]
    revision: str
    config: dict[str, str]
    store: Store
    created_at: float
    up: bool = False
    ready_since: float | None = None
    deleting: bool = False
    prefix: str = ""
    role: str = ""

    @property
    def image(self) -> str:
        """The broker's image."""
        return str(self.template["spec"]["containers"][0].get("image", ""))

    @property
    def address(self) -> str:
        """Where the broker registers."""
        return f"{self.config['brokerIP1']}:{self.config['listenPort']}"

    @property
    def is_master(self) -> bool:
        """Whether the process runs as a master."""
        return self.up and self.config["brokerRole"] != "SLAVE"


class World:
    """Everything outside the operator. ``now`` is its clock, in Unix seconds."""

    def __init__(self, name: str = "orders", **spec: Any) -> None:
        self.now = 1_750_000_000.0
        self.document: dict[str, Any] = {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "BrokerCluster",
            "metadata": {"name": name, "namespace": "shop", "uid": "cr-1", "generation": 1},
            "spec": {"nameServerAddresses": ["ns-0:9876", "ns-1:9876"], **spec},
        }
        self.status: dict[str, Any] = {}
        self.objects: dict[Key, dict[str, Any]] = {}
        self.pods: dict[str, SimPod] = {}
        self.claims: dict[str, SimClaim] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.registered: dict[str, dict[int, str]] = {}
        self.name_servers = ["ns-0:9876", "ns-1:9876"]
        self.experiments: list[dict[str, Any]] = []
        self.start_seconds = 3.0
        self.broken_images: set[str] = set()
        self.silent: set[Member] = set()
        """Members whose process runs but answers nobody."""
        self.stubborn: dict[tuple[Member, str], str] = {}
        """Values that a broker keeps whatever it is told."""
        self.backlog: dict[int, list[str]] = {}
        """Pair → what nobody has consumed there."""
        self.backlog_known = True
        self.topics: list[dict[str, Any]] = []
        """Topic resources of the cluster."""
        self.resize_refused = False
        self.resize_needs_restart = False
        self.traffic = 0
        """Bytes per second that producers write to every open pair."""
        self.log: list[types.Action] = []
        self.events: list[types.Event] = []
        self.violations: list[str] = []
        """What must never be: two masters of a pair, two members taken away at once."""
        self._versions = 0
        self._uids = 0
        self._decoded: tuple[dict[str, Any], BrokerCluster] | None = None
        self._master_seen: dict[str, tuple[str | None, float]] = {}
        self._synced_at = self.now

    # --- the custom resource ---

    @property
    def cluster(self) -> BrokerCluster:
        """The resource as the operator reads it."""
        if self._decoded is None or self._decoded[0] != self.document:
            found = decode(self.document)
            assert isinstance(found, BrokerCluster)
            self._decoded = (copy.deepcopy(self.document), found)
        return self._decoded[1]

    def edit(self, **spec: Any) -> None:
        """Change fields of the spec; ``None`` removes one."""
        merged = {**self.document["spec"], **spec}
        self.document["spec"] = {key: value for key, value in merged.items() if value is not None}
        self.document["metadata"]["generation"] += 1

    def annotate(self, **marks: str) -> None:
        """Set annotations ``failback.dev/...``; dashes are written as underscores."""
        found = self.document["metadata"].setdefault("annotations", {})
        found.update({f"failback.dev/{key.replace('_', '-')}": v for key, v in marks.items()})

    # --- names ---

    def member_of(self, statefulset: str) -> Member:
        """Return pair and ordinal of a StatefulSet's name."""
        pair, ordinal = statefulset.removeprefix(f"{self.document['metadata']['name']}-").split("-")
        return int(pair), int(ordinal)

    def pod(self, pair: int, ordinal: int) -> SimPod | None:
        """Return a member's pod."""
        return self.pods.get(f"{self.document['metadata']['name']}-{pair}-{ordinal}-0")

    def running(self, pair: int, ordinal: int) -> SimPod:
        """Return the process of a member that must be up."""
        found = self.pod(pair, ordinal)
        assert found is not None
        assert found.up
        return found

    def uid(self) -> str:
        """Return a new uid."""
        self._uids += 1
        return f"uid-{self._uids}"

    def put(self, item: dict[str, Any]) -> None:
        """Store an object under a new resourceVersion, whoever wrote it."""
        self._versions += 1
        metadata = {**item["metadata"], "resourceVersion": str(self._versions)}
        self.objects[item["kind"], metadata["name"]] = {**item, "metadata": metadata}

    # --- what the operator does ---

    def carry_out(self, action: types.Action) -> None:
        """Do one action as the API server, a broker or a name server would.

        Raises:
            Refused: It was not done.
        """
        self.log.append(action)
        self._DO[type(action)](self, action)

    def _apply(self, action: types.Apply) -> None:
        manifest = copy.deepcopy(dict(action.manifest))
        key = (manifest["kind"], manifest["metadata"]["name"])
        have = self.objects.get(key)
        if have is None:
            manifest["metadata"] |= {"uid": self.uid(), "generation": 1}
        else:
            if key[0] == "StatefulSet":
                one, other = (m["spec"].get("volumeClaimTemplates") for m in (manifest, have))
                if one != other:
                    raise Refused("volumeClaimTemplates are immutable")
                manifest["status"] = have.get("status", {})
            changed = manifest.get("spec") != have.get("spec")
            manifest["metadata"] |= {
                "uid": have["metadata"]["uid"],
                "generation": have["metadata"]["generation"] + changed,
            }
        self.put(manifest)

    def _delete(self, action: types.Delete) -> None:
        kind, name = action.key
        if kind == "PersistentVolumeClaim":
            claim = self.claims.get(name)
            if claim is not None and claim.uid == action.uid:
                claim.deleted = True
            return
        have = self.objects.get(action.key)
        if have is None or have["metadata"]["uid"] != action.uid:
            return
        del self.objects[action.key]
        if kind == "StatefulSet" and action.propagation != "Orphan" and f"{name}-0" in self.pods:
            self.pods[f"{name}-0"].deleting = True

    def _evict(self, action: types.Evict) -> None:
        pod = self.pods.get(action.pod)
        if pod is None or pod.uid != action.uid or pod.deleting:
            return
        pair, _ = self.member_of(pod.statefulset)
        if pod.ready_since is not None and self._allowed(pair) < 1:
            raise Refused("Cannot evict pod as it would violate the pod's disruption budget.")
        others = [p for p in self.pods.values() if p is not pod]
        down = [p for p in others if p.ready_since is None or p.deleting]
        if pod.ready_since is not None and down:
            self.violations.append(f"{action.pod} evicted while {down[0].statefulset} is down")
        pod.deleting = True

    def _delete_pod(self, action: types.DeletePod) -> None:
        pod = self.pods.get(action.pod)
        if pod is not None and pod.uid == action.uid:
            pod.deleting = True

    def _set_config(self, action: types.SetConfig) -> None:
        pod = self.pod(*action.member)
        if pod is None or not pod.up or action.member in self.silent:
            raise Refused(f"{action.address} does not answer")
        assert pod.address == action.address
        for key, value in action.values.items():
            pod.config[key] = self.stubborn.get((action.member, key), value)
            if pod.config[key] != value:
                raise Refused(f"26 answers {key}={pod.config[key]}")

    def _resize(self, action: types.ResizeClaim) -> None:
        claim = self.claims[action.claim]
        if self.resize_refused:
            raise Refused("only dynamically provisioned pvc can be resized")
        if claim.uid == action.uid:
            claim.requested = action.size

    def _at(self, address: str) -> SimPod:
        found = [p for p in self.pods.values() if p.up and p.address == address]
        if not found:
            raise Refused(f"{address} does not answer")
        return found[0]

    def _put_topic(self, action: types.PutTopic) -> None:
        store = self._at(action.address).store
        store.topics = {**store.topics, action.config["topicName"]: dict(action.config)}

    def _put_group(self, action: types.PutGroup) -> None:
        store = self._at(action.address).store
        store.groups = {**store.groups, action.config["groupName"]: dict(action.config)}

    def _take_lease(self, action: types.TakeLease) -> None:
        have = self.leases.get(action.name)
        if have is not None and have["spec"]["holderIdentity"] != action.holder:
            raise Refused("LeaseHeld")
        self.leases[action.name] = {
            "spec": {
                "holderIdentity": action.holder,
                "renewTime": to_time(self.now),
                "leaseDurationSeconds": action.seconds,
            }
        }

    def _release_lease(self, action: types.ReleaseLease) -> None:
        have = self.leases.get(action.name)
        if have is not None and have["spec"]["holderIdentity"] == action.holder:
            del self.leases[action.name]

    def _patch_metadata(self, action: types.PatchMetadata) -> None:
        for key in action.remove_annotations:
            self.document["metadata"].get("annotations", {}).pop(key, None)

    def _label(self, action: types.LabelPod) -> None:
        pod = self.pods.get(action.pod)
        if pod is not None and pod.uid == action.uid:
            pod.role = action.labels["failback.dev/role"]

    def _forget(self, action: types.Action) -> None:
        """Requests to name servers that leave nothing to see here."""

    _DO: ClassVar[dict[type, Callable[[World, Any], None]]] = {
        types.Apply: _apply,
        types.Delete: _delete,
        types.Evict: _evict,
        types.DeletePod: _delete_pod,
        types.SetConfig: _set_config,
        types.ResizeClaim: _resize,
        types.PutTopic: _put_topic,
        types.PutGroup: _put_group,
        types.TakeLease: _take_lease,
        types.ReleaseLease: _release_lease,
        types.PatchMetadata: _patch_metadata,
        types.DeleteTopic: _forget,
        types.LabelPod: _label,
    }

    # --- what the rest of the world does ---

    def tick(self, seconds: float) -> None:
        """Let time pass: controllers, kubelets, brokers, replication."""
        self.now += seconds
        for name in [name for name, pod in self.pods.items() if pod.deleting]:
            self._stop(name)
        for name in [n for n, c in self.claims.items() if c.deleted and not self._mounted(n)]:
            del self.claims[name]
        for (kind, name), statefulset in list(self.objects.items()):
            if kind == "StatefulSet":
                self._control(name, statefulset)
        for claim in self.claims.values():
            self._grow(claim)
        for pod in self.pods.values():
            self._start(pod)
        self._replicate(seconds)
        self._look()

    def kill(self, pair: int, ordinal: int) -> None:
        """Take a member's pod away without any warning."""
        pod = self.pod(pair, ordinal)
        assert pod is not None
        pod.deleting = True

    def _mounted(self, claim: str) -> bool:
        return claim.removeprefix("data-") in self.pods

    def _stop(self, name: str) -> None:
        pod = self.pods.pop(name)
        ids = self.registered.get(pod.config["brokerName"], {})
        for broker_id in [i for i, address in ids.items() if address == pod.address]:
            del ids[broker_id]

    def _control(self, name: str, statefulset: dict[str, Any]) -> None:
        spec, metadata = statefulset["spec"], statefulset["metadata"]
        text = json.dumps(spec["template"], sort_keys=True)
        revision = hashlib.sha256(text.encode()).hexdigest()
        status = {"observedGeneration": metadata["generation"], "updateRevision": revision[:10]}
        if statefulset.get("status") != status:
            self.objects["StatefulSet", name] = {**statefulset, "status": status}
        pod = self.pods.get(f"{name}-0")
        if pod is not None and spec["replicas"] == 0:
            pod.deleting = True
        if pod is None and spec["replicas"] == 1:
            self._create_pod(name, spec, revision[:10])

    def _create_pod(self, name: str, spec: dict[str, Any], revision: str) -> None:
        store = Store()
        templates = spec.get("volumeClaimTemplates", ())
        for template in templates:
            claim = f"data-{name}-0"
            if claim in self.claims and self.claims[claim].deleted:
                return
            if claim not in self.claims:
                size = template["spec"]["resources"]["requests"]["storage"]
                self.claims[claim] = SimClaim(self.uid(), size, size, Store())
            self.claims[claim].needs_restart = False
            self.claims[claim].capacity = self.claims[claim].requested
            store = self.claims[claim].store
        config_map = self.objects.get(("ConfigMap", name))
        if config_map is None:
            return
        self.pods[f"{name}-0"] = SimPod(
            uid=self.uid(),
            statefulset=name,
            template=spec["template"],
            revision=revision,
            config=dict(facts.properties(config_map)),
            store=store,
            created_at=self.now,
        )

    def _grow(self, claim: SimClaim) -> None:
        if parse_quantity(claim.capacity) >= parse_quantity(claim.requested):
            return
        if self.resize_needs_restart:
            claim.needs_restart = True
        else:
            claim.capacity = claim.requested

    def _start(self, pod: SimPod) -> None:
        if pod.up or pod.deleting or pod.image in self.broken_images:
            return
        if self.now - pod.created_at < self.start_seconds:
            return
        pair, _ = self.member_of(pod.statefulset)
        master = self._master(pair)
        slave = pod.config["brokerRole"] == "SLAVE"
        if slave and master is not None and pod.store.end > master.store.end:
            pod.prefix = "SlaveAhead"
            return
        pod.prefix = "Verified"
        pod.up, pod.ready_since = True, self.now
        own = (*SYSTEM_TOPICS, pod.config["brokerName"], pod.config["brokerClusterName"])
        if not slave:
            made = {topic: {"topicName": topic, "perm": 7} for topic in own}
            pod.store.topics = {**made, **pod.store.topics}
        ids = self.registered.setdefault(pod.config["brokerName"], {})
        ids[int(pod.config["brokerId"])] = pod.address

    def _master(self, pair: int) -> SimPod | None:
        found = [
            p
            for p in self.pods.values()
            if p.is_master and self.member_of(p.statefulset)[0] == pair
        ]
        if len(found) > 1:
            self.violations.append(f"two masters of pair {pair}")
        return found[0] if found else None

    def _replicate(self, seconds: float) -> None:
        syncs = self.now - self._synced_at >= 10
        if syncs:
            self._synced_at = self.now
        for pod in self.pods.values():
            pair, _ = self.member_of(pod.statefulset)
            master = self._master(pair)
            if pod is master and pod.config["brokerPermission"] == "6":
                pod.store.end += int(self.traffic * seconds)
            if master is None or not pod.up or pod is master:
                continue
            pod.store.end = master.store.end
            if syncs:
                pod.store.topics = dict(master.store.topics)
                pod.store.groups = dict(master.store.groups)
                pod.store.offsets = dict(master.store.offsets)

    def _look(self) -> None:
        """Remember since when each pair has its master address."""
        for pair in {self.member_of(p.statefulset)[0] for p in self.pods.values()}:
            name = self.cluster.broker_name(pair)
            address = self.registered.get(name, {}).get(0)
            seen = self._master_seen.get(name)
            if seen is None or seen[0] != address:
                self._master_seen[name] = (address, self.now)

    def _allowed(self, pair: int) -> int:
        expected: int = sum(
            each["spec"]["replicas"]
            for (kind, name), each in self.objects.items()
            if kind == "StatefulSet" and self.member_of(name)[0] == pair
        )
        healthy = sum(
            pod.ready_since is not None and not pod.deleting
            for pod in self.pods.values()
            if self.member_of(pod.statefulset)[0] == pair
        )
        return max(0, healthy - (expected - 1))

    # --- what the operator sees ---

    def begin_to_look(self) -> None:
        """A new operator: since when name servers have said what they say, it must see anew."""
        for name, (address, _) in self._master_seen.items():
            self._master_seen[name] = (address, self.now)

    def observe(self) -> ObservedCluster:
        """Return the observation of this moment: fresh answers of all that answer."""
        names = {name for kind, name in self.objects if kind == "StatefulSet"}
        names |= {pod.statefulset for pod in self.pods.values()}
        names |= {name.removeprefix("data-").removesuffix("-0") for name in self.claims}
        members = {self.member_of(name): self._view(name) for name in sorted(names)}
        pairs = {pair for pair, _ in members}
        masters = {self.cluster.broker_name(pair): pair for pair in pairs}
        seen = {masters[n]: s for n, s in self._master_seen.items() if n in masters}
        return ObservedCluster(
            at=self.now,
            objects=dict(self.objects),
            members=members,
            name_servers=list(self.name_servers),
            routes=[self._route(server) for server in self.name_servers],
            master_since={pair: since for pair, (address, since) in seen.items() if address},
            masterless_since={
                pair: since for pair, (address, since) in seen.items() if not address
            },
            budgets={pair: self._allowed(pair) for pair in pairs},
            lags={
                pair: PairLag(not self.backlog.get(pair), self.backlog.get(pair, ()))
                for pair in pairs
                if self.backlog_known
            },
            topics=list(self.topics),
            leases=dict(self.leases),
            experiments=list(self.experiments),
        )

    def _route(self, server: str) -> Route:
        return Route(
            server,
            brokers={name: dict(ids) for name, ids in self.registered.items() if ids},
            permissions={
                pod.config["brokerName"]: int(pod.config["brokerPermission"])
                for pod in self.pods.values()
                if pod.is_master
            },
        )

    def _view(self, name: str) -> MemberView:
        pair, ordinal = self.member_of(name)
        pod, claim = self.pods.get(f"{name}-0"), self.claims.get(f"data-{name}-0")
        return MemberView(
            pair,
            ordinal,
            statefulset=self.objects.get(("StatefulSet", name)),
            config_map=self.objects.get(("ConfigMap", name)),
            claim=None if claim is None else self._claim(name, claim),
            pod=None if pod is None else self._pod(name, pod),
            broker=None if pod is None else self._broker((pair, ordinal), pod),
        )

    def _claim(self, name: str, claim: SimClaim) -> Claim:
        return Claim(
            name=f"data-{name}-0",
            uid=claim.uid,
            phase="Bound",
            requested=claim.requested,
            capacity=claim.capacity,
            resizing=claim.requested != claim.capacity and not claim.needs_restart,
            needs_restart=claim.needs_restart,
            message="resize refused" if self.resize_refused else "",
        )

    def _pod(self, name: str, pod: SimPod) -> Pod:
        marks = pod.template["metadata"]["annotations"]
        return Pod(
            name=f"{name}-0",
            uid=pod.uid,
            phase="Running" if pod.up else "Pending",
            ready=pod.ready_since is not None,
            deleting=pod.deleting,
            ip="10.0.0.1",
            started_at=pod.created_at,
            ready_since=pod.ready_since,
            restart_hash=marks.get("failback.dev/restart-hash", ""),
            restarted_at=marks.get("failback.dev/restarted-at", ""),
            revision=pod.revision,
            image=pod.image,
            role=pod.role,
            prefix=pod.prefix,
            problem="ImagePullError" if pod.image in self.broken_images else "",
        )

    def _broker(self, member: Member, pod: SimPod) -> Broker:
        if not pod.up or member in self.silent:
            return Broker(pod.address)
        store = pod.store
        return Broker(
            pod.address,
            config=dict(pod.config),
            config_version=1,
            runtime={"brokerVersionDesc": "V4_9_8"},
            end=store.end,
            end_changed_at=self.now,
            start=0,
            topics=store.topics,
            groups=store.groups,
            offsets=store.offsets,
            offsets_at=self.now,
            metrics={"rocketmq_slave_metadata_sync_age_seconds": self.now - self._synced_at},
        )

    def state(self) -> ClusterState:
        """Return the state of a pass that begins now."""
        return ClusterState.of(self.cluster, self.status, self.observe(), self.now)

    # --- what a test compares ---

    def settled(self) -> dict[str, Any]:
        """Return the state without uids and times: what an undisturbed run must end in too."""
        return {
            "objects": {
                "/".join(key): {part: each[part] for part in ("spec", "data") if part in each}
                for key, each in sorted(self.objects.items())
            },
            "brokers": {
                name: {"config": pod.config, "ready": pod.ready_since is not None}
                for name, pod in sorted(self.pods.items())
            },
            "topics": {name: pod.store.topics for name, pod in sorted(self.pods.items())},
            "registered": {name: ids for name, ids in sorted(self.registered.items()) if ids},
            "claims": sorted(self.claims),
            "leases": sorted(self.leases),
            "status": {
                "pending": self.status.get("pendingRestarts"),
                "operation": self.status.get("currentOperation"),
                "replicas": self.status.get("replicas"),
                "conditions": {
                    item["type"]: (item["status"], item["reason"])
                    for item in self.status.get("conditions") or ()
                },
            },
        }

    def taken_away(self) -> Counter[str]:
        """Return how often each pod (by uid) was evicted or deleted by the operator's hand."""
        return Counter(
            action.uid for action in self.log if isinstance(action, (types.Evict, types.DeletePod))
        )
