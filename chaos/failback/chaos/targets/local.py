"""A cluster of ``failback up``, reached over the runtime's control socket.

Facts about processes come from the kernel, roles from the brokers and name servers, deaths from the
runtime, which is the brokers' parent. The package of the runtime is not imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from failback.chaos.cluster import processes
from failback.chaos.cluster.broker_facts import ask_broker, ask_nameservers, boot_ms_of, conflicts
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.lease import Renewal
from failback.chaos.cluster.link import LINKS
from failback.chaos.cluster.target import Deadline, FileStat, Injection
from failback.chaos.cluster.unix_socket import exchange
from failback.chaos.cluster.view import (
    LIMIT_SECONDS,
    ClusterView,
    DeathRecord,
    Member,
    Pair,
    ProcessIdentity,
    ProcessState,
    SignalReceipt,
    Stamp,
)
from failback.chaos.cluster.wire import use_access
from failback.chaos.errors import TargetError
from failback.chaos.targets.local_network import LocalNetwork
from failback.common.files import sync_folder
from failback.common.replacing import replace_file

RUNNING_STATES: Final = frozenset({"Running", "Ready"})
FETCH_SECONDS: Final = 1200.0
"""For a version of Apache that is not here yet."""
_POLL_SECONDS: Final = 0.02
_REPAIR_SECONDS: Final = 60.0


class ControlSocket:
    """The runtime's control socket: one JSON object per line each way. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    @classmethod
    def of_root(cls, root: Path) -> ControlSocket:
        """Find the socket of the runtime that owns ``root``.

        Raises:
            TargetError: No runtime was started there.
        """
        file = root / "control.json"
        try:
            path = Path(json.loads(file.read_text(encoding="utf-8"))["socket"])
        except (OSError, ValueError, KeyError) as error:
            raise TargetError(
                "find the local cluster", f"{file} is not readable; start it with failback up"
            ) from error
        return cls(path)

    def call(self, command: str, /, *, timeout: float = 10.0, **arguments: Any) -> dict[str, Any]:
        """Send one command and return the reply's fields.

        Raises:
            TargetError: The runtime does not answer, answers garbage, or says no.
        """
        what = f"runtime: {command} {arguments.get('pod', '')}".strip()
        try:
            with self._lock:
                reply: dict[str, Any] = exchange(self.path, {"cmd": command, **arguments}, timeout)
        except (OSError, ValueError) as error:
            raise TargetError(what, f"{self.path}: {error}") from error
        if not reply.get("ok"):
            raise TargetError(what, str(reply.get("error", "no reason given")))
        return reply


