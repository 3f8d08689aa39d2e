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
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.plan import types
from failback.operator.planning.plan.encoding import from_time, to_time
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Member
from failback.operator.schema.decoding import decode

START = 1_750_000_000.0
SYNC_SECONDS = 10.0
TOPIC_GROUP = "T@G"
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
    diverged: bool = False
    """Its log is no beginning of its master's: it neither starts as a slave nor follows."""


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
    member: Member
    template: dict[str, Any]
    revision: str
    config: dict[str, str]
    store: Store
    created_at: float
    begun_at: float
    """Since when its process is being started."""
    up: bool = False
    ready_since: float | None = None
    synced_at: float = 0.0
    """When its process last copied its master's tables."""
    deleting: bool = False
    stopping: float = 0.0
    """How many seconds it has been deleting."""
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
        self.now = START
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
        self.strays: dict[str, dict[str, dict[int, str]]] = {}
        """What one name server alone lists, over what all list."""
        self.name_servers = ["ns-0:9876", "ns-1:9876"]
        self.experiments: list[dict[str, Any]] = []
        self.switches: dict[str, dict[str, Any]] = {}
        self.snapshot: dict[str, Any] | None = None
        """The ConfigMap of a running RoleSwitch."""
        self.start_seconds = 3.0
        self.stop_seconds = 0.0
        self.stuck: set[Member] = set()
        """Members whose pods hang Terminating: their node is lost."""
        self.broken: set[Member] = set()
        """Members whose process never starts."""
        self.fenced: frozenset[str] = frozenset()
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
        """Bytes per second that producers write to every open pair, and that a group reads."""
        self.most_masters = 0
        self.spoilt = False
        """A test has made a second master by its own hand."""
        self.log: list[types.Action] = []
        self.events: list[types.Event] = []
        self.violations: list[str] = []
        """What must never be: two members taken away at once."""
        self._versions = 0
        self._uids = 0
        self._decoded: tuple[dict[str, Any], BrokerCluster] | None = None
        self._master_seen: dict[str, tuple[str | None, float]] = {}
        self._revisions: dict[str, tuple[dict[str, Any], str]] = {}
        self._consumed: dict[int, int] = {}

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
        self.annotations.update(
            {f"failback.dev/{key.replace('_', '-')}": v for key, v in marks.items()}
        )

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of the resource."""
        found: dict[str, str] = self.document["metadata"].setdefault("annotations", {})
        return found

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

    def store(self, pair: int, ordinal: int) -> Store:
        """Return what lies on a member's volume."""
        return self.claims[f"data-{self.document['metadata']['name']}-{pair}-{ordinal}-0"].store

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
        self.check()

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
        if kind == "RoleSwitch":
            self.switches.pop(name, None)
            return
        if self.snapshot is not None and self.snapshot["metadata"]["uid"] == action.uid:
            self.snapshot = None
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
        if pod.ready_since is not None and self._allowed(pod.member[0]) < 1:
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
        have = self.leases.get(action.name, {}).get("spec")
        if have is not None and have["holderIdentity"] != action.holder:
            renewed = from_time(have["renewTime"]) or 0.0
            if self.now - renewed < have["leaseDurationSeconds"]:
                raise Refused("LeaseHeld")
        self.hold_lease(action.name, action.holder, action.seconds)

    def hold_lease(self, name: str, holder: str, seconds: int) -> None:
        """Give a lease to a holder, whoever has it."""
        self.leases[name] = {
            "spec": {
                "holderIdentity": holder,
                "renewTime": to_time(self.now),
                "leaseDurationSeconds": seconds,
            }
        }

    def _release_lease(self, action: types.ReleaseLease) -> None:
        have = self.leases.get(action.name)
        if have is not None and have["spec"]["holderIdentity"] == action.holder:
            del self.leases[action.name]

    def _patch_spec(self, action: types.PatchSpec) -> None:
        overrides = {item["index"]: item for item in self.document["spec"].get("pairOverrides", ())}
        have = overrides.get(action.pair, {"index": action.pair})
        assert have.get("masterMember", 0) == action.expected
        overrides[action.pair] = {**have, "masterMember": action.master_member}
        self.edit(pairOverrides=list(overrides.values()))

    def _save(self, action: types.SaveSnapshot) -> None:
        metadata = self.document["metadata"]
        self.snapshot = snapshot.manifest(action, metadata["namespace"], metadata["name"])
        self.snapshot["metadata"]["uid"] = self.uid()

    def _commit(self, action: types.CommitOffsets) -> None:
        store = self._at(action.address).store
        for key, queue, offset in action.offsets:
            have = store.offsets.get(key, {})
            assert offset > have.get(queue, -1), "lowered"
            store.offsets = {**store.offsets, key: {**have, queue: offset}}

    def _patch_metadata(self, action: types.PatchMetadata) -> None:
        for key in action.remove_annotations:
            self.annotations.pop(key, None)

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
        types.PatchSpec: _patch_spec,
        types.SaveSnapshot: _save,
        types.CommitOffsets: _commit,
    }

    # --- what the rest of the world does ---

    def tick(self, seconds: float = 1.0) -> None:
        """Let time pass: controllers, kubelets, brokers, replication."""
        self.now += seconds
        for name, pod in list(self.pods.items()):
            pod.stopping += seconds * pod.deleting
            due = pod.deleting and pod.stopping >= self.stop_seconds
            if due and pod.member not in self.stuck:
                self._end(pod)
                del self.pods[name]
        for name in [n for n, c in self.claims.items() if c.deleted and not self._mounted(n)]:
            del self.claims[name]
        for (kind, name), statefulset in list(self.objects.items()):
            if kind == "StatefulSet":
                self._control(name, statefulset)
        for claim in self.claims.values():
            self._grow(claim)
        for pod in self.pods.values():
            if not (pod.up or pod.deleting or self._is_hindered(pod)):
                self._start(pod)
        self._work(seconds)
        self.check()

    def take_pod(self, pair: int, ordinal: int) -> None:
        """Take a member's pod away without any warning."""
        pod = self.pod(pair, ordinal)
        assert pod is not None
        pod.deleting = True

    def kill(self, pair: int, ordinal: int, *, lost_node: bool = False) -> None:
        """SIGKILL the process; the kubelet starts it again unless its node is lost."""
        pod = self.pod(pair, ordinal)
        if pod is not None:
            self._end(pod)
            pod.begun_at = self.now
        if lost_node:
            self.stuck.add((pair, ordinal))
            self.broken.add((pair, ordinal))

    def check(self) -> None:
        """Never two masters: among the processes, and among the files that may be started."""
        if self.spoilt:
            return
        running = Counter(pod.member[0] for pod in self.pods.values() if pod.is_master)
        self.most_masters = max(self.most_masters, *running.values(), 0)
        assert self.most_masters <= 1, "two masters run"
        files = [
            self.member_of(name)[0]
            for (kind, name), item in self.objects.items()
            if kind == "StatefulSet" and item["spec"]["replicas"] and self._file_says_master(name)
        ]
        assert len(files) == len(set(files)), "two files say master"

    def _file_says_master(self, name: str) -> bool:
        role = facts.properties(self.objects.get(("ConfigMap", name))).get("brokerRole", "SLAVE")
        return role != "SLAVE"

    def _mounted(self, claim: str) -> bool:
        return claim.removeprefix("data-") in self.pods

    def _end(self, pod: SimPod) -> None:
        """End the process in a pod."""
        ids = self.registered.get(pod.config["brokerName"], {})
        for broker_id in [i for i, address in ids.items() if address == pod.address]:
            del ids[broker_id]
        pod.up, pod.ready_since = False, None

    def _control(self, name: str, statefulset: dict[str, Any]) -> None:
        spec, metadata = statefulset["spec"], statefulset["metadata"]
        revision = self._revision(name, spec["template"])
        pod = self.pods.get(f"{name}-0")
        if pod is not None and spec["replicas"] == 0:
            pod.deleting = True
        if pod is None and spec["replicas"] == 1:
            self._create_pod(name, spec, revision)
        status = {
            "observedGeneration": metadata["generation"],
            "replicas": int(f"{name}-0" in self.pods),
            "updateRevision": revision,
        }
        if statefulset.get("status") != status:
            self.objects["StatefulSet", name] = {**statefulset, "status": status}

    def _revision(self, name: str, template: dict[str, Any]) -> str:
        known = self._revisions.get(name)
        if known is None or known[0] is not template:
            text = json.dumps(template, sort_keys=True)
            known = (template, hashlib.sha256(text.encode()).hexdigest()[:10])
            self._revisions[name] = known
        return known[1]

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
            member=self.member_of(name),
            template=spec["template"],
            revision=revision,
            config=dict(facts.properties(config_map)),
            store=store,
            created_at=self.now,
            begun_at=self.now,
        )

    def _grow(self, claim: SimClaim) -> None:
        if parse_quantity(claim.capacity) >= parse_quantity(claim.requested):
            return
        if self.resize_needs_restart:
            claim.needs_restart = True
        else:
            claim.capacity = claim.requested

    def _is_hindered(self, pod: SimPod) -> bool:
        return pod.image in self.broken_images or pod.member in self.broken

    def _start(self, pod: SimPod) -> None:
        """Start the process in a pod that has none, as soon as it can be."""
        if self.now - pod.begun_at < self.start_seconds:
            return
        config_map = self.objects.get(("ConfigMap", pod.statefulset))
        pod.config = dict(facts.properties(config_map)) or pod.config
        pod.prefix = self._prefix(pod)
        if pod.prefix != "Verified":
            return
        pod.up, pod.ready_since, pod.synced_at = True, self.now, 0.0
        name = pod.config["brokerName"]
        if pod.is_master:
            own = (*SYSTEM_TOPICS, name, pod.config["brokerClusterName"])
            made = {topic: {"topicName": topic, "perm": 7} for topic in own}
            pod.store.topics = {**made, **pod.store.topics}
            self._master_seen.pop(name, None)
        self.registered.setdefault(name, {})[int(pod.config["brokerId"])] = pod.address

    def _prefix(self, pod: SimPod) -> str:
        """Return what the comparison with the master's log finds."""
        master = self.master(pod.member[0])
        if pod.config["brokerRole"] != "SLAVE":
            return "Verified"
        if pod.store.diverged:
            return "Diverged"
        ahead = master is not None and pod.store.end > master.store.end
        return "SlaveAhead" if ahead else "Verified"

    def master(self, pair: int) -> SimPod | None:
        """Return the process that is master of a pair."""
        return next((p for p in self.pods.values() if p.is_master and p.member[0] == pair), None)

    def _work(self, seconds: float) -> None:
        """Let producers, replication, consumers and name servers work."""
        for pair in {pod.member[0] for pod in self.pods.values()}:
            master = self.master(pair)
            if master is not None:
                self._write(master, seconds)
                for pod in self.pods.values():
                    if pod.up and pod.member[0] == pair and pod is not master:
                        self._replicate(master, pod)
            if self.traffic:
                self._consume(pair)
            self._look(self.cluster.broker_name(pair))

    def _write(self, master: SimPod, seconds: float) -> None:
        if master.config["brokerPermission"] == "6":
            master.store.end += int(self.traffic * seconds)

    def _replicate(self, master: SimPod, slave: SimPod) -> None:
        have, store = master.store, slave.store
        if store.diverged:
            return
        store.end = have.end
        if self.now - slave.synced_at >= SYNC_SECONDS:
            slave.synced_at = self.now
            store.topics, store.groups = dict(have.topics), dict(have.groups)
            store.offsets = {**store.offsets, **have.offsets}

    def _consume(self, pair: int) -> None:
        """A group reads all that there is and commits it where it reads."""
        serving = [pod for pod in self.pods.values() if pod.up and pod.member[0] == pair]
        reader = self.master(pair) or next(iter(serving), None)
        if reader is not None:
            store = reader.store
            self._consumed[pair] = max(self._consumed.get(pair, 0), store.end)
            queues = {**store.offsets.get(TOPIC_GROUP, {}), 0: self._consumed[pair]}
            store.offsets = {**store.offsets, TOPIC_GROUP: queues}

    def _look(self, name: str) -> None:
        """Remember since when a pair has its master address; "" where name servers differ."""
        said = {self._listed(server, name).get(0) for server in self.name_servers}
        address = said.pop() if len(said) == 1 else ""
        seen = self._master_seen.get(name)
        if seen is None or seen[0] != address:
            self._master_seen[name] = (address, self.now)

    def _listed(self, server: str, name: str) -> dict[int, str]:
        return {**self.registered.get(name, {}), **self.strays.get(server, {}).get(name, {})}

    def _allowed(self, pair: int) -> int:
        expected: int = sum(
            each["spec"]["replicas"]
            for (kind, name), each in self.objects.items()
            if kind == "StatefulSet" and self.member_of(name)[0] == pair
        )
        healthy = sum(
            pod.ready_since is not None and not pod.deleting
            for pod in self.pods.values()
            if pod.member[0] == pair
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
        table, label = snapshot.read(self.snapshot)
        return ObservedCluster(
            at=self.now,
            objects=dict(self.objects),
            members=members,
            name_servers=list(self.name_servers),
            routes=[self._route(server) for server in self.name_servers],
            master_since={pair: since for pair, (address, since) in seen.items() if address},
            masterless_since={
                pair: since for pair, (address, since) in seen.items() if address is None
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
            role_switches=list(self.switches.values()),
            snapshot=table,
            snapshot_label=label,
            snapshot_uid=self.snapshot["metadata"]["uid"] if self.snapshot else "",
            fenced_nodes=self.fenced,
        )

    def _route(self, server: str) -> Route:
        listed = {name: self._listed(server, name) for name in self.registered}
        return Route(
            server,
            brokers={name: ids for name, ids in listed.items() if ids},
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
            node=f"node-{pod.member[1]}",
            node_uid=f"node-uid-{pod.member[1]}",
            started_at=pod.created_at,
            ready_since=pod.ready_since,
            restart_hash=marks.get("failback.dev/restart-hash", ""),
            restarted_at=marks.get("failback.dev/restarted-at", ""),
            revision=pod.revision,
            image=pod.image,
            role=pod.role,
            prefix=pod.prefix,
            tail_bytes=77 if pod.prefix == "Diverged" else None,
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
            metrics={"rocketmq_slave_metadata_sync_age_seconds": self.now - pod.synced_at},
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
