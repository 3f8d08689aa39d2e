"""A cluster on Kubernetes, for the fault injector.

Signals, holds, process facts and files go through ``pods/exec`` to the parent of the broker inside
its container; the deletion of a pod is never taken for a kill. Roles come from the brokers,
addresses as they registered them. Nothing here chooses a victim.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, Literal

from failback.chaos.cluster.broker_facts import ask_broker, ask_nameservers, boot_ms_of, conflicts
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.lease import Renewal
from failback.chaos.cluster.link import LINKS
from failback.chaos.cluster.target import Deadline, FileStat, Injection
from failback.chaos.cluster.view import (
    ClusterView,
    DeathRecord,
    Member,
    Pair,
    ProcessIdentity,
    ProcessState,
    SignalReceipt,
)
from failback.chaos.cluster.wire import ACCESS_FILES, use_access
from failback.chaos.errors import TargetError
from failback.chaos.experiment.model import written
from failback.chaos.targets.kube import guards
from failback.chaos.targets.kube.api import KubeApi
from failback.chaos.targets.kube.container import Containers, keeper_of
from failback.chaos.targets.kube.inside import Inside
from failback.chaos.targets.kube.members import (
    HOLD_ANNOTATION,
    DeathBook,
    Place,
    container_id,
    container_of,
    death_of_container,
    deletion_of,
    doubt_of_container,
    ended,
    held_members,
    image_id,
    is_running,
    last_end,
    member_name,
    places,
    platform_state,
    with_hold,
)
from failback.chaos.targets.kube.mesh import MeshNetwork
from failback.kube.resources import GROUP, VERSION

DOMAIN_VARIABLE: Final = "FAILBACK_CLUSTER_DOMAIN"
DEFAULT_STORE: Final = "/home/rocketmq/store"
_AT_ONCE: Final = 8
_LOOK_SECONDS: Final = 0.1
_DEATH_RECORD_SECONDS: Final = 10.0
_RELEASE_SECONDS: Final = 60.0
_WRITE_TRIES: Final = 5


class KubernetesTarget:
    """Faults on one BrokerCluster."""

    kind: Literal["kubernetes"] = "kubernetes"

    def __init__(self, api: KubeApi, cluster: str) -> None:
        self.api = api
        self._cluster = cluster
        self._domain = os.environ.get(DOMAIN_VARIABLE, "cluster.local")
        self._selector = f"failback.dev/cluster={cluster},app.kubernetes.io/component=broker"
        self._stores: dict[str, str] = {}
        self._nameservers: tuple[str, ...] = ()
        given = {name: os.environ.get(f"FAILBACK_{name.upper()}", "") for name in ACCESS_FILES}
        self._access = {name: path for name, path in given.items() if os.path.exists(path)}
        use_access(self._access)
        self._containers = Containers(api)
        self.network = MeshNetwork(api)
        self._processes: dict[str, tuple[int, int]] = {}
        """Container → pid and ticks of the broker that was seen in it last."""
        # Kept, because every thread that opens a stream needs a client of its own.
        self._lookers = ThreadPoolExecutor(_AT_ONCE, "look")
        self._deaths = DeathBook()
        self._lock = threading.Lock()
        self._renewal = Renewal(self._renew)

    def close(self) -> None:
        self._renewal.close()
        self._lookers.shutdown(cancel_futures=True)
        self.api.close()

    # --- looking ---------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        cluster = self._require_cluster()
        pods = self.api.pods(self._selector)
        engine = self._engine(cluster, pods)
        found = places(cluster, pods, self._domain)
        looked = list(self._lookers.map(self._member, found))
        for _, config in looked:
            if config.get("namesrvAddr"):
                self._nameservers = tuple(
                    each.strip() for each in config["namesrvAddr"].split(";") if each.strip()
                )
        if not self._nameservers:
            given = cluster["spec"].get("nameServerAddresses") or ()
            self._nameservers = tuple(str(each) for each in given)
        if not self._nameservers:
            raise TargetError(
                f"view of {self._cluster}", "no broker answers, so no name server is known"
            )
        pairs = _pairs(found, [member for member, _ in looked])
        return ClusterView(
            cluster=self._cluster,
            namespace=self.api.namespace,
            engine=engine,
            nameservers=self._nameservers,
            pairs=pairs,
            conflicts=tuple(conflicts(pairs, ask_nameservers(self._nameservers))),
            access=self._access,
            images={str(pod["metadata"]["name"]): image_id(pod) for pod in pods if image_id(pod)},
        )

    def identity(self, member: Member) -> ProcessIdentity:
        what = f"identity of {member.pod}"
        pod = self._require_pod(what, member.pod)
        child = self._look(pod).child
        if child is None or child.process_state is ProcessState.GONE:
            raise TargetError(what, f"no broker runs in it, it is {self.pod_state(member.pod)}")
        return ProcessIdentity(
            member.pod,
            child.pid,
            child.ticks,
            boot_ms_of(member.address),
            container_id(pod),
            str(pod["metadata"]["uid"]),
        )

    def process_state(self, victim: ProcessIdentity) -> ProcessState:
        pod = self.api.pod(victim.pod)
        if pod is None or not is_running(pod):
            return ProcessState.GONE
        child = self._look(pod).child
        if child is None:
            return ProcessState.GONE
        found = (str(pod["metadata"]["uid"]), container_id(pod), child.pid, child.ticks)
        if found != (victim.uid, victim.container, victim.pid, victim.ticks):
            return ProcessState.REPLACED
        return child.process_state

    def pod_state(self, pod: str) -> str:
        found = self.api.pod(pod)
        if found is None:
            cluster = self._require_cluster()
            return "Held" if member_name(pod, cluster) in held_members(cluster) else "Gone"
        state = platform_state(found)
        if state in ("Ready", "Running"):
            with contextlib.suppress(TargetError):
                inside = self._look(found)
                if inside.held and inside.child is None:
                    return "Held"
        return state

    def deaths(self, since: int) -> Sequence[tuple[int, str, DeathRecord]]:
        """Deaths in the order in which they were heard of.

        A container ends with its broker, so only one that is another one than before can have
        something to tell.
        """
        with self._lock:
            for pod in self.api.pods(self._selector):
                name, uid = pod["metadata"]["name"], str(pod["metadata"]["uid"])
                if is_running(pod) and self._deaths.is_news(name, uid, container_id(pod)):
                    heard, seen = self._deaths_before(pod), now()
                    self._deaths.add(name, uid, container_id(pod), heard, seen)
            return self._deaths.since(since)

    def read_store(self, member: Member, path: str) -> bytes:
        return self._read(member, path)[1]

    def stat_store(self, member: Member, path: str) -> FileStat | None:
        try:
            mtime_ns, data = self._read(member, path)
        except FileNotFoundError:
            return None
        return FileStat(len(data), mtime_ns, hashlib.sha256(data).hexdigest())

    # --- guards ----------------------------------------------------------------------------------

    def refuse_unsafe(self, injection: Injection) -> None:
        guards.require_label(self.api.namespace, self.api.namespace_labels())
        if not injection.others_in_effect:
            guards.require_steady_cluster(self._require_cluster())
        if injection.fault == "pause":
            guards.require_survivable_pause(self.api.pods(self._selector), injection)
        guards.require_consent(injection)
        if injection.fault in LINKS:
            self.network.require()

    # --- acting ----------------------------------------------------------------------------------

    def signal(self, victim: ProcessIdentity, signum: int) -> SignalReceipt:
        what = f"signal {signum} to pid {victim.pid} of {victim.pod}"
        pod = self._require_pod(what, victim.pod)
        if (str(pod["metadata"]["uid"]), container_id(pod)) != (victim.uid, victim.container):
            raise TargetError(what, "the chosen process is REPLACED")
        receipt = self._containers.kill(pod, victim, signum)
        if signum == signal.SIGSTOP:
            self._renewal.add(victim.pod)
        elif signum == signal.SIGCONT:
            self._renewal.drop(victim.pod)
        return receipt

    def await_gone(self, victim: ProcessIdentity, deadline: Deadline) -> DeathRecord:
        """The record of the death inside, read once the container was started again; else, and
        where no init records deaths, the exit code of the container."""
        what = f"death of {victim.pod}"
        terminated: Mapping[str, Any] | None = None
        seen = now()
        patience = deadline
        while True:
            pod = self.api.pod(victim.pod)
            if pod is None or str(pod["metadata"]["uid"]) != victim.uid:
                raise TargetError(what, "its pod was replaced: nobody kept how it died")
            if terminated is None and (found := ended(pod, victim.container)) is not None:
                terminated, seen = found, now()
                recorded = keeper_of(pod).keeps_deaths
                patience = Deadline.after(
                    min(_DEATH_RECORD_SECONDS, deadline.left()) if recorded else 0.0
                )
            record = self._recorded_death(pod, victim)
            if record is None and terminated is not None and patience.over():
                record = death_of_container(terminated, victim.pid, victim.ticks, seen)
            if record is not None:
                doubt = record.doubt or doubt_of_container(terminated) or deletion_of(pod)
                return replace(record, doubt=doubt)
            if deadline.over():
                state = self.process_state(victim).value
                raise TargetError(what, f"pid {victim.pid} is {state} at the deadline")
            time.sleep(_LOOK_SECONDS)

    def hold(self, member: Member, undo: str) -> None:
        """The hold file where a container runs; else the operator is asked to keep the pod away."""
        pod = self.api.pod(member.pod)
        if pod is not None and is_running(pod):
            self._containers.hold(pod, undo)
            self._renewal.add(member.pod)
            return
        self._annotate_hold(member.pod, on=True)

    def release(self, member: Member) -> None:
        """Both kinds of hold away. A container that is being started again is waited for."""
        self._renewal.drop(member.pod)
        self._annotate_hold(member.pod, on=False)
        deadline = Deadline.after(_RELEASE_SECONDS)
        while (pod := self.api.pod(member.pod)) is not None:
            if is_running(pod):
                self._containers.release(pod)
                return
            if deadline.over():
                state = platform_state(pod)
                raise TargetError(f"release {member.pod}", f"its container is {state}")
            time.sleep(_LOOK_SECONDS)

    def _renew(self, pod: str) -> None:
        found = self.api.pod(pod)
        if found is not None and is_running(found):
            self._containers.renew(found)

    def switch_roles(self, name: str, member: Member, offset_policy: str) -> None:
        spec = {
            "clusterRef": {"name": self._cluster},
            "pair": member.broker_name,
            "targetMember": member.ordinal,
            "offsetPolicy": written(offset_policy),
        }
        metadata = {"name": name, "namespace": self.api.namespace}
        kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "RoleSwitch"}
        self.api.create({**kind, "metadata": metadata, "spec": spec})

    def switch_phase(self, name: str) -> str:
        found = self.api.find("RoleSwitch", name)
        return "" if found is None else str(found.get("status", {}).get("phase") or "Pending")

    def start(self, member: Member) -> None:
        """The StatefulSet starts its pod by itself; only a hold is in the way."""
        self.release(member)

    # --- inside the container --------------------------------------------------------------------

    def _look(self, pod: Mapping[str, Any]) -> Inside:
        found = self._containers.look(pod)
        if found.child is not None:
            self._processes[container_id(pod)] = (found.child.pid, found.child.ticks)
        return found

    def _recorded_death(
        self, pod: Mapping[str, Any], victim: ProcessIdentity
    ) -> DeathRecord | None:
        if not is_running(pod) or not keeper_of(pod).keeps_deaths:
            return None
        try:
            found = self._look(pod)
        except TargetError:  # the container ends right now
            return None
        recorded = self._containers.deaths(pod, found, now())
        named = (victim.pid, victim.ticks)
        return next((each for each in recorded if (each.pid, each.ticks) == named), None)

    def _deaths_before(self, pod: Mapping[str, Any]) -> list[DeathRecord]:
        """Deaths of the pod's brokers before the one of this container."""
        found, heard = self._look(pod), now()
        if keeper_of(pod).keeps_deaths:
            return self._containers.deaths(pod, found, heard)
        last = last_end(pod)
        if last is None:
            return []
        # A broker that was not sampled has no pid here; its restart tells it from others.
        unknown = (0, int(container_of(pod).get("restartCount", 0)))
        pid, ticks = self._processes.get(str(last.get("containerID")), unknown)
        return [death_of_container(last, pid, ticks, heard)]

    def _read(self, member: Member, path: str) -> tuple[int, bytes]:
        """Modification time in ns, and contents."""
        what = f"read {path} of {member.pod}"
        pod = self._require_pod(what, member.pod)
        if not is_running(pod):
            raise TargetError(what, f"its container is {platform_state(pod)}")
        return self._containers.read(pod, f"{self._stores.get(member.pod, DEFAULT_STORE)}/{path}")

    # --- objects ---------------------------------------------------------------------------------

    def _engine(self, cluster: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> str:
        """What the pods run; an arm may have given them another engine than the cluster's spec."""
        engines = {keeper_of(pod).engine for pod in pods}
        if len(engines) > 1:
            what = f"view of {self._cluster}"
            raise TargetError(what, f"its pods run {' and '.join(sorted(engines))}")
        given = str((cluster["spec"].get("engine") or {}).get("type", "Failback")).lower()
        return engines.pop() if engines else given

    def _require_cluster(self) -> Mapping[str, Any]:
        found = self.api.cluster(self._cluster)
        if found is None:
            raise TargetError(
                f'cluster "{self._cluster}"', f"namespace {self.api.namespace} has none"
            )
        return found

    def _require_pod(self, what: str, name: str) -> Mapping[str, Any]:
        found = self.api.pod(name)
        if found is None:
            raise TargetError(what, "there is no such pod")
        return found

    def _annotate_hold(self, pod: str, *, on: bool) -> None:
        for _ in range(_WRITE_TRIES):
            cluster = self._require_cluster()
            member = member_name(pod, cluster)
            if (member in held_members(cluster)) is on:
                return
            version = str(cluster["metadata"]["resourceVersion"])
            wanted = {HOLD_ANNOTATION: with_hold(cluster, member, on=on)}
            if self.api.patch_cluster_annotations(self._cluster, wanted, version):
                return
        raise TargetError(f"hold of {pod}", f"{HOLD_ANNOTATION} is being fought over")

    def _member(self, place: Place) -> tuple[Member, dict[str, str]]:
        """One member and its broker's configuration, which is empty while it does not answer."""
        identity, config, boot_ms = None, dict[str, str](), None
        pod = place.manifest
        if pod is not None and is_running(pod):
            with contextlib.suppress(TargetError):
                child = self._look(pod).child
                if child is not None and child.process_state is not ProcessState.GONE:
                    config, boot_ms = ask_broker(place.address)
                    identity = ProcessIdentity(
                        place.pod, child.pid, child.ticks, boot_ms, container_id(pod), place.uid
                    )
        if config.get("storePathRootDir"):
            self._stores[place.pod] = config["storePathRootDir"]
        broker_id = int(config.get("brokerId", place.ordinal))
        address = place.address
        if config.get("brokerIP1"):
            address = f"{config['brokerIP1']}:{config.get('listenPort', address.split(':')[-1])}"
        member = Member(
            pair=f"pair-{place.index}",
            ordinal=place.ordinal,
            pod=place.pod,
            broker_name=config.get("brokerName") or place.broker_name,
            broker_id=broker_id,
            role="master" if broker_id == 0 else "slave",
            address=address,
            running=identity is not None,
            identity=identity,
        )
        return member, config


def _pairs(found: Sequence[Place], members: Sequence[Member]) -> tuple[Pair, ...]:
    grouped: dict[int, list[Member]] = {}
    for place, member in zip(found, members, strict=True):
        grouped.setdefault(place.index, []).append(member)
    return tuple(
        Pair(f"pair-{index}", each[0].broker_name, tuple(each)) for index, each in grouped.items()
    )
