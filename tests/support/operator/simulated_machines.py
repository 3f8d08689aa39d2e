"""What works by itself in a simulated cluster: controllers, kubelets, volumes, brokers, routes.

:class:`Machines` goes on by :meth:`Machines.tick`; :class:`World` adds the API server's answers.
Tables are replaced, never changed in place, so that an observation stays what it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from failback.broker.config.config_keys import FIXED_AT_START, needs_admin
from failback.operator.kinds.base import parse_quantity
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Broker, Claim, Key, Pod, Route
from failback.operator.planning.state.decode import decode_claim
from failback.operator.planning.state.running_engine import engine_of
from failback.operator.render.shape import Member

START = 1_750_000_000.0
SYNC_SECONDS = 10.0
TOPIC_GROUP = "T@G"
SYSTEM_TOPICS = ("TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX")


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
    marks: dict[str, str] = field(default_factory=dict)
    """Labels and annotations of our prefix."""


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
    leaving: str = ""
    """What of it says that it is to leave its node."""

    @property
    def image(self) -> str:
        """The broker's image."""
        return str(self.template["spec"]["containers"][0].get("image", ""))

    @property
    def address(self) -> str:
        """Where the broker registers."""
        return f"{self.config['brokerIP1']}:{self.config['listenPort']}"

    @property
    def is_gated(self) -> bool:
        """Whether the pod only reads where its log ends, and starts no process."""
        return "failback.dev/gate" in self.template["metadata"]["annotations"]

    @property
    def is_master(self) -> bool:
        """Whether the process runs as a master."""
        return self.up and self.config["brokerRole"] != "SLAVE"


