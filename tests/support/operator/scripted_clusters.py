"""The same life of three clusters, lived in a namespace as often as one wants, to compare its ends.

Three BrokerClusters of one NameServer live at the same time under one operator: ``orders`` is
configured (live and by a roll), ``stock`` is scaled up and down, ``ledger`` switches roles. After
each change, when everything has settled, what there is of the cluster is noted without what
differs between any two lives: :attr:`Life.ends`.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from failback.client.admin.admin import AdminClient
from failback.protocol.errors import FailbackError
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.canonical_objects import canonical
from tests.support.operator.operator_process import condition_of
from tests.support.operator.resources import resource

SETTLED: Final = (
    "Ready",
    "ConfigApplied",
    "RolesConsistent",
    "ReplicationHealthy",
    "MetadataSynced",
)
_TIMES: Final = frozenset({"lastTransitionTime", "startedAt", "finishedAt", "stepStartedAt"})
_OWN: Final = frozenset({"claimUid", "masterClaim", "restartHash", "appliedConfig", "restarts"})
"""Of status: what holds a uid or a hash over the namespace's name."""
_RESTART_HASH: Final = "failback.dev/restart-hash"
_ADDRESS: Final = re.compile(r"127\.\d+\.\d+\.\d+")
_STEADY_SECONDS: Final = 1.0

Ends = dict[tuple[str, str], Any]
"""Cluster and change → what there was when it had settled."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a user does to a cluster, and when it is done beyond being settled."""

    name: str
    make: Callable[[Namespace, str], object]
    is_done: Callable[[Namespace, str], bool] = lambda namespace, cluster: True


def cluster_manifest(name: str, **spec: Any) -> Object:
    values = {
        "nameServerRef": {"name": "main"},
        "pairs": 1,
        "slavesPerPair": 1,
        "updateStrategy": {"minReadySeconds": 1},
        **spec,
    }
    return resource("BrokerCluster", name, **values)


# --- changes ------------------------------------------------------------------------------------


def create(namespace: Namespace, cluster: str) -> None:
    namespace.api.create(cluster_manifest(cluster))


def name_things(namespace: Namespace, cluster: str) -> None:
    reference = {"name": cluster}
    namespace.api.create(resource("Topic", f"{cluster}-paid", clusterRef=reference))
    namespace.api.create(resource("SubscriptionGroup", f"{cluster}-billing", clusterRef=reference))


def things_synced(namespace: Namespace, cluster: str) -> bool:
    found = [
        namespace.api.get("Topic", f"{cluster}-paid"),
        namespace.api.get("SubscriptionGroup", f"{cluster}-billing"),
    ]
    return all(_is_true(item, kind) for item in found for kind in ("Ready", "Synced"))


def change_spec(**values: Any) -> Callable[[Namespace, str], object]:
    return lambda namespace, cluster: namespace.api.patch(
        "BrokerCluster", cluster, {"spec": values}
    )


def _add_by_hand(namespace: Namespace, cluster: str) -> None:
    """Make a topic and a group that no resource names, and store offsets; then grow."""
    asyncio.run(_by_hand(master_address(namespace, cluster)))
    change_spec(pairs=2)(namespace, cluster)


def _switch(namespace: Namespace, cluster: str) -> None:
    asyncio.run(_by_hand(master_address(namespace, cluster)))
    spec = {"clusterRef": {"name": cluster}, "pair": f"{cluster}-0", "targetMember": 1}
    # An operator that is killed again and again has nothing to begin on for long.
    namespace.api.create(resource("RoleSwitch", f"{cluster}-swap", **spec, timeoutSeconds=7200))


def is_switched(namespace: Namespace, cluster: str) -> bool:
    status = namespace.api.get("RoleSwitch", f"{cluster}-swap").get("status", {})
    assert status.get("phase") != "Failed", status
    return bool(status.get("phase") == "Complete")


def _pairs(count: int) -> Callable[[Namespace, str], bool]:
    def reached(namespace: Namespace, cluster: str) -> bool:
        status = namespace.api.get("BrokerCluster", cluster)["status"]
        return bool(status["replicas"] == count == len(status["pairs"]))

    return reached


