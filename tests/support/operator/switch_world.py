"""A pair of brokers, an API server and two name servers in memory, for role switches.

Time moves only by :meth:`SwitchWorld.tick`. One pass of the operator is
:meth:`SwitchWorld.reconcile`: it plans with the real planners and carries the plan out effect by
effect; every effect (status write, action) is counted, and the operator dies after the one named
by ``crash_after``. Nothing of an operator survives it but what it wrote: how long a master has
been one is counted anew by the next.

The world checks after every effect and every tick that no two brokers run as master, and that no
two files that a running StatefulSet reads say master.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.role_switch import RoleSwitch, RoleSwitchStatus
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import (
    Broker,
    Key,
    MemberView,
    ObservedCluster,
    Pod,
    Route,
)
from failback.operator.planning.operations import role_switch
from failback.operator.planning.operations.step_context import StepContext
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.plan import children
from failback.operator.planning.plan.encoding import (
    operation_from_status,
    operation_to_status,
    to_time,
)
from failback.operator.planning.plan.types import (
    Action,
    Apply,
    CommitOffsets,
    Delete,
    Event,
    Evict,
    LabelPod,
    PatchSpec,
    ReleaseLease,
    SaveSnapshot,
    SetConfig,
    TakeLease,
)
from failback.operator.planning.role_switch.switch_object import plan_role_switch
from failback.operator.planning.state import predicates
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.config import member_name
from failback.operator.render.context import Context, kubernetes_context
from failback.operator.render.objects import render_cluster
from failback.operator.render.shape import Member

START = 1_700_000_000.0
NAME_SERVERS = ("ns-0:9876", "ns-1:9876")
TOPIC_GROUP = "T@G"
STOP_SECONDS = 4.0
START_SECONDS = 6.0
SYNC_SECONDS = 10.0
STEADY_IN_SHORT_LIVES: Final = 9.0
MOST_LIVES: Final = 2000
CONTEXT = kubernetes_context("shop", "0.1.0")
_RENDERED: dict[str, dict[Key, Any]] = {}


class OperatorDied(Exception):
    """The operator was killed right after an effect."""


@dataclass
class Process:
    """One running broker."""

    config: dict[str, str]
    started_at: float
    synced_at: float = 0.0

    @property
    def master(self) -> bool:
        return self.config["brokerRole"] != "SLAVE"

    @property
    def address(self) -> str:
        return f"{self.config['brokerIP1']}:{self.config['listenPort']}"


@dataclass
class Machine:
    """What belongs to one member: its pod, its volume, its process."""

    uid: str = ""
    created_at: float = 0.0
    deleting_since: float | None = None
    process: Process | None = None
    template: str = ""
    """Restart hash and revision of the template that the pod was made from."""
    prefix: str = ""
    role_label: str = ""
    end: int = 1000
    diverged: bool = False
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    stuck: bool = False
    """The pod hangs Terminating: its node is lost."""
    broken: bool = False
    """The pod never gets ready."""


class SwitchWorld:
    """One cluster with one pair of ``members`` members; member 0 is master."""

    def __init__(self, members: int = 2, *, failover: str = "None", traffic: bool = True) -> None:
        self.now = START
        self.switches_first = False
        """In which order a pass looks at its objects: no order is promised."""
        self._looks_since = START
        self.members = members
        self.failover = failover
        self.traffic = traffic
        self.recorded = 0
        self.annotations: dict[str, str] = {}
        self.status: dict[str, Any] = {}
        self.objects: dict[Key, dict[str, Any]] = {}
        self.machines: dict[int, Machine] = {}
        self.registered: list[dict[int, tuple[str, float]]] = [{} for _ in NAME_SERVERS]
        self.shown_permission = 6
        self.leases: dict[str, dict[str, Any]] = {}
        self.config_map: dict[str, Any] | None = None
        self.switches: dict[str, dict[str, Any]] = {}
        self.events: list[Event] = []
        self.fenced: frozenset[str] = frozenset()
        self.consumed = 0
        self.effects = 0
        self.crash_after: int | None = None
        self.steps_seen: list[str] = []
        self.most_masters = 0
        self._uid = 0
        self._applied = 0
        self._drift_known = (0, -1)
        self._drift_found: tuple[Action, ...] = ()
        self._master_since: float | None = None
        self._masterless_since: float | None = None
        self._deliver()

    def _next(self) -> int:
        self._uid += 1
        return self._uid

    # --- the user ---

    def ask(self, name: str = "swap", **spec: Any) -> None:
        """Create a RoleSwitch."""
        self.switches[name] = {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "RoleSwitch",
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": f"uid-{name}",
                "creationTimestamp": to_time(self.now),
            },
            "spec": {"clusterRef": {"name": "orders"}, "pair": 0, "targetMember": 1, **spec},
            "status": {},
        }

    def delete(self, name: str = "swap") -> None:
        """Ask for the deletion of a RoleSwitch: its finalizer decides when it goes."""
        metadata = self.switches[name]["metadata"]
        metadata.setdefault("deletionTimestamp", to_time(self.now))

    @property
    def phase(self) -> str:
        return str(self.switch_status.get("phase", ""))

    @property
    def switch_status(self) -> Mapping[str, Any]:
        found = self.switches.get("swap", {}).get("status") or {}
        return dict(found)

    def reason(self, kind: str) -> str:
        """Return the reason of a condition of the RoleSwitch."""
        conditions = self.switch_status.get("conditions") or ()
        return next((str(item["reason"]) for item in conditions if item["type"] == kind), "")

    # --- what the operator sees ---

    context: Context = CONTEXT
    name_servers: tuple[str, ...] = NAME_SERVERS

    @property
    def cluster(self) -> BrokerCluster:
        overrides = [{"index": 0, "masterMember": self.recorded}] if self.recorded else []
        return BrokerCluster.model_validate(
            {
                "kind": "BrokerCluster",
                "metadata": {
                    "name": "orders",
                    "namespace": "shop",
                    "uid": "uid-orders",
                    "annotations": dict(self.annotations),
                },
                "spec": {
                    "nameServerAddresses": list(NAME_SERVERS),
                    "slavesPerPair": self.members - 1,
                    "pairOverrides": overrides,
                    "failover": {"mode": self.failover},
                },
                "status": copy.deepcopy(self.status),
            }
        )

    def observe(self) -> ObservedCluster:
        views = {(0, ordinal): self._view(ordinal) for ordinal in range(self.members)}
        table, label = snapshot.read(self.config_map)
        since = self._seen_since(self._master_since)
        gone = self._seen_since(self._masterless_since)
        return ObservedCluster(
            at=self.now,
            objects=dict(self.objects),
            members=views,
            name_servers=self.name_servers,
            routes=tuple(
                Route(
                    name_server,
                    {"orders-0": {number: entry[0] for number, entry in table_.items()}},
                    {"orders-0": self.shown_permission},
                )
                for name_server, table_ in zip(NAME_SERVERS, self.registered, strict=True)
            ),
            master_since={} if since is None else {0: since},
            masterless_since={} if gone is None else {0: gone},
            budgets={0: 1},
            leases=dict(self.leases),
            role_switches=tuple(copy.deepcopy(list(self.switches.values()))),
            snapshot=table,
            snapshot_label=label,
            snapshot_uid=self.config_map["metadata"]["uid"] if self.config_map else "",
            fenced_nodes=self.fenced,
        )

    def _seen_since(self, moment: float | None) -> float | None:
        """Since when the operator that lives now has seen what began at ``moment``."""
        return None if moment is None else max(moment, self._looks_since)

    def _view(self, ordinal: int) -> MemberView:
        name = f"orders-0-{ordinal}"
        machine = self.machines.get(ordinal)
        pod = broker = None
        if machine is not None and machine.uid:
            pod = Pod(
                f"{name}-0",
                machine.uid,
                ready=machine.process is not None,
                deleting=machine.deleting_since is not None,
                node=f"node-{ordinal}",
                node_uid=f"node-uid-{ordinal}",
                ready_since=machine.created_at,
                restart_hash=machine.template,
                revision=machine.template,
                role=machine.role_label,
                prefix=machine.prefix,
                tail_bytes=77 if machine.prefix == "Diverged" else None,
            )
            if machine.process is not None:
                broker = Broker(
                    machine.process.address,
                    config=dict(machine.process.config),
                    end=machine.end,
                    topics={"T": {"topicName": "T"}},
                    groups={"G": {"groupName": "G"}},
                    offsets=copy.deepcopy(machine.offsets),
                    offsets_at=self.now,
                )
        return MemberView(
            0,
            ordinal,
            self.objects.get(("StatefulSet", name)),
            self.objects.get(("ConfigMap", name)),
            None,
            pod,
            broker,
        )

    # --- one pass of the operator ---

    def reconcile(self) -> None:
        """Plan and carry out once for the cluster and for every RoleSwitch."""
        if not self.switches_first:
            self._reconcile_cluster()
        for name in sorted(self.switches):
            self._reconcile_switch(name)
        if self.switches_first:
            self._reconcile_cluster()

    def _reconcile_cluster(self) -> None:
        cluster, observed = self.cluster, self.observe()
        state = ClusterState(
            cluster, self.status, observed, self.now, operation_from_status(self.status)
        )
        running = state.running
        if running is None:
            opened = role_switch.cause(state)
            if opened is not None:
                self._write_operation(operation_to_status(opened))
            return
        desired = self.desired(cluster, observed)
        drift = self._drift(desired)
        advance = role_switch.advance(StepContext(state, desired, running))
        after = advance.operation
        new = operation_to_status(after) if after else None
        if new != self.status.get("currentOperation"):
            self._write_operation(new)
        for action in (*drift, *advance.actions):
            self._carry_out(action)
        self.events += advance.events

    def desired(self, cluster: BrokerCluster, observed: ObservedCluster) -> dict[Key, Any]:
        """Return what is rendered now."""
        shape = ClusterState(cluster, self.status, observed, self.now).base_shape
        running = operation_from_status(self.status)
        if running is not None:
            shape = role_switch.reshape(shape, cluster, running)
        known = repr((shape, cluster.spec, self.annotations))
        if known not in _RENDERED:
            found = render_cluster(cluster, self.name_servers, self.context, shape=shape)
            _RENDERED[known] = children.by_key(found)
        return _RENDERED[known]

    def _drift(self, desired: dict[Key, Any]) -> tuple[Action, ...]:
        """Return what to apply; asked again only when either side has changed."""
        known = (id(desired), self._applied)
        if self._drift_known != known:
            self._drift_known = known
            self._drift_found, _ = children.plan_children(desired.values(), self.objects)
        return self._drift_found

    def _reconcile_switch(self, name: str) -> None:
        found = self.switches[name]
        switch = RoleSwitch.model_validate(found)
        plan = plan_role_switch(
            switch,
            found["status"],
            self.observe(),
            self.cluster,
            self.now,
            deleting="deletionTimestamp" in found["metadata"],
        )
        RoleSwitchStatus.model_validate(plan.status)
        if plan.status != found["status"]:
            found["status"] = copy.deepcopy(dict(plan.status))
            self._effect()
        for action in plan.actions:
            self._carry_out(action)
        self.events += plan.events
        if plan.finish:
            del self.switches[name]
            self.config_map = None  # the garbage collector takes what the object owns
            self._effect()

    def _write_operation(self, operation: dict[str, Any] | None) -> None:
        self.status.pop("currentOperation", None)
        if operation is not None:
            self.status["currentOperation"] = copy.deepcopy(operation)
            if not self.steps_seen or self.steps_seen[-1] != operation["step"]:
                self.steps_seen.append(operation["step"])
        self._effect()

    def _effect(self) -> None:
        self.check()
        self.effects += 1
        if self.crash_after is not None and self.effects == self.crash_after:
            raise OperatorDied

    # --- carrying out ---

    def _carry_out(self, action: Action) -> None:
        match action:
            case Apply(manifest):
                self._apply(dict(manifest))
            case Evict(pod, uid):
                machine = self.machines[int(pod.split("-")[2])]
                if machine.uid == uid and machine.deleting_since is None:
                    machine.deleting_since = self.now
            case SetConfig(member, address, values):
                self._set_config(member, address, values)
            case TakeLease(name, holder, seconds):
                self._take_lease(name, holder, seconds)
            case ReleaseLease(name, holder):
                if self.leases.get(name, {}).get("spec", {}).get("holderIdentity") == holder:
                    del self.leases[name]
            case PatchSpec(_, master_member, expected):
                assert self.recorded == expected
                self.recorded = master_member
            case SaveSnapshot():
                self.config_map = snapshot.manifest(action, "shop", "orders")
                self.config_map["metadata"]["uid"] = f"cm-{self._next()}"
            case CommitOffsets(address, offsets):
                self._commit(address, offsets)
            case LabelPod(pod, _, labels):
                self.machines[int(pod.split("-")[2])].role_label = labels["failback.dev/role"]
            case Delete(("RoleSwitch", name), _):
                self.switches.pop(name, None)
            case Delete(_, uid):
                if self.config_map and self.config_map["metadata"]["uid"] == uid:
                    self.config_map = None
            case _:
                raise AssertionError(f"a role switch has no {action}")
        self._effect()

    def _apply(self, manifest: dict[str, Any]) -> None:
        key = children.key_of(manifest)
        have = self.objects.get(key)
        done = copy.deepcopy(manifest)
        done["metadata"]["uid"] = have["metadata"]["uid"] if have else f"o-{self._next()}"
        generation = have["metadata"].get("generation", 0) + 1 if have else 1
        done["metadata"]["generation"] = generation
        done["status"] = have.get("status", {}) if have else {}
        self.objects[key] = done
        self._applied += 1

    def _set_config(self, member: Member, address: str, values: Mapping[str, str]) -> None:
        process = self.machines[member[1]].process
        if process is None or process.address != address:
            return
        process.config.update(values)
        if process.master and "brokerPermission" in values:
            self.shown_permission = int(values["brokerPermission"])

    def _take_lease(self, name: str, holder: str, seconds: int) -> None:
        self.leases[name] = {
            "metadata": {"name": name, "uid": f"lease-{holder}"},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": seconds,
                "renewTime": to_time(self.now),
            },
        }

    def _commit(self, address: str, offsets: tuple[tuple[str, int, int], ...]) -> None:
        for machine in self.machines.values():
            if machine.process is not None and machine.process.address == address:
                for key, queue, offset in offsets:
                    assert offset > machine.offsets.get(key, {}).get(queue, -1), "lowered"
                    machine.offsets.setdefault(key, {})[queue] = offset

    # --- the rest of the world ---

    def tick(self, seconds: float = 1.0) -> None:
        """Let time pass: controllers, kubelets, brokers, producers and consumers work."""
        self.now += seconds
        for ordinal in range(self.members):
            self._control(ordinal)
        self._work()
        self._watch_routes()
        self.check()

    def _control(self, ordinal: int) -> None:
        """The StatefulSet controller and the kubelet of one member."""
        found = self.objects.get(("StatefulSet", f"orders-0-{ordinal}"))
        machine = self.machines.setdefault(ordinal, Machine())
        if found is None:
            return
        wanted = found["spec"]["replicas"]
        if machine.uid and wanted == 0 and machine.deleting_since is None:
            machine.deleting_since = self.now
        since = machine.deleting_since
        if since is not None and not machine.stuck and self.now - since >= STOP_SECONDS:
            self._stop(ordinal)
            machine.uid, machine.deleting_since, machine.prefix = "", None, ""
        if not machine.uid and wanted == 1:
            machine.uid = f"pod-{ordinal}-{self._next()}"
            machine.template = template_hash(found)
            machine.created_at = self.now
        ripe = machine.uid and self.now - machine.created_at >= START_SECONDS
        if ripe and machine.process is None and machine.deleting_since is None:
            self._start(ordinal)
        found["status"] = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": 1 if machine.uid else 0,
            "updateRevision": template_hash(found),
        }

    def _start(self, ordinal: int) -> None:
        machine = self.machines[ordinal]
        if machine.broken:
            return
        file = facts.properties(self.objects[("ConfigMap", f"orders-0-{ordinal}")])
        process = Process(dict(file), self.now)
        if not process.master:
            master = self._master()
            ahead = master is not None and machine.end > master.end
            machine.prefix = (
                "Diverged" if machine.diverged else "SlaveAhead" if ahead else "Verified"
            )
            if machine.prefix != "Verified":
                return
        machine.process = process
        for table in self.registered:
            number = int(process.config["brokerId"])
            table[number] = (process.address, self.now)
        if process.master:
            self.shown_permission = int(process.config["brokerPermission"])

    def _stop(self, ordinal: int) -> None:
        machine = self.machines[ordinal]
        if machine.process is None:
            return
        for table in self.registered:
            for number, (address, _) in list(table.items()):
                if address == machine.process.address:
                    del table[number]
        machine.process = None

    def kill(self, ordinal: int, *, lost_node: bool = False) -> None:
        """SIGKILL the process; the kubelet starts it again unless its node is lost."""
        self._stop(ordinal)
        machine = self.machines[ordinal]
        machine.created_at = self.now
        machine.stuck = machine.broken = lost_node

    def _master(self) -> Machine | None:
        found = [item for item in self.machines.values() if item.process and item.process.master]
        return found[0] if found else None

    def _work(self) -> None:
        """Producers, replication, consumers, and the slaves' copy of the tables."""
        master = self._master()
        if master is not None and master.process is not None:
            if self.traffic and self.shown_permission == 6:
                master.end += 100
            for machine in self.machines.values():
                process = machine.process
                if process is None or process.master or machine.diverged:
                    continue
                machine.end = master.end
                if self.now - process.synced_at >= SYNC_SECONDS:
                    machine.offsets.update(copy.deepcopy(master.offsets))
                    process.synced_at = self.now
        serving = [item for item in self.machines.values() if item.process]
        reader = master or (serving[0] if serving else None)
        if reader is not None and self.traffic:
            self.consumed = max(self.consumed, reader.end)
            reader.offsets.setdefault(TOPIC_GROUP, {})[0] = self.consumed

    def _watch_routes(self) -> None:
        said = {table.get(0, ("", 0.0))[0] for table in self.registered}
        if said == {""}:
            self._master_since = None
            self._masterless_since = self._masterless_since or self.now
        else:
            self._masterless_since = None
            started = max(table[0][1] for table in self.registered if 0 in table)
            self._master_since = started if len(said) == 1 else None

    def check(self) -> None:
        """Never two masters: among the processes, and among the files that may be started."""
        running = [m for m in self.machines.values() if m.process and m.process.master]
        self.most_masters = max(self.most_masters, len(running))
        assert len(running) <= 1, "two masters run"
        files = 0
        for ordinal in range(self.members):
            name = f"orders-0-{ordinal}"
            wanted = self.objects.get(("StatefulSet", name), {}).get("spec", {}).get("replicas")
            role = facts.properties(self.objects.get(("ConfigMap", name))).get("brokerRole")
            files += bool(wanted and role and role != "SLAVE")
        assert files <= 1, "two files say master"

    # --- bringing it up, letting it run ---

    def _deliver(self) -> None:
        """Bring the cluster up, as it is before anybody asks for a switch."""
        cluster = self.cluster
        for manifest in self.desired(cluster, self.observe()).values():
            self._apply(children.finished(manifest))
        for ordinal in range(self.members):
            self.objects[("StatefulSet", member_name(cluster, 0, ordinal))]["status"] = {}
        for _ in range(100):
            self.tick()
        assert self._master() is self.machines[0]
        self.effects = 0

    def run(
        self,
        *,
        until: Callable[[SwitchWorld], bool] | None = None,
        seconds: float = 3000.0,
        tick: float = 1.0,
    ) -> None:
        """Let the operator work until the switch is over and the cluster has no operation."""
        end = self.now + seconds
        stop = until or is_over
        while not stop(self):
            assert self.now < end, f"stuck: {self.status} {self.switch_status}"
            try:
                self.reconcile()
            except OperatorDied:
                self.crash_after = None
                self._looks_since = self.now
            self.tick(tick)

    def run_in_short_lives(
        self, *, until: Callable[[SwitchWorld], bool] | None = None, tick: float = 1.0
    ) -> None:
        """Like :meth:`run`, with an operator that dies after each of its effects.

        To these operators a master is steady sooner: the renewal of a lease is an effect as well,
        so that none of them lives for a minute.
        """
        stop = until or is_over
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(predicates, "STABLE_MASTER_SECONDS", STEADY_IN_SHORT_LIVES)
            for _ in range(MOST_LIVES):
                self.crash_after = self.effects + 1
                self.run(until=lambda at: at.crash_after is None or stop(at), tick=tick)
                if stop(self):
                    self.crash_after = None
                    return
        raise AssertionError(f"no end in sight: {self.status} {self.switch_status}")

    @property
    def step(self) -> str:
        return str(self.status.get("currentOperation", {}).get("step", ""))