class Machines:
    """The machines of one cluster. ``now`` is their clock, in Unix seconds."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.now = START
        self.objects: dict[Key, dict[str, Any]] = {}
        self.pods: dict[str, SimPod] = {}
        self.claims: dict[str, SimClaim] = {}
        self.registered: dict[str, dict[int, str]] = {}
        self.strays: dict[str, dict[str, dict[int, str]]] = {}
        """What one name server alone lists, over what all list."""
        self.name_servers = ["ns-0:9876", "ns-1:9876"]
        self.start_seconds = 3.0
        self.stop_seconds = 0.0
        self.stuck: set[Member] = set()
        """Members whose pods hang Terminating: their node is lost."""
        self.broken: set[Member] = set()
        """Members whose process never starts, nor the step before it."""
        self.broken_images: set[str] = set()
        self.silent: set[Member] = set()
        """Members whose process runs but answers nobody."""
        self.resize_refused = False
        self.resize_needs_restart = False
        self.resize_hangs = False
        self.mount_seconds = 60.0
        """How old a ConfigMap is before a kubelet has mounted it and a broker has read it."""
        self._mounts: dict[str, tuple[dict[str, str], float]] = {}
        self.traffic = 0
        """Bytes per second that producers write to every open pair, and that a group reads."""
        self.most_masters = 0
        self.spoilt = False
        """A test has made a second master by its own hand."""
        self._uids = 0
        self._master_seen: dict[str, tuple[str | None, float]] = {}
        self._revisions: dict[str, tuple[dict[str, Any], str]] = {}
        self._consumed: dict[int, int] = {}

    # --- what a test asks, and does ---

    def member_of(self, statefulset: str) -> Member:
        """Return pair and ordinal of a StatefulSet's name."""
        pair, ordinal = statefulset.removeprefix(f"{self.name}-").split("-")
        return int(pair), int(ordinal)

    def pod(self, pair: int, ordinal: int) -> SimPod | None:
        """Return a member's pod."""
        return self.pods.get(f"{self.name}-{pair}-{ordinal}-0")

    def running(self, pair: int, ordinal: int) -> SimPod:
        """Return the process of a member that must be up."""
        found = self.pod(pair, ordinal)
        assert found is not None
        assert found.up
        return found

    def store(self, pair: int, ordinal: int) -> Store:
        """Return what lies on a member's volume."""
        return self.claims[f"data-{self.name}-{pair}-{ordinal}-0"].store

    def uid(self) -> str:
        """Return a new uid."""
        self._uids += 1
        return f"uid-{self._uids}"

    # --- time ---

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
            self._mount(pod)
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
            if "failback.dev/gate" not in item["spec"]["template"]["metadata"]["annotations"]
        ]
        assert len(files) == len(set(files)), "two files say master"

    def _file_says_master(self, name: str) -> bool:
        role = facts.properties(self.objects.get(("ConfigMap", name))).get("brokerRole", "SLAVE")
        return role != "SLAVE"

    def _mounted(self, claim: str) -> bool:
        return claim.removeprefix("data-") in self.pods

    # --- a process ---

    def _end(self, pod: SimPod) -> None:
        """End the process in a pod."""
        ids = self.registered.get(pod.config.get("brokerName", ""), {})
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
        gated = "failback.dev/gate" in spec["template"]["metadata"]["annotations"]
        if config_map is None and not gated:
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
        if self.resize_hangs or parse_quantity(claim.capacity) >= parse_quantity(claim.requested):
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
        if pod.is_gated:
            pod.prefix = "Gated"
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

    def _mount(self, pod: SimPod) -> None:
        """Let a broker of Failback take what its mounted file says and requests may not set."""
        now = dict(facts.properties(self.objects.get(("ConfigMap", pod.statefulset))))
        mounted, since = self._mounts.get(pod.uid, (now, self.now - self.mount_seconds))
        if mounted != now:
            mounted, since = now, self.now
        self._mounts[pod.uid] = mounted, since
        if pod.up and self.now - since >= self.mount_seconds:
            pod.config |= {k: v for k, v in now.items() if self.needs_admin(pod, k)}

    def needs_admin(self, pod: SimPod, key: str) -> bool:
        """Tell whether a broker refuses a request that sets ``key``, and can change it live."""
        container = pod.template["spec"]["containers"][0]
        if "--mounted" not in container["args"]:
            return False
        env = container["env"]
        guarded = {"name": "FAILBACK_RULES", "value": "guarded"} in env
        return needs_admin(key, guarded=guarded) and key not in FIXED_AT_START

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

    # --- brokers ---

    def _work(self, seconds: float) -> None:
        """Let producers, replication, consumers and name servers work."""
        known = (pod for pod in self.pods.values() if pod.config)
        names = {pod.member[0]: pod.config["brokerName"] for pod in known}
        for pair, name in names.items():
            master = self.master(pair)
            if master is not None:
                self._write(master, seconds)
                for pod in self.pods.values():
                    if pod.up and pod.member[0] == pair and pod is not master:
                        self._replicate(master, pod)
            if self.traffic:
                self._consume(pair)
            self._look(name)

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

    # --- what is seen of them ---

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

    def _claim(self, name: str, claim: SimClaim) -> Claim:
        marks = {"labels": claim.marks, "annotations": claim.marks}
        metadata = {"name": f"data-{name}-0", "uid": claim.uid, **marks}
        marked = decode_claim({"metadata": metadata})
        return dataclasses.replace(
            marked,
            phase="Bound",
            empty=False,
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
            engine=engine_of({"spec": {"template": pod.template}}),
            role=pod.role,
            prefix=pod.prefix,
            tail_bytes=self._tail(pod),
            own_end=pod.store.end if self._tail(pod) is not None or pod.prefix == "Gated" else None,
            gated=pod.is_gated,
            problem="ImagePullError" if pod.image in self.broken_images else "",
            leaving=pod.leaving,
        )

    def _tail(self, pod: SimPod) -> int | None:
        """Return what the check of a member's log says that its master's lacks."""
        if pod.prefix == "Diverged":
            return 77
        master = self.master(pod.member[0])
        if pod.prefix != "SlaveAhead" or master is None:
            return None
        return max(0, pod.store.end - master.store.end)

    def _broker(self, member: Member, pod: SimPod) -> Broker:
        if not pod.up or member in self.silent:
            return Broker(pod.address if pod.config else "nowhere")
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
