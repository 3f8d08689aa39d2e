"""The local runtime: executes rendered objects as processes, through the operator's own plan.

One asyncio program per root. It decides nothing itself: ``render`` says which objects there
should be, ``plan`` which of them to make now; here a StatefulSet becomes pods, a pod a
process. Everything it knows is in the root's files, so that ``failback down`` ends its
children also after it was killed.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from failback.client.remoting.guarded.access import ClusterAccess
from failback.common.files import append_line
from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.kinds.topic import Topic
from failback.operator.local.addresses import (
    allocate,
    check_addresses,
    check_blocks,
    local_context,
)
from failback.operator.local.apache_release import Apache, find_apache
from failback.operator.local.control import Command, CommandError, ControlServer, end_leftovers
from failback.operator.local.faults import clean_up, prepare_faults
from failback.operator.local.masters import Masters, mark, masters_of, with_masters
from failback.operator.local.metadata import (
    PairAddresses,
    create_metadata,
    refuse_unsupported_metadata,
)
from failback.operator.local.network import Network, make, plan_network, remove
from failback.operator.local.plan import Delete, Key, Object, Observed, deletion_order, plan
from failback.operator.local.pod import Pod
from failback.operator.local.podspec import PodSpec, pods_of
from failback.operator.local.process import Death
from failback.operator.local.root import Root, read_json, write_json
from failback.operator.local.secrets import Secrets, access_of, write_secrets
from failback.operator.local.supported import refuse_unsupported
from failback.operator.local.views import View
from failback.operator.planning.cluster.carried import carried_events
from failback.operator.render.context import Context
from failback.operator.render.members import member_name, pod_name
from failback.operator.render.nameserver import statefulset_name
from failback.operator.render.objects import render
from failback.protocol.errors import ConfigError

logger = logging.getLogger(__name__)


class LocalRuntime:
    """Runs the resources of one root until it is told to stop.

    ``prepare`` checks everything and starts nothing; ``run`` starts and supervises.
    """

    def __init__(
        self,
        root: Root,
        *,
        log: Callable[[str], None] | None = None,
        faults: Sequence[str] = (),
        isolate_network: bool = False,
    ) -> None:
        """``faults``: what experiments may change of pods, see :mod:`.faults`."""
        self.root = root
        self._faults = tuple(faults)
        self._isolate_network = isolate_network
        self._network: Network | None = None
        self.pods: dict[str, Pod] = {}
        self._log = log or (lambda line: None)
        self._items: tuple[Resource, ...] = ()
        self._masters: Masters = {}
        self._desired: list[Object] = []
        self._applied: dict[Key, Object] = {}
        self._apache: Apache | None = None
        self._context: Context | None = None
        self._changed = asyncio.Event()
        self._stop = asyncio.Event()
        self._all_ready = asyncio.Event()
        self._problem = ""
        self._deaths: list[dict[str, Any]] = []
        self._stopped = asyncio.Event()

    # --- before anything starts ------------------------------------------------------------------

    def prepare(self, items: Sequence[Resource], secrets: Secrets | None = None) -> None:
        """Render and check everything; take the lock of the root first.

        Raises:
            ConfigError: Something can't be run here. Nothing was started.
        """
        self.root.create()
        refuse_what_cannot_run(items)
        try:
            prepare_faults(self._faults, items, self.root)
            self._prepare(items, secrets or {})
        except BaseException:
            clean_up(self.root)
            raise

    def _prepare(self, items: Sequence[Resource], secrets: Secrets) -> None:
        self._masters = masters_of(items, self.root)
        documents = [item.model_dump(by_alias=True, exclude_unset=True) for item in items]
        items = self._items = with_masters(items, self._masters, self._log)
        self._apache = _find_apache(items, self._log)
        namespace = items[0].namespace
        ports = allocate(self.root, _statefulset_names(items))
        if self._isolate_network:
            self._network = plan_network(self.root, _pod_names(items))
        self._context = local_context(
            namespace, self.root, ports, version("failback"), self._address
        )
        self._desired = list(render(items, self._context))
        refuse_unsupported(self._desired, self.root)
        hosts = [self._context.address_of(each, "") for each in _pod_names(items)]
        write_secrets(items, secrets, hosts, self.root)
        for line in end_leftovers(self.root):
            self._log(line)
        check_blocks(ports)
        if self._network is not None:
            make(self._network, self.root)
        mark(self._items, self._masters, self.root)
        write_json(self.root.resources_file, documents)
        self._deaths = _read_deaths(self.root)

    @property
    def _address(self) -> Callable[[str], str] | None:
        return self._network.address if self._network is not None else None

    def _placed(self, spec: PodSpec) -> PodSpec:
        """Return a pod in its own namespace, where pods have one."""
        network = self._network
        if network is None:
            return spec
        return replace(spec, network_namespace=network.namespace(spec.name), prober=network.prober)

    @property
    def view(self) -> View:
        """What runs, for the control socket and the status files."""
        assert self._context is not None, "prepare() first"
        return View(self.root, self._items, self._context, self.pods)

    # --- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start everything, serve until told to stop, then stop everything.

        Raises:
            FailbackError: A topic or group could not be created; everything was stopped.
        """
        control = ControlServer(self.root, self._control_commands())
        await control.start()
        reconciling = asyncio.create_task(self._reconcile())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((reconciling, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reconciling, stopping):
                task.cancel()
            await asyncio.wait((reconciling, stopping))
            await self._stop_pods()
            for line in (*clean_up(self.root), *remove(self.root)):
                self._log(line)
            self._record()
            self._stopped.set()
            await control.stop()
        if not reconciling.cancelled() and (error := reconciling.exception()):
            raise error

    def stop(self) -> None:
        """Ask :meth:`run` to end. Asked twice: without grace."""
        if self._stop.is_set():
            for pod in self.pods.values():
                pod.kill()
        self._stop.set()

    async def wait_ready(self) -> None:
        """Return when all resources are created and ready."""
        await self._all_ready.wait()

    async def _reconcile(self) -> None:
        """Carry out plans until nothing is left to do; then create topics and groups."""
        announced: tuple[Key, ...] = ()
        while True:
            self._changed.clear()
            step = plan(self._observed(), self._desired)
            for action in step.actions:
                if isinstance(action, Delete):
                    await self._delete(action.key)
                else:
                    await self._apply(action.key, action.manifest)
            if step.done and not self._all_ready.is_set():
                mark(self._items, self._masters, self.root, slaves_follow=True)
                await self._create_metadata()
                self._all_ready.set()
                self._record()
            if step.waiting_for != announced:
                announced = step.waiting_for
                if announced and not self._all_ready.is_set():
                    self._log("waiting for " + ", ".join(name for _, name in announced))
            await self._changed.wait()

    def _observed(self) -> Observed:
        ready = frozenset(
            key
            for key in self._applied
            if key[0] == "StatefulSet"
            and all(pod.ready for pod in self.pods.values() if pod.spec.statefulset == key[1])
        )
        return Observed(dict(self._applied), ready)

    async def _apply(self, key: Key, manifest: Object) -> None:
        before = self._applied.get(key)
        self._applied[key] = manifest
        if key[0] != "StatefulSet":
            return
        if before is not None and before["spec"] != manifest["spec"]:
            await self._stop_statefulset(key[1])
        for spec in pods_of(manifest, self._applied, self.root, self._apache, self._address):
            if spec.name not in self.pods:
                self._log(f"starting {spec.name} at {spec.address}")
                self.pods[spec.name] = Pod(
                    self._placed(spec), self.root, self, fault_kinds=self._faults
                )
                self.pods[spec.name].start()
        self._changed.set()

    async def _delete(self, key: Key) -> None:
        if key[0] == "StatefulSet":
            await self._stop_statefulset(key[1])
        del self._applied[key]
        self._changed.set()

    async def _stop_statefulset(self, name: str) -> None:
        going = [pod for pod in self.pods.values() if pod.spec.statefulset == name]
        await asyncio.gather(*(pod.stop() for pod in going))
        for pod in going:
            del self.pods[pod.spec.name]

    async def _stop_pods(self) -> None:
        """Stop slaves, then masters, then name servers; each group at once."""
        for group in stop_order(self._applied, self.pods):
            self._log("stopping " + ", ".join(group))
            await asyncio.gather(*(self.pods[name].stop() for name in group))

    async def _create_metadata(self) -> None:
        topics = [item for item in self._items if isinstance(item, Topic)]
        groups = [item for item in self._items if isinstance(item, SubscriptionGroup)]
        if topics or groups:
            self._log(f"creating {len(topics)} topics and {len(groups)} groups")
            await create_metadata(topics, groups, self._pair_addresses, self._access)

    def _access(self, cluster_name: str) -> ClusterAccess | None:
        clusters = [each for each in self._items if isinstance(each, BrokerCluster)]
        return next(access_of(each, self.root) for each in clusters if each.name == cluster_name)

    def _pair_addresses(self, cluster_name: str) -> list[PairAddresses]:
        found = []
        for cluster in self._items:
            if not isinstance(cluster, BrokerCluster) or cluster.name != cluster_name:
                continue
            for index in range(cluster.spec.pairs):
                pair = cluster.pair(index)
                members = {
                    pair.broker_id(ordinal): self.view.address(pod_name(cluster, index, ordinal))
                    for ordinal in pair.ordinals
                }
                master = members.pop(0)
                found.append(PairAddresses(pair.broker_name, master, tuple(members.values())))
        return found

    # --- what happens to pods --------------------------------------------------------------------

    def changed(self, pod: Pod) -> None:
        """Write the new state of a pod, and wake the planning."""
        self._record()
        self._changed.set()

    def died(self, pod: Pod, death: Death) -> None:
        """Keep the wait status: only the parent process ever gets it."""
        record = {
            "n": len(self._deaths) + 1,
            "pod": pod.spec.name,
            "pid": death.identity.pid,
            "ticks": death.identity.ticks,
            "wstatus": death.wstatus,
            "wall_ns": death.wall_ns,
            "mono_ns": death.mono_ns,
        }
        self._deaths.append(record)
        append_line(self.root.deaths_file, json.dumps(record).encode())
        self._log(f"{pod.spec.name} ended: {death.text}")

    def _record(self) -> None:
        """Write state and status: before a child's gate opens, its identity is on disk."""
        order = stop_order(self._applied, self.pods)
        write_json(self.root.state_file, self.view.state(order))
        previous = read_json(self.root.status_file) or {}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        status = self.view.statuses(previous, now.replace("+00:00", "Z"))
        if status != previous:
            write_json(self.root.status_file, status)
        for label, each in status.items():
            for event in carried_events(previous.get(label, {}), each):
                self._log(event.message)

    # --- control socket --------------------------------------------------------------------------

    def _control_commands(self) -> dict[str, Command]:
        return {
            "view": self._on_view,
            "status": self._on_status,
            "hold": self._of_pod(lambda pod, asked: pod.hold(str(asked.get("undo", "")))),
            "release": self._of_pod(lambda pod, _: pod.release()),
            "limit": self._of_pod(lambda pod, asked: pod.limit(float(asked.get("seconds", 0)))),
            "fault": self._of_pod(
                lambda pod, asked: pod.faults.set(
                    str(asked["fault"]), dict(asked.get("value") or {})
                )
            ),
            "end-faults": self._of_pod(lambda pod, _: pod.end_faults()),
            "stop": self._on_stop,
            "start": self._on_start,
            "version": self._on_version,
            "deaths": self._on_deaths,
            "down": self._on_down,
        }

    async def _on_view(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return self.view.control()

    async def _on_status(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "ready": self._all_ready.is_set(),
            "stopping": self._stop.is_set(),
            "status": read_json(self.root.status_file) or {},
            "waiting": {
                name: f"{pod.state} ({pod.reason})" if pod.reason else pod.state
                for name, pod in self.pods.items()
                if not pod.ready
            },
        }

    def _of_pod(self, order: Callable[[Pod, Mapping[str, Any]], Awaitable[None] | None]) -> Command:
        """Return a command that gives the pod of the request an order, and has no answer."""

        async def command(request: Mapping[str, Any]) -> dict[str, Any]:
            under_way = order(self._pod(request), request)
            if under_way is not None:
                await under_way
            return {}

        return command

    async def _on_stop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        pod = self._pod(request)
        identity = pod.identity
        grace = request.get("grace_seconds")
        await pod.stop(float(grace) if grace is not None else None)
        deaths = [each for each in self._deaths if identity and each["pid"] == identity.pid]
        return {"death": deaths[-1] if deaths else None}

    async def _on_start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._stop.is_set():
            raise CommandError("the runtime is stopping")
        self._pod(request).start()
        return {}

    async def _on_version(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Have a pod run another version of Apache RocketMQ from its next start on."""
        pod = self._pod(request)
        if self._apache is None:
            raise CommandError(f"{pod.spec.name} is of Failback, which has one version here")
        apache = await asyncio.to_thread(find_apache, str(request["version"]), self._log)
        manifest = self._applied["StatefulSet", pod.spec.statefulset]
        specs = pods_of(manifest, self._applied, self.root, apache)
        pod.spec = next(each for each in specs if each.name == pod.spec.name)
        return {}

    async def _on_deaths(self, request: Mapping[str, Any]) -> dict[str, Any]:
        since = int(request.get("since", 0))
        return {"deaths": self._deaths[since:]}

    async def _on_down(self, request: Mapping[str, Any]) -> dict[str, Any]:
        pods = list(self.pods)
        self.stop()
        await self._stopped.wait()
        return {"stopped": pods}

    def _pod(self, request: Mapping[str, Any]) -> Pod:
        name = str(request["pod"])
        if name not in self.pods:
            raise CommandError(f'there is no pod "{name}", there is {sorted(self.pods)}')
        return self.pods[name]


def stop_order(applied: Mapping[Key, Object], pods: Mapping[str, Pod]) -> list[list[str]]:
    """Return the pods in groups: slaves, then masters, then name servers."""
    groups = []
    for stage in deletion_order(applied):
        names = {name for kind, name in stage if kind == "StatefulSet"}
        group = [name for name, pod in pods.items() if pod.spec.statefulset in names]
        if group:
            groups.append(group)
    return groups


def refuse_what_cannot_run(items: Sequence[Resource]) -> None:
    """Raise :class:`ConfigError` for resources that this runtime has no way to run."""
    runnable = [item for item in items if isinstance(item, (NameServer, BrokerCluster))]
    if not runnable:
        raise ConfigError("local", "there is no NameServer and no BrokerCluster to run")
    namespaces = {item.namespace: item for item in items}
    if len(namespaces) > 1:
        named = " and ".join(sorted(namespaces))
        raise ConfigError("local", f"one runtime has one namespace, the files have {named}")
    for item in items:
        if isinstance(item, BrokerCluster) and item.spec.networking.broker_address == "External":
            raise ConfigError(
                f"local: {item.label}: spec.networking.brokerAddress",
                "external is not supported by the local runtime",
            )
        if isinstance(item, (BrokerCluster, NameServer)) and item.spec.external is not None:
            raise ConfigError(
                f"local: {item.label}: spec.external", "is not supported by the local runtime"
            )
    refuse_unsupported_metadata(items)
    check_addresses(items[0].namespace, _pod_names(runnable))


def _find_apache(items: Sequence[Resource], log: Callable[[str], None]) -> Apache | None:
    versions = {
        item.spec.engine.version
        for item in items
        if isinstance(item, (NameServer, BrokerCluster)) and item.spec.engine.program == "apache"
    }
    if len(versions) > 1:
        raise ConfigError("spec.engine.version", "one root runs one version of Apache RocketMQ")
    return find_apache(str(versions.pop()), log) if versions else None


def _statefulset_names(items: Sequence[Resource]) -> list[str]:
    names = [statefulset_name(item) for item in items if isinstance(item, NameServer)]
    for cluster in items:
        if isinstance(cluster, BrokerCluster):
            names += [
                member_name(cluster, index, ordinal)
                for index in range(cluster.spec.pairs)
                for ordinal in cluster.pair(index).ordinals
            ]
    return names


def _pod_names(items: Sequence[Resource]) -> list[str]:
    replicas = {
        statefulset_name(item): item.spec.replicas for item in items if isinstance(item, NameServer)
    }
    return [
        f"{name}-{index}"
        for name in _statefulset_names(items)
        for index in range(replicas.get(name, 1))
    ]


def _read_deaths(root: Root) -> list[dict[str, Any]]:
    """Return earlier wait statuses; a torn last line (we were killed) is not one."""
    if not root.deaths_file.exists():
        return []
    deaths = []
    for line in root.deaths_file.read_text(encoding="utf-8").splitlines():
        try:
            deaths.append(json.loads(line))
        except ValueError:
            break
    return deaths
