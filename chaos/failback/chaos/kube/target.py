"""A cluster on Kubernetes, for the fault injector.

Signals, holds, process facts and files go through ``failback-init`` and a shell inside the broker's
container, reached by ``pods/exec``; the deletion of a pod is never taken for a kill. Roles come
from the brokers, addresses as they registered them. Nothing here chooses a victim.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

from failback.chaos.catalogue import CATALOGUE
from failback.chaos.errors import TargetError
from failback.chaos.facts import ask_broker, ask_nameservers, boot_ms_of, conflicts
from failback.chaos.kube import guards, init
from failback.chaos.kube.api import ExecResult, KubeApi, wait_briefly
from failback.chaos.kube.deaths import DeathBook
from failback.chaos.kube.init import InitStatus
from failback.chaos.kube.members import (
    CONTAINER,
    HOLD_ANNOTATION,
    Place,
    container_id,
    death_of_container,
    doubt_of_container,
    ended,
    held_members,
    is_running,
    places,
    platform_state,
    with_hold,
)
from failback.chaos.target import Deadline, FileStat, Injection
from failback.chaos.view import (
    ClusterView,
    DeathRecord,
    LogLine,
    Member,
    Pair,
    ProcessIdentity,
    ProcessState,
    SignalReceipt,
    Stamp,
    StopReceipt,
)
from failback.chaos.wire import now

logger = logging.getLogger(__name__)

DOMAIN_VARIABLE: Final = "FAILBACK_CLUSTER_DOMAIN"
DEFAULT_STORE: Final = "/home/rocketmq/store"
_AT_ONCE: Final = 8
_DEATH_RECORD_SECONDS: Final = 10.0
_RELEASE_SECONDS: Final = 60.0
_WRITE_TRIES: Final = 5
_NO_SUCH_FILE: Final = 44
_READ: Final = (
    f'[ -e "$1" ] || exit {_NO_SUCH_FILE}; '
    'exec 3<"$1"; stat -L -c "%s %Y %y" /proc/self/fd/3 && exec cat <&3'
)
"""One descriptor for both facts: what is measured is what is read."""


class KubernetesTarget:
    """Faults on one BrokerCluster."""

    kind: Literal["kubernetes"] = "kubernetes"

    def __init__(self, api: KubeApi, cluster: str) -> None:
        self.api = api
        self.supports = frozenset(
            name for name, row in CATALOGUE.items() if "kubernetes" in row.supported_by
        )
        self._cluster = cluster
        self._domain = os.environ.get(DOMAIN_VARIABLE, "cluster.local")
        self._selector = f"failback.dev/cluster={cluster},app.kubernetes.io/component=broker"
        self._stores: dict[str, str] = {}
        self._nameservers: tuple[str, ...] = ()
        self._same_host: dict[str, bool] = {}
        self._deaths = DeathBook()
        self._lock = threading.Lock()

    def close(self) -> None:
        self.api.close()

    # --- looking ---------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        cluster = self._require_cluster()
        engine = str((cluster["spec"].get("engine") or {}).get("type", "failback"))
        if engine != "failback":
            raise TargetError(
                f"view of {self._cluster}",
                f"engine {engine} has no failback-init: nothing could be held down or proved",
            )
        found = places(cluster, self.api.pods(self._selector), self._domain)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            looked = list(pool.map(self._member, found))
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
        )

    def identity(self, member: Member) -> ProcessIdentity:
        what = f"identity of {member.pod}"
        pod = self._require_pod(what, member.pod)
        child = self._status(pod).child
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
        if (str(pod["metadata"]["uid"]), container_id(pod)) != (victim.uid, victim.container):
            child = self._status(pod).child
            return ProcessState.GONE if child is None else ProcessState.REPLACED
        child = self._status(pod).child
        if child is None:
            return ProcessState.GONE
        if (child.pid, child.ticks) != (victim.pid, victim.ticks):
            return ProcessState.REPLACED
        return child.process_state

    def pod_state(self, pod: str) -> str:
        found = self.api.pod(pod)
        if found is None:
            member = _member_name(pod, self._require_cluster())
            held = member in held_members(self._require_cluster())
            return "Held" if held else "Gone"
        state = platform_state(found)
        if state in ("Ready", "Running"):
            with contextlib.suppress(TargetError):
                status = self._status(found)
                if status.held and status.child is None:
                    return "Held"
        return state

    def deaths(self, since: int) -> Sequence[tuple[int, str, DeathRecord]]:
        """Deaths in the order in which they were heard of.

        An init ends with its child, so only a container that is another one than before can have
        something to tell.
        """
        with self._lock:
            for pod in self.api.pods(self._selector):
                name, uid = pod["metadata"]["name"], str(pod["metadata"]["uid"])
                if is_running(pod) and self._deaths.is_news(name, uid, container_id(pod)):
                    status, seen = self._status(pod), now()
                    same = self._is_same_host(pod)
                    heard = [
                        init.death_record(each, init.to_harness(each.stamp, seen, same_host=same))
                        for each in status.deaths
                    ]
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

    def log_lines(self, member: Member, since_ns: int) -> Iterator[LogLine]:
        age = max(1, round((time.time_ns() - since_ns) / 1e9)) if since_ns else None
        text = self.api.log(member.pod, CONTAINER, age)
        stamp = now()
        for line in text.splitlines():
            yield LogLine(line, stamp)

    # --- guards ----------------------------------------------------------------------------------

    def refuse_unsafe(self, injection: Injection) -> None:
        if injection.require_label:
            guards.require_label(self.api.namespace, self.api.namespace_labels())
        if not injection.others_in_effect:
            guards.require_steady_cluster(self._require_cluster())
        if injection.fault == "pause":
            guards.require_survivable_pause(self.api.pods(self._selector), injection)
        guards.require_consent(injection)

    # --- acting ----------------------------------------------------------------------------------

    def signal(self, victim: ProcessIdentity, signum: int) -> SignalReceipt:
        what = f"signal {signum} to pid {victim.pid} of {victim.pod}"
        pod = self._require_pod(what, victim.pod)
        found = (str(pod["metadata"]["uid"]), container_id(pod))
        if found != (victim.uid, victim.container):
            raise TargetError(what, "the chosen process is REPLACED", {"found": list(found)})
        begun = now()
        result = self._exec(
            pod,
            init.COMMAND,
            "kill",
            str(signum),
            *("--expect", f"{victim.pid}:{victim.ticks}", "--by", "failback-chaos"),
        )
        returned = now()
        if result.code:
            raise TargetError(what, result.stderr.strip() or f"exit code {result.code}")
        try:
            issued_there, returned_there = init.parse_receipt(result.stdout)
        except (ValueError, KeyError) as error:
            raise TargetError(what, f"the receipt is not readable: {error}") from error
        if self._is_same_host(pod):
            return SignalReceipt(signum, issued_there, returned_there)
        return SignalReceipt(signum, begun, returned)

    def await_gone(self, victim: ProcessIdentity, deadline: Deadline) -> DeathRecord:
        """The init's record of the death, read once its container was started again; the exit code
        of the container when nobody starts it in time."""
        terminated: Mapping[str, Any] | None = None
        seen: Stamp | None = None
        patience = deadline
        while True:
            pod = self.api.pod(victim.pod)
            if pod is None or str(pod["metadata"]["uid"]) != victim.uid:
                raise TargetError(
                    f"death of {victim.pod}", "its pod was replaced: nobody kept how it died"
                )
            found = ended(pod, victim.container)
            if found is not None and terminated is None:
                terminated, seen = found, now()
                patience = Deadline.after(min(_DEATH_RECORD_SECONDS, deadline.left()))
            record = self._recorded_death(pod, victim)
            if record is not None:
                doubt = record.doubt or doubt_of_container(terminated) or _deletion(pod)
                return DeathRecord(
                    record.pid, record.ticks, record.signal, record.code, record.seen, doubt
                )
            if terminated is not None and seen is not None and patience.over():
                record = death_of_container(terminated, victim.pid, victim.ticks, seen)
                doubt = record.doubt or _deletion(pod)
                return DeathRecord(
                    record.pid, record.ticks, record.signal, record.code, seen, doubt
                )
            if deadline.over():
                state = self.process_state(victim).value
                raise TargetError(
                    f"death of {victim.pod}", f"pid {victim.pid} is {state} at the deadline"
                )
            wait_briefly()

    def await_restarted(
        self, member: Member, previous: ProcessIdentity, deadline: Deadline
    ) -> ProcessIdentity:
        while True:
            with contextlib.suppress(TargetError):
                found = self.identity(member)
                if not found.same(previous) and found.boot_ms is not None:
                    return found
            if deadline.over():
                state = self.pod_state(member.pod)
                raise TargetError(f"restart of {member.pod}", f"it is {state} at the deadline")
            wait_briefly()

    def hold(self, member: Member, undo: str) -> None:
        """The hold file where a container runs; else the operator is asked to keep the pod away."""
        pod = self.api.pod(member.pod)
        if pod is not None and is_running(pod):
            result = self._exec(pod, init.COMMAND, "hold", "--by", undo)
            if result.code:
                raise TargetError(f"hold {member.pod}", result.stderr.strip())
            return
        self._annotate_hold(member.pod, on=True)

    def release(self, member: Member) -> None:
        """Both kinds of hold away. A container that is being started again is waited for."""
        self._annotate_hold(member.pod, on=False)
        deadline = Deadline.after(_RELEASE_SECONDS)
        while (pod := self.api.pod(member.pod)) is not None:
            if is_running(pod):
                result = self._exec(pod, init.COMMAND, "release")
                if result.code:
                    raise TargetError(f"release {member.pod}", result.stderr.strip())
                return
            if deadline.over():
                state = platform_state(pod)
                raise TargetError(f"release {member.pod}", f"its container is {state}")
            wait_briefly()

    def stop(self, member: Member, grace_seconds: float) -> StopReceipt:
        """Delete the pod with its grace; the container's end tells whether it was enough."""
        victim = self.identity(member)
        pod = self._require_pod(f"stop {member.pod}", member.pod)
        version = str(pod["metadata"]["resourceVersion"])
        self.api.delete_pod(member.pod, victim.uid, round(grace_seconds))
        limit = grace_seconds + 15
        for kind, found in self.api.watch_pod(member.pod, version, limit):
            if str(found["metadata"]["uid"]) != victim.uid:
                break
            terminated = ended(found, victim.container)
            if terminated is not None:
                death = death_of_container(terminated, victim.pid, victim.ticks, now())
                return StopReceipt(death, in_time=death.signal != 9)
            if kind == "DELETED":
                break
        raise TargetError(f"stop {member.pod}", f"its end was not seen within {limit:g} s")

    def start(self, member: Member) -> None:
        """The StatefulSet starts its pod by itself; only a hold is in the way."""
        self.release(member)

    # --- inside the container --------------------------------------------------------------------

    def _exec(self, pod: Mapping[str, Any], *argv: str) -> ExecResult:
        return self.api.exec(str(pod["metadata"]["name"]), CONTAINER, argv)

    def _status(self, pod: Mapping[str, Any]) -> InitStatus:
        what = f"process of {pod['metadata']['name']}"
        result = self._exec(pod, init.COMMAND, "status", "--json")
        if result.code:
            raise TargetError(what, result.stderr.strip() or f"exit code {result.code}")
        try:
            return init.parse_status(result.stdout)
        except (ValueError, KeyError, TypeError) as error:
            raise TargetError(what, f"its init's answer is not readable: {error}") from error

    def _recorded_death(
        self, pod: Mapping[str, Any], victim: ProcessIdentity
    ) -> DeathRecord | None:
        if not is_running(pod):
            return None
        try:
            death = self._status(pod).death_of(victim.pid, victim.ticks)
        except TargetError:  # the container ends right now
            return None
        if death is None:
            return None
        same = self._is_same_host(pod)
        return init.death_record(death, init.to_harness(death.stamp, now(), same_host=same))

    def _is_same_host(self, pod: Mapping[str, Any]) -> bool:
        """Whether the pod's clocks are ours: the kernel's boot id is the same."""
        uid = str(pod["metadata"]["uid"])
        if uid not in self._same_host:
            path = "/proc/sys/kernel/random/boot_id"
            try:
                theirs = self._exec(pod, "cat", path).stdout.strip()
                with open(path, "rb") as file:
                    self._same_host[uid] = bool(theirs) and theirs == file.read().strip()
            except (TargetError, OSError):
                return False
        return self._same_host[uid]

    def _read(self, member: Member, path: str) -> tuple[int, bytes]:
        """Modification time in ns, and contents."""
        what = f"read {path} of {member.pod}"
        pod = self._require_pod(what, member.pod)
        if not is_running(pod):
            raise TargetError(what, f"its container is {platform_state(pod)}")
        file = f"{self._stores.get(member.pod, DEFAULT_STORE)}/{path}"
        result = self._exec(pod, "sh", "-c", _READ, "sh", file)
        if result.code == _NO_SUCH_FILE:
            raise FileNotFoundError(file)
        if result.code:
            raise TargetError(what, result.stderr.strip() or f"exit code {result.code}")
        head, _, data = result.stdout.partition(b"\n")
        size, mtime_ns = _parse_stat(head.decode("ascii", "replace"))
        if size != len(data):
            raise TargetError(what, f"{len(data)} of {size} bytes arrived")
        return mtime_ns, data

    # --- objects ---------------------------------------------------------------------------------

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
            member = _member_name(pod, cluster)
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
                child = self._status(pod).child
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


def _member_name(pod: str, cluster: Mapping[str, Any]) -> str:
    """A pod ``<cluster>-<pair>-<ordinal>-0`` as the hold annotation names its member."""
    prefix = cluster["spec"].get("brokerNamePrefix") or cluster["metadata"]["name"]
    index, ordinal = pod.rsplit("-", 3)[1:3]
    return f"{prefix}-{index}-{ordinal}"


def _deletion(pod: Mapping[str, Any]) -> str:
    deleted = pod["metadata"].get("deletionTimestamp")
    return f"its pod was being deleted since {deleted}" if deleted else ""


def _parse_stat(line: str) -> tuple[int, int]:
    """Size and mtime in ns of ``SIZE SECONDS DATE TIME.FRACTION ZONE``."""
    words = line.split(" ")
    try:
        fraction = words[3].partition(".")[2] if len(words) > 3 else ""
        nanoseconds = int((fraction + "000000000")[:9])
        return int(words[0]), int(words[1]) * 1_000_000_000 + nanoseconds
    except (ValueError, IndexError) as error:
        raise TargetError("stat of a store file", f"not readable: {line!r}") from error