class LocalTarget:
    """Faults on one cluster of the local runtime."""

    kind: Literal["local"] = "local"

    def __init__(self, control: ControlSocket, cluster: str) -> None:
        self._control = control
        self._cluster = cluster
        self._renewal = Renewal(self._limit)
        self.network = LocalNetwork(lambda: self._control.call("view"))

    @property
    def control_path(self) -> Path:
        return self._control.path

    def close(self) -> None:
        """Every call has its own connection; only what is held is no longer renewed."""
        self._renewal.close()
        self.network.close()

    # --- looking ---------------------------------------------------------------------------------

    def view(self) -> ClusterView:
        reply = self._control.call("view")
        entry = self._cluster_entry(reply)
        use_access(entry.get("access", {}))
        nameservers = tuple(entry["nameservers"])
        registered = ask_nameservers(nameservers)
        pairs = tuple(self._pair(each) for each in entry["pairs"])
        return ClusterView(
            cluster=self._cluster,
            namespace=str(reply.get("namespace", "default")),
            engine=str(entry.get("engine", "failback")),
            nameservers=nameservers,
            pairs=pairs,
            conflicts=tuple(conflicts(pairs, registered)),
            access=entry.get("access", {}),
        )

    def identity(self, member: Member) -> ProcessIdentity:
        pod = self._pod(member.pod)
        if pod.get("state") not in RUNNING_STATES or not pod.get("pid"):
            raise TargetError(f"identity of {member.pod}", f"it is {pod.get('state')}")
        pid, ticks = int(pod["pid"]), int(pod["ticks"])
        if not processes.alive(pid, ticks):
            raise TargetError(f"identity of {member.pod}", f"pid {pid} is gone")
        return ProcessIdentity(member.pod, pid, ticks, boot_ms_of(member.address))

    def nameserver_pods(self) -> tuple[Member, ...]:
        reply = self._control.call("view")
        ours = self._cluster_entry(reply)["nameservers"]
        return tuple(
            Member(
                pair="",
                ordinal=int(pod["ordinal"]),
                pod=str(pod["pod"]),
                broker_name="",
                broker_id=-1,
                role="master",
                address=str(pod["address"]),
                running=pod.get("state") in RUNNING_STATES and bool(pod.get("pid")),
            )
            for pod in reply["nameserver_pods"]
            if pod["address"] in ours
        )

    def process_state(self, victim: ProcessIdentity) -> ProcessState:
        return processes.state_of(victim.pid, victim.ticks)

    def pod_state(self, pod: str) -> str:
        return str(self._pod(pod).get("state", "Unknown"))

    def deaths(self, since: int) -> Sequence[tuple[int, str, DeathRecord]]:
        reply = self._control.call("deaths", since=since)
        return [(int(each["n"]), str(each["pod"]), _death(each)) for each in reply["deaths"]]

    def read_store(self, member: Member, path: str) -> bytes:
        return _in_store(member, path).read_bytes()

    def stat_store(self, member: Member, path: str) -> FileStat | None:
        file = _in_store(member, path)
        try:
            # Read before the name can point to a newer file: one descriptor for both facts.
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                digest = hashlib.sha256(opened.read()).hexdigest()
        except FileNotFoundError:
            return None
        return FileStat(status.st_size, status.st_mtime_ns, digest)

    def write_store(self, member: Member, path: str, data: bytes | None) -> None:
        pod = self._pod(member.pod)
        if pod.get("state") in RUNNING_STATES or processes.alive(
            int(pod.get("pid") or 0), int(pod.get("ticks") or 0)
        ):
            raise TargetError(f"write {path} of {member.pod}", f"it is {pod.get('state')}")
        file = _in_store(member, path)
        if data is None:
            file.unlink(missing_ok=True)
            sync_folder(file.parent)
        else:
            replace_file(file, data)

    def refuse_unsafe(self, injection: Injection) -> None:
        """A cluster of ``failback up`` is made for experiments, but its network may be shared."""
        if injection.fault in LINKS:
            self.network.require()

    # --- acting ----------------------------------------------------------------------------------

    def signal(self, victim: ProcessIdentity, signum: int) -> SignalReceipt:
        if signum == signal.SIGSTOP:
            self._limit(victim.pod)
            self._renewal.add(victim.pod)
        receipt = processes.send_signal(victim.pid, victim.ticks, signum)
        if signum == signal.SIGCONT:
            self._unlimit(victim.pod)
        return receipt

    def _limit(self, pod: str) -> None:
        """Let the runtime end a hold and a stop, should this process not ask again."""
        self._control.call("limit", pod=pod, seconds=LIMIT_SECONDS)

    def _unlimit(self, pod: str) -> None:
        self._renewal.drop(pod)
        with contextlib.suppress(TargetError):  # without a runtime there is no timer either
            self._control.call("limit", pod=pod, seconds=0)

    def await_gone(self, victim: ProcessIdentity, deadline: Deadline) -> DeathRecord:
        if not processes.await_exit(victim.pid, victim.ticks, deadline.left()):
            raise TargetError(
                f"death of {victim.pod}",
                f"pid {victim.pid} is {self.process_state(victim).value} at the deadline",
            )
        seen = now()
        # The kernel has shown it; the runtime's wait status follows within its own loop.
        while True:
            for _, pod, record in self.deaths(0):
                if (pod, record.pid, record.ticks) == (victim.pod, victim.pid, victim.ticks):
                    return replace(record, seen=Stamp(*map(min, seen, record.seen)))
            if deadline.over():
                raise TargetError(
                    f"death of {victim.pod}", f"the runtime has no wait status of pid {victim.pid}"
                )
            time.sleep(_POLL_SECONDS)

    def hold(self, member: Member, undo: str) -> None:
        self._control.call("hold", pod=member.pod, undo=undo)
        self._limit(member.pod)
        self._renewal.add(member.pod)

    def release(self, member: Member) -> None:
        self._unlimit(member.pod)
        self._control.call("release", pod=member.pod)

    def start(self, member: Member) -> None:
        self._control.call("start", pod=member.pod)

    def possible_faults(self, member: Member) -> frozenset[str]:
        return frozenset(self._pod(member.pod).get("faults", ()))

    def set_fault(self, member: Member, fault: str, value: Mapping[str, Any]) -> None:
        self._limit(member.pod)
        self._renewal.add(member.pod)
        self._control.call("fault", pod=member.pod, fault=fault, value=dict(value))

    def end_faults(self, member: Member) -> None:
        self._control.call("end-faults", pod=member.pod, timeout=_REPAIR_SECONDS)
        self._unlimit(member.pod)

    def set_version(self, member: Member, version: str) -> None:
        self._control.call("version", pod=member.pod, version=version, timeout=FETCH_SECONDS)

    # --- the runtime's answers -------------------------------------------------------------------

    def _cluster_entry(self, reply: Mapping[str, Any]) -> Mapping[str, Any]:
        clusters = {each["name"]: each for each in reply.get("clusters", [])}
        if self._cluster not in clusters:
            raise TargetError(
                f'cluster "{self._cluster}"', f"not running here, there is {sorted(clusters)}"
            )
        entry: Mapping[str, Any] = clusters[self._cluster]
        return entry

    def _pod(self, name: str) -> Mapping[str, Any]:
        reply = self._control.call("view")
        members = [each["members"] for each in self._cluster_entry(reply)["pairs"]]
        for pods in (*members, reply.get("nameserver_pods", ())):
            for pod in pods:
                if pod["pod"] == name:
                    found: Mapping[str, Any] = pod
                    return found
        raise TargetError(f"pod {name}", "the runtime does not know it")

    def _pair(self, entry: Mapping[str, Any]) -> Pair:
        """Pairs are called pair-0, pair-1 ... in what a run writes; experiments name the broker."""
        name = f"pair-{entry['index']}"
        members = tuple(
            self._member(name, index, pod) for index, pod in enumerate(entry["members"])
        )
        return Pair(name, members[0].broker_name if members else "", members)

    def _member(self, pair: str, index: int, pod: Mapping[str, Any]) -> Member:
        """A pod as a broker. One that does not answer keeps the ordinal as its broker id."""
        address = str(pod["address"])
        running = pod.get("state") in RUNNING_STATES and bool(pod.get("pid"))
        ordinal = int(pod.get("ordinal", index))
        config, boot_ms = ask_broker(address) if running else ({}, None)
        broker_id = int(config.get("brokerId", ordinal))
        identity = None
        if running:
            identity = ProcessIdentity(str(pod["pod"]), int(pod["pid"]), int(pod["ticks"]), boot_ms)
            running = processes.alive(identity.pid, identity.ticks)
        return Member(
            pair=pair,
            ordinal=ordinal,
            pod=str(pod["pod"]),
            broker_name=str(config.get("brokerName") or pod.get("broker_name") or pair),
            broker_id=broker_id,
            role="master" if broker_id == 0 else "slave",
            address=address,
            running=running,
            identity=identity,
            store=str(pod.get("store") or ""),
        )


def _in_store(member: Member, path: str) -> Path:
    """Return a file of a member's store.

    Raises:
        TargetError: The path leads out of it.
    """
    store = Path(member.store).resolve()
    file = (store / path).resolve()
    if not member.store or not file.is_relative_to(store):
        raise TargetError(f"{path} of {member.pod}", f"it is not in the store {member.store}")
    return file


def _death(entry: Mapping[str, Any]) -> DeathRecord:
    status = int(entry["wstatus"])
    by_signal = os.WIFSIGNALED(status)
    return DeathRecord(
        pid=int(entry["pid"]),
        ticks=int(entry["ticks"]),
        signal=os.WTERMSIG(status) if by_signal else None,
        code=None if by_signal else os.WEXITSTATUS(status),
        seen=Stamp(int(entry["wall_ns"]), int(entry["mono_ns"])),
    )
