"""kopf: watches and wake-ups. The only module that imports it.

Handlers decide nothing and write nothing: an event wakes the loop of a resource, and the loop's
pass reads the store. A pass, not kopf, puts the finalizer on and takes it off.

A watch begins where its list ended, so a watch that the server has accepted is a list that has
arrived. :class:`FirstLists` notes the answers to the session's own requests and asks nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
import kopf

from failback.kube.resources import GROUP, RESOURCES
from failback.kube.shallow_json import ShallowResponse
from failback.operator.controller.loops import Key, Loops
from failback.operator.kubernetes.finalizers import FINALIZED_KINDS
from failback.operator.kubernetes.store import Store, owners_of, where_of
from failback.operator.settings import MANAGER, Settings

logger = logging.getLogger(__name__)

PLAIN_KINDS: Final = ("NameServer", "BrokerCluster", "OffsetSnapshot", "ReconsumptionReport")
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
    """Set kopf up: no log lines as events, watches of labelled children only."""
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.posting.enabled = False
    settings.scanning.disabled = not watch_crds
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 5
    settings.watching.chunk_size = 100  # kopf lists all objects in one answer without it
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
        self._register()

    def attach(self, loops: Loops) -> None:
        """Name the loops to be woken."""
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
        if key[0] in self._acting and self.exists(key):
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
            for dependent in (*FINALIZED_KINDS, "OffsetSnapshot", "ReconsumptionReport"):
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
            response_class=ShallowResponse,
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
                await self.loops.on_deleted(kind, dict(body))
            key = (kind, meta["namespace"], meta["name"])
            if kind in self._acting and type != "DELETED":
                self.loops.ensure(key)
            else:
                self.loops.wake(key)
            for other in self._touched(key, body):
                self.loops.wake(other)

    def _touched(self, key: Key, body: Mapping[str, Any]) -> list[Key]:
        """Return the resources that an event of another resource wakes."""
        kind, namespace, _ = key
        found = list(self.dependents(key))
        cluster = (body.get("spec") or {}).get("clusterRef", {}).get("name")
        if cluster and kind in ("RoleSwitch", "ChaosExperiment", "Topic"):
            found.append(("BrokerCluster", namespace, cluster))
        if kind == "BrokerCluster":  # one of them may wait for the other to go
            rivals = self._store.of_broker_names({**body})
            found += [(kind, *where_of(item)) for item in rivals]
        return found

    def _register_store(self, kind: str) -> None:
        """Have everything that a watch shows taken in before any handler hears of anything."""

        # kopf runs a plain function in a thread, beside the loop in which passes read the store.
        @kopf.index(*RESOURCES[kind], id="store", registry=self.registry)
        async def take_in(body: Mapping[str, Any], **_: Any) -> None:
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


_PATH: Final = re.compile(r"/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/([^/]+)/)?([a-z]+)")
_OK: Final = 200


class FirstLists:
    """The watches that have not begun yet."""

    def __init__(self, plurals: Iterable[str], namespaces: Collection[str]) -> None:
        """Expect a watch of each resource in each namespace; of all, where none is named."""
        self._missing = {
            (plural, namespace) for plural in plurals for namespace in (namespaces or ("",))
        }

    def problem(self) -> str:
        """Return what has not been listed yet, empty once everything has."""
        if not self._missing:
            return ""
        found = sorted({plural for plural, _ in self._missing})
        return f"not listed yet: {', '.join(found)}"

    def note(self, url: str, *, watches: bool, status: int) -> None:
        """Take note of an answer to a GET request for a path."""
        place = _PATH.fullmatch(url)
        if watches and status == _OK and place is not None:
            self._missing.discard((place[2], place[1] or ""))

    def trace(self) -> aiohttp.TraceConfig:
        """Return what a session needs, so that its answers are noted."""
        found = aiohttp.TraceConfig()
        found.on_request_end.append(self._answered)
        return found

    async def _answered(
        self,
        session: aiohttp.ClientSession,
        context: SimpleNamespace,
        answer: aiohttp.TraceRequestEndParams,
    ) -> None:
        watches = answer.url.query.get("watch") == "true"
        self.note(answer.url.path, watches=watches, status=answer.response.status)