async def _by_hand(address: str) -> None:
    async with AdminClient() as admin:
        await admin.create_topic(address, TopicConfig("BY_HAND", 4, 4))
        await admin.create_group(address, SubscriptionGroupConfig("BY_HAND"))
        for queue in range(4):
            await admin.update_offset(address, "BY_HAND", "BY_HAND", queue, 100 + queue)


CREATE: Final = Change("create", create)
SCRIPTS: Final[Mapping[str, tuple[Change, ...]]] = {
    "orders": (
        CREATE,
        Change("topic and group", name_things, things_synced),
        Change("live change", change_spec(slaveReadEnable=True)),
        Change("roll", change_spec(config={"flushConsumerOffsetInterval": "4000"})),
    ),
    "stock": (
        CREATE,
        Change("scale up", _add_by_hand, _pairs(2)),
        Change("scale down", change_spec(pairs=1), _pairs(1)),
    ),
    "ledger": (CREATE, Change("role switch", _switch, is_switched)),
}


# --- one life -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Progress:
    at: int = -1
    candidate: Any = None
    since: float = 0.0


@dataclass
class Life:
    """One life; :meth:`step` it until :attr:`over`."""

    namespace: Namespace
    scripts: Mapping[str, tuple[Change, ...]] = field(default_factory=lambda: SCRIPTS)
    ends: Ends = field(default_factory=dict)
    pods: dict[str, set[str]] = field(default_factory=dict)
    """Pod name → uids seen under it."""
    clusters_of: dict[str, str] = field(default_factory=dict)
    """Address of a pod → its cluster."""
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._progress = {cluster: _Progress() for cluster in self.scripts}
        self._began = time.monotonic()

    def begin(self) -> None:
        """Create the name server and make the first change of every cluster."""
        self.namespace.api.create(resource("NameServer", "main", replicas=1))
        for cluster in self.scripts:
            self._next(cluster)

    @property
    def over(self) -> bool:
        return all(found.at == len(self.scripts[name]) for name, found in self._progress.items())

    def change_of(self, cluster: str) -> str:
        """Return the name of the change that a cluster is going through."""
        progress = self._progress.get(cluster)
        if progress is None or not 0 <= progress.at < len(self.scripts[cluster]):
            return ""
        return self.scripts[cluster][progress.at].name

    def step(self) -> None:
        """Look; where a change has settled, note its end and make the next one."""
        for pod in self.namespace.api.list("Pod"):
            self.pods.setdefault(pod["metadata"]["name"], set()).add(pod["metadata"]["uid"])
            cluster = pod["metadata"]["labels"].get("failback.dev/cluster", "")
            if address := pod["status"].get("podIP"):
                self.clusters_of[address] = cluster
        for cluster, progress in self._progress.items():
            if progress.at < len(self.scripts[cluster]):
                self._look(cluster, progress)

    def where(self) -> str:
        """Say what the clusters wait for, for a test that gives up."""
        found = []
        for cluster in self.scripts:
            item = self.namespace.api.find("BrokerCluster", cluster) or {}
            status = item.get("status", {})
            false = [
                f"{entry['type']}={entry['reason']}: {entry['message']}"
                for entry in status.get("conditions") or ()
                if entry["type"] in SETTLED and entry["status"] != "True"
            ]
            text = f"{cluster} at {self.change_of(cluster) or 'its end'}"
            found.append(f"{text}: {false} {status.get('currentOperation')}")
        return "\n".join(found)

    def _look(self, cluster: str, progress: _Progress) -> None:
        change = self.scripts[cluster][progress.at]
        if not (is_settled(self.namespace, cluster) and change.is_done(self.namespace, cluster)):
            progress.candidate = None
            return
        try:
            found = snapshot(self.namespace, cluster)
        except Unsettled:
            progress.candidate = None
            return
        now = time.monotonic()
        if found != progress.candidate:
            progress.candidate, progress.since = found, now
        elif now - progress.since >= _STEADY_SECONDS:
            self.ends[cluster, change.name] = found
            self.seconds[cluster, change.name] = now - self._began
            self._next(cluster)

    def _next(self, cluster: str) -> None:
        progress = self._progress[cluster]
        progress.at += 1
        progress.candidate = None
        if progress.at == len(self.scripts[cluster]):
            return
        self.scripts[cluster][progress.at].make(self.namespace, cluster)


