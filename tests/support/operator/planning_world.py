"""A cluster in memory: API server, StatefulSet controller, kubelets, brokers and name servers.

Enough of each to run whole operations of the operator to their end in milliseconds: actions
change objects, :meth:`World.tick` lets the controllers and the brokers go on, and
:meth:`World.observe` is what the next pass sees. Nothing here decides anything for the operator.
Real servers and brokers are tested elsewhere; this world exists to be stopped at every step.
Objects and tables are replaced, never changed in place, so that an observation stays what it was.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.cluster import last_valid
from failback.operator.planning.observed.observed import (
    MemberView,
    ObservedCluster,
    PairLag,
    Snapshot,
)
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.plan import types
from failback.operator.planning.plan.children import key_of
from failback.operator.planning.plan.encoding import from_time, stored_operations, to_time
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Member
from failback.operator.schema.decoding import decode
from tests.support.operator.simulated_machines import Machines, SimPod


class Refused(Exception):
    """The API server or a broker refused an action; the pass stops there."""


def notes_the_spec(action: types.Action) -> bool:
    """Tell whether an action only keeps the spec that is carried out, for bad days."""
    if not isinstance(action, types.Apply):
        return False
    kind, name = key_of(action.manifest)
    keys = (last_valid.key_of, last_valid.name_server_key)
    return any(key(name.partition("-last-valid-")[0]) == (kind, name) for key in keys)


def _selects(selector: dict[str, Any], pod: SimPod) -> bool:
    """Tell whether a budget is for a pod, whose label of a role is the operator's."""
    labels = {**pod.template["metadata"]["labels"], "failback.dev/role": pod.role}
    return selector["matchLabels"].items() <= labels.items() and not any(
        labels[each["key"]] in each["values"] for each in selector.get("matchExpressions", ())
    )


