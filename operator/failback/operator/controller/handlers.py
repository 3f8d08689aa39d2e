"""kopf: watches and wake-ups. The only module that imports it.

Handlers decide nothing and write nothing: an event wakes the loop of a resource, and the loop's
pass reads the store. Kinds whose deletion asks for work have a finalizer, which kopf adds and takes
off, and a daemon, whose task the loop runs in. The others have a plain task and vanish when they
are deleted. A resource that was deleted while no operator ran gets no daemon from kopf: its end has
a task of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import aiohttp
import kopf

from failback.kube.resources import GROUP, RESOURCES
from failback.operator.controller.loops import Key, Loops
from failback.operator.kinds.base import FINALIZER
from failback.operator.kubernetes.first_lists import FirstLists
from failback.operator.kubernetes.store import Store, owners_of
from failback.operator.settings import MANAGER, Settings

logger = logging.getLogger(__name__)

PLAIN_KINDS: Final = ("NameServer", "BrokerCluster", "ReconsumptionReport")
FINALIZED_KINDS: Final = ("Topic", "SubscriptionGroup", "RoleSwitch", "ChaosExperiment")
_CHILDREN: Final[Mapping[str, str]] = {
    "StatefulSet": "app.kubernetes.io/name=failback",
    "Service": "app.kubernetes.io/name=failback",
    "ConfigMap": "app.kubernetes.io/name=failback",
    "PodDisruptionBudget": "app.kubernetes.io/name=failback",
    "Pod": "app.kubernetes.io/name=failback",
    "Job": "app.kubernetes.io/name=failback",
    "PersistentVolumeClaim": "failback.dev/cluster",
}
"""Kind → label selector of the watch."""
WATCHED: Final[Mapping[str, str]] = {
    **dict.fromkeys((*PLAIN_KINDS, *FINALIZED_KINDS), ""),
    **_CHILDREN,
}
"""The same, custom resources among them; empty = all objects."""
DELETION_SECONDS: Final[Mapping[str, float]] = {"ChaosExperiment": 300.0}
_DELETION_SECONDS: Final = 60.0
_END_POLL_SECONDS: Final = 1.0
_END_WAIT_SECONDS: Final = 2.0
"""How long the handler of a deletion waits before it lets other events of the resource pass."""


class _NoDiffBase(kopf.DiffBaseStorage):
    """No handler asks what changed, so no copy is made of any object to tell it."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return what is compared: nothing."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Return what was there before: nothing."""

    def store(self, **_: Any) -> None:
        """Remember nothing."""


def configure(settings: kopf.OperatorSettings, *, watch_crds: bool) -> None:
    """Set kopf up: no log lines as events, our finalizer, watches of labelled children only."""
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.posting.enabled = False
    settings.scanning.disabled = not watch_crds
    settings.background.cancellation_polling = 5
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 5
    settings.queueing.exit_timeout = 1
    settings.process.ultimate_exiting_timeout = 15
    for kind, selector in _CHILDREN.items():
        group, _, plural = RESOURCES[kind]
        settings.watching.label_selectors[_selector(group, plural)] = selector


def _selector(group: str, plural: str) -> Any:
    return (group, plural)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Session(kopf.AiohttpSession):
    """A session of ours; equal credentials make equal ones: kopf tries what failed only once."""

    aiohttp_session: aiohttp.ClientSession = dataclasses.field(compare=False)
    credentials: kopf.ConnectionInfo


def _credentials(**given: Any) -> kopf.ConnectionInfo | None:
    """Return the credentials of the pod, else those of the kubeconfig; asked again at 401."""
    found = kopf.login_with_service_account(**given)
    if found is None:
        return kopf.login_with_kubeconfig(**given)
    # kopf asks DNS for kubernetes.default.svc; every pod has the address, DNS or not.
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return found
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return dataclasses.replace(found, server=server)


class Watches:
    """The handlers of one operator process."""

    def __init__(self, store: Store, settings: Settings, acting: Collection[str]) -> None:
        """Register the handlers; loops run for the ``acting`` kinds only."""
        self._store = store
        self._acting = frozenset(acting)
        self._settings = settings
        self.registry = kopf.OperatorRegistry()
        kinds = (*PLAIN_KINDS, *FINALIZED_KINDS, *_CHILDREN)
        self.first_lists = FirstLists((RESOURCES[kind][2] for kind in kinds), settings.namespaces)
        self._loops: Loops | None = None
        self._with_daemon: set[str] = set()
        """The uids whose daemon runs, or has carried out the end."""
        self._ends: dict[str, asyncio.Task[None]] = {}
        """By uid: the end of a resource that has no daemon."""
        self._register()

    def attach(self, loops: Loops) -> None:
        """Say who is to be woken."""
        self._loops = loops

    @property
    def loops(self) -> Loops:
        """The loops that events wake."""
        assert self._loops is not None
        return self._loops

    def exists(self, key: Key) -> bool:
        """Tell whether the watches show a resource."""
        return self._store.resource(*key) is not None

    def notice(self, key: Key) -> None:
        """Give a resource a reason to look; start its loop if its first event was missed."""
        if key[0] in self._acting.intersection(PLAIN_KINDS) and self.exists(key):
            self.loops.ensure(key)
        else:
            self.loops.wake(key)

    def dependents(self, key: Key) -> Iterable[Key]:
        """Return the resources that a change of this one, or of its peers, concerns."""
        kind, namespace, name = key
        if kind == "NameServer":
            for item in self._store.resources("BrokerCluster", namespace):
                reference = item.get("spec", {}).get("nameServerRef") or {}
                if reference.get("name") == name:
                    yield "BrokerCluster", namespace, item["metadata"]["name"]
        elif kind == "BrokerCluster":
            for dependent in (*FINALIZED_KINDS, "ReconsumptionReport"):
                for item in self._store.of_cluster(dependent, namespace, name):
                    yield dependent, namespace, item["metadata"]["name"]
        elif kind == "ChaosExperiment":
            for item in self._store.resources("ReconsumptionReport", namespace):
                yield "ReconsumptionReport", namespace, item["metadata"]["name"]

    # --- registration -------------------------------------------------------------------------

    def _register(self) -> None:
        kopf.on.startup(registry=self.registry)(self._startup)
        kopf.on.login(registry=self.registry)(self._log_in)
        for kind in (*PLAIN_KINDS, *FINALIZED_KINDS):
            self._register_resource(kind)
        for kind in _CHILDREN:
            self._register_child(kind)

    async def _startup(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings, watch_crds=self._settings.watch_crds)

    async def _log_in(self, **given: Any) -> _Session | None:
        """Return a session that notes which watches have begun."""
        found = _credentials(**given)
        if found is None:
            return None
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=found.as_ssl_context()),
            headers={**found.as_http_headers(), "User-Agent": MANAGER},
            proxy=found.proxy_url,
            trust_env=found.trust_env,
            trace_configs=[self.first_lists.trace()],
        )
        return _Session(
            server=found.server,
            default_namespace=found.default_namespace,
            priority=found.priority,
            expiration=found.expiration,
            aiohttp_session=session,
            credentials=found,
        )

    def _register_resource(self, kind: str) -> None:
        where = RESOURCES[kind]

        self._register_store(kind)

        @kopf.on.event(*where, id=f"event-{kind}", registry=self.registry)
        async def event(
            meta: Mapping[str, Any], body: Mapping[str, Any], type: str | None, **_: Any
        ) -> None:
            if type == "DELETED":
                self._store.deleted(meta["uid"])
                self._with_daemon.discard(meta["uid"])
                self._ends.pop(meta["uid"], None)
                await self.loops.on_deleted(kind, dict(body))
            key = (kind, meta["namespace"], meta["name"])
            if kind in self._acting.intersection(PLAIN_KINDS) and type != "DELETED":
                self.loops.ensure(key)
            else:
                self.loops.wake(key)
            for other in self._touched(key, body):
                self.loops.wake(other)

        if kind in self._acting.intersection(FINALIZED_KINDS):

            @kopf.daemon(
                *where,
                id="loop",
                registry=self.registry,
                # kopf looks whether the daemon has ended only when this time is over: with a
                # backoff of minutes the finalizer would stay as long after an end of seconds.
                cancellation_polling=_END_POLL_SECONDS,
            )
            async def daemon(**given: Any) -> None:
                key = (kind, str(given["namespace"]), str(given["name"]))
                await self._run_daemon(key, str(given["uid"]), given["stopped"])

            @kopf.on.delete(*where, id="end", registry=self.registry)
            async def end(**given: Any) -> None:
                key = (kind, str(given["namespace"]), str(given["name"]))
                await self._end_without_daemon(key, str(given["uid"]))
                # kopf takes the finalizer off once this handler and the daemon have ended.

    def _deletion_seconds(self, kind: str) -> float:
        return DELETION_SECONDS.get(kind, _DELETION_SECONDS)

    async def _run_daemon(self, key: Key, uid: str, stopped: Any) -> None:
        """Run a resource's loop; once it is deleted, run passes until its end is carried out."""
        self._with_daemon.add(uid)
        watcher = asyncio.create_task(self._wake_when_stopped(key, stopped))
        is_over = False
        try:
            await self.loops.run_inline(key, lambda: bool(stopped))
            if kopf.DaemonStoppingReason.RESOURCE_DELETED in (stopped.reason or ()):
                await self._end(key)
                is_over = True
        finally:
            watcher.cancel()
            if not is_over:
                self._with_daemon.discard(uid)

    async def _end_without_daemon(self, key: Key, uid: str) -> None:
        """Carry out the end of a resource whose deletion was asked for before kopf knew it.

        Raises:
            kopf.TemporaryError: It is not carried out yet; the finalizer has to stay.
        """
        if uid in self._with_daemon:
            return
        task = self._ends.get(uid)
        if task is None:
            task = self._ends[uid] = asyncio.create_task(self._end(key), name="/".join(key))
        done, _ = await asyncio.wait({task}, timeout=_END_WAIT_SECONDS)
        if not done:
            raise kopf.TemporaryError("the deletion is carried out", delay=_END_POLL_SECONDS)
        if not task.cancelled() and (error := task.exception()) is not None:
            del self._ends[uid]
            raise kopf.TemporaryError(f"the deletion failed: {error}", delay=_END_POLL_SECONDS)

    async def _wake_when_stopped(self, key: Key, stopped: Any) -> None:
        await stopped.wait()
        self.loops.wake(key)

    async def _end(self, key: Key) -> None:
        """Carry out what the deletion of a resource asks for, within the time it may take."""
        deadline = time.monotonic() + self._deletion_seconds(key[0]) - 5
        while time.monotonic() < deadline:
            passed = await self.loops.run_once(key, deleting=True)
            if passed is None or passed.finish:
                return
            await asyncio.sleep(min(2.0, passed.wake_after or 1.0))
        logger.warning("%s %s/%s: given up after its deletion", *key)

    def _touched(self, key: Key, body: Mapping[str, Any]) -> list[Key]:
        """Return the resources that an event of another resource wakes."""
        kind, namespace, _ = key
        found = list(self.dependents(key))
        cluster = (body.get("spec") or {}).get("clusterRef", {}).get("name")
        if cluster and kind in ("RoleSwitch", "ChaosExperiment", "Topic"):
            found.append(("BrokerCluster", namespace, cluster))
        return found

    def _register_store(self, kind: str) -> None:
        """Have everything that a watch shows taken in before any handler hears of anything."""

        @kopf.index(*RESOURCES[kind], id="store", registry=self.registry)
        def take_in(body: Mapping[str, Any], **_: Any) -> None:
            self._store.show({**body, "kind": kind})

    def _register_child(self, kind: str) -> None:
        where = RESOURCES[kind]

        self._register_store(kind)

        @kopf.on.event(*where, id=f"event-{kind}", registry=self.registry)
        async def event(body: Mapping[str, Any], type: str | None, **_: Any) -> None:
            if type == "DELETED":
                self._store.deleted(body["metadata"]["uid"])
            for namespace, owner, name in owners_of(body):
                self.loops.wake((owner, namespace, name))


async def watch(watches: Watches, settings: Settings, stop: asyncio.Event) -> None:
    """Run kopf until it is told to stop."""
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    cluster_wide = not settings.namespaces
    await kopf.operator(
        registry=watches.registry,
        standalone=True,
        clusterwide=cluster_wide,
        namespaces=settings.namespaces,
        stop_flag=stop,
    )