# --- what there is ------------------------------------------------------------------------------


class Unsettled(Exception):
    """Something went away while it was looked at."""


def is_settled(namespace: Namespace, cluster: str) -> bool:
    """Tell whether the operator says that nothing is left to do."""
    item = namespace.api.find("BrokerCluster", cluster)
    if item is None or "status" not in item:
        return False
    status = item["status"]
    return (
        all(_is_true(item, kind) for kind in SETTLED)
        and not _is_true(item, "Reconciling")
        and status.get("observedGeneration") == item["metadata"]["generation"]
        and not status.get("currentOperation")
    )


def _is_true(item: Object, kind: str) -> bool:
    return bool(condition_of(item, kind).get("status") == "True")


def master_address(namespace: Namespace, cluster: str) -> str:
    """Return where the master of a cluster's first pair is."""
    status = namespace.api.get("BrokerCluster", cluster)["status"]
    members = status["pairs"][0]["members"]
    found = [item["address"] for item in members if item["observedRole"] != "SLAVE"]
    return str(found[0])


def snapshot(namespace: Namespace, cluster: str) -> dict[str, Any]:
    """Return objects, status and the brokers' own answers, as in any other namespace."""
    item = namespace.api.get("BrokerCluster", cluster)
    found: dict[str, Any] = {
        "objects": objects_of(namespace, cluster),
        "spec": item["spec"],
        "status": _without(item["status"], _TIMES | _OWN),
    }
    for kind in ("Topic", "SubscriptionGroup", "RoleSwitch"):
        for other in namespace.api.list(kind):
            if other["spec"]["clusterRef"]["name"] == cluster:
                name = f"{kind}/{other['metadata']['name']}"
                found[name] = _without(other.get("status", {}), _TIMES | _OWN)
                for measured in ("writeOutageSeconds", "readOutageSeconds", "steps"):
                    found[name].pop(measured, None)
    try:
        found["brokers"] = asyncio.run(_answers(item["status"]))
    except (FailbackError, OSError) as error:
        raise Unsettled(str(error)) from error
    return comparable(namespace, found)


def objects_of(namespace: Namespace, cluster: str) -> dict[str, Any]:
    """Return a cluster's rendered objects, by kind and name."""
    return {
        key: _without(value, frozenset({_RESTART_HASH}))
        for key, value in canonical(namespace).items()
        if key.partition("/")[2].partition("-")[0] == cluster
    }


def comparable(namespace: Namespace, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same without the namespace's name and the addresses of its pods."""
    text = json.dumps(found, sort_keys=True).replace(namespace.name, "NAMESPACE")
    return dict(json.loads(_ADDRESS.sub("ADDRESS", text)))


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return where two snapshots differ, one line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        found: list[str] = []
        for key in sorted({*one, *other}):
            found += differences(one.get(key), other.get(key), f"{path}/{key}")
        return found
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for at, (a, b) in pairs for line in differences(a, b, f"{path}/{at}")]
    return [] if one == other else [f"{path}: {one!r} is not {other!r}"]


def _without(value: Any, keys: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(inner, keys) for key, inner in value.items() if key not in keys}
    if isinstance(value, list):
        return [_without(inner, keys) for inner in value]
    return value


async def _answers(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every member says to 26, 21, 201 and 43."""
    found = {}
    async with AdminClient(timeout_ms=3000) as admin:
        for pair in status["pairs"]:
            for member in pair["members"]:
                address = member["address"]
                topics = (await admin.all_topic_config(address)).topic_config_table
                groups = (await admin.all_groups(address)).subscription_group_table
                found[address] = {
                    "config": await admin.broker_config(address),
                    "topics": msgspec.to_builtins(topics),
                    "groups": msgspec.to_builtins(groups),
                    "offsets": msgspec.to_builtins(await admin.all_offsets(address)),
                }
    return found