class World(Machines):
    """Everything outside the operator. ``now`` is its clock, in Unix seconds."""

    def __init__(self, name: str = "orders", **spec: Any) -> None:
        super().__init__(name)
        self.document: dict[str, Any] = {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "BrokerCluster",
            "metadata": {"name": name, "namespace": "shop", "uid": "cr-1", "generation": 1},
            "spec": {"nameServerAddresses": ["ns-0:9876", "ns-1:9876"], **spec},
        }
        self.status: dict[str, Any] = {}
        self.leases: dict[str, dict[str, Any]] = {}
        self.experiments: list[dict[str, Any]] = []
        self.switches: dict[str, dict[str, Any]] = {}
        self.snapshots: dict[str, dict[str, Any]] = {}
        """The ConfigMaps of running RoleSwitches."""
        self.fenced: frozenset[str] = frozenset()
        self.cordoned: set[str] = set()
        """Nodes that take no new pods; what runs there stays."""
        self.nodes_readable = True
        self.made: list[str] = []
        """Names of the RoleSwitches that the operator made."""
        self.stubborn: dict[tuple[Member, str], str] = {}
        """Values that a broker keeps whatever it is told."""
        self.backlog: dict[int, dict[str, int]] = {}
        """Pair → ``group@topic`` → what the group has not consumed there."""
        self.backlog_known = True
        self.refuses: set[str] = set()
        """Names of objects that the API server does not let be applied."""
        self.topics: list[dict[str, Any]] = []
        """Topic resources of the cluster."""
        self.groups: list[dict[str, Any]] = []
        """SubscriptionGroup resources of the cluster."""
        self.log: list[types.Action] = []
        self.events: list[types.Event] = []
        self.violations: list[str] = []
        """What must never be: two members taken away at once."""
        self._versions = 0
        self._decoded: tuple[dict[str, Any], BrokerCluster] | None = None

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
        if not notes_the_spec(action):
            self.log.append(action)
        self._DO[type(action)](self, action)
        self.check()

    def _apply(self, action: types.Apply) -> None:
        manifest = copy.deepcopy(dict(action.manifest))
        key = (manifest["kind"], manifest["metadata"]["name"])
        have = self.objects.get(key)
        if key[1] in self.refuses:
            raise Refused("a webhook says no")
        if key[0] == "RoleSwitch":
            self._make_switch(manifest)
            return
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

    def _make_switch(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if name not in self.switches:
            self.made.append(name)
            manifest["metadata"] |= {"uid": self.uid(), "creationTimestamp": to_time(self.now)}
            self.switches[name] = {**manifest, "status": {}}

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
        if name in self.snapshots and self.snapshots[name]["metadata"]["uid"] == action.uid:
            del self.snapshots[name]
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
        budgets = self._budgets_of(pod)
        if len(budgets) > 1:
            self.violations.append(f"{action.pod} is of two budgets")
        if pod.ready_since is not None and any(self._allows(each) < 1 for each in budgets):
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
        failback = self.cluster.spec.engine.program == "failback"
        for key, value in action.values.items():
            if failback and self.needs_admin(pod, key):
                raise Refused(f"{key} can be set from this machine")
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

    def _mark_claim(self, action: types.MarkClaim) -> None:
        claim = self.claims.get(action.claim)
        if claim is None or claim.uid != action.uid:
            raise Refused(f"{action.claim} is another one")
        claim.marks = {**claim.marks, **action.labels, **action.annotations}

    def _save(self, action: types.SaveSnapshot) -> None:
        metadata = self.document["metadata"]
        made = snapshot.manifest(action, metadata["namespace"], metadata["name"])
        made["metadata"]["uid"] = self.uid()
        self.snapshots[action.name] = made

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
        types.MarkClaim: _mark_claim,
        types.SaveSnapshot: _save,
        types.CommitOffsets: _commit,
    }

    def _budgets_of(self, pod: SimPod) -> list[dict[str, Any]]:
        return [
            item
            for (kind, _), item in self.objects.items()
            if kind == "PodDisruptionBudget" and _selects(item["spec"]["selector"], pod)
        ]

    def _allows(self, budget: dict[str, Any]) -> int:
        """Return ``disruptionsAllowed``, as the disruption controller reckons it."""
        spec = budget["spec"]
        pods = [pod for pod in self.pods.values() if _selects(spec["selector"], pod)]
        healthy = sum(pod.ready_since is not None and not pod.deleting for pod in pods)
        least: int = spec.get("minAvailable", len(pods) - spec.get("maxUnavailable", 0))
        return max(0, healthy - least)

    def _allowed(self, pair: int) -> int:
        budget = self.objects.get(("PodDisruptionBudget", f"{self.name}-{pair}"))
        return 0 if budget is None else self._allows(budget)

    def evict(self, pair: int, ordinal: int) -> bool:
        """Evict a member's pod as a drain does; tell whether its budget allowed it."""
        pod = self.pod(pair, ordinal)
        assert pod is not None
        try:
            self._evict(types.Evict(f"{pod.statefulset}-0", pod.uid))
        except Refused:
            return False
        return True

    # --- what the operator sees ---

    def begin_to_look(self) -> None:
        """A new operator: since when name servers have said what they say, it must see again."""
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
                pair: since for pair, (address, since) in seen.items() if address is None
            },
            budgets={pair: self._allowed(pair) for pair in pairs},
            lags={
                pair: PairLag(self.backlog.get(pair, {}), frozenset({"G"}))
                for pair in pairs
                if self.backlog_known
            },
            topics=list(self.topics),
            groups=list(self.groups),
            leases=dict(self.leases),
            experiments=list(self.experiments),
            role_switches=list(self.switches.values()),
            snapshots={
                name: Snapshot(found["metadata"]["uid"], *snapshot.read(found))
                for name, found in self.snapshots.items()
            },
            fenced_nodes=self.fenced,
            leaving_nodes={name: f"node {name} is unschedulable" for name in self.cordoned}
            if self.nodes_readable
            else None,
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
                "operations": stored_operations(self.status),
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