def template_hash(statefulset: Mapping[str, Any]) -> str:
    """Return the restart hash in a StatefulSet's template; it stands for the revision here."""
    annotations = statefulset["spec"]["template"]["metadata"]["annotations"]
    return str(annotations["failback.dev/restart-hash"])


def is_over(world: SwitchWorld) -> bool:
    """Tell whether no switch runs or waits."""
    phases = [(item["status"] or {}).get("phase") for item in world.switches.values()]
    return not world.step and all(phase in ("Complete", "Failed") for phase in phases)


def delivered(members: int = 2, *, failover: str = "None") -> SwitchWorld:
    """Return a world of its own whose cluster is up, made once for each kind."""
    known = (members, failover)
    if known not in _DELIVERED:
        _DELIVERED[known] = SwitchWorld(members, failover=failover)
    return copy.deepcopy(_DELIVERED[known])


_DELIVERED: dict[tuple[int, str], SwitchWorld] = {}


def roles(world: SwitchWorld) -> dict[int, str]:
    """Return what each running member is, and its permission."""
    return {
        ordinal: f"{machine.process.config['brokerRole']} {machine.process.config['brokerId']}"
        f" {machine.process.config['brokerPermission']}"
        for ordinal, machine in sorted(world.machines.items())
        if machine.process is not None
    }
