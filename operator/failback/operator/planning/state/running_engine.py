"""Which engine and release run, which ones an arm asks for, and which must stay. Pure.

An engine without a version runs the version of a release of Failback. When the objects are made,
that is the operator's own release. Afterwards it is the release of the existing StatefulSets, until
the resource names a version that they do not run. Otherwise every upgrade of the operator would
roll all brokers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from failback.operator.engines.catalogue import quirk
from failback.operator.kinds.base import Engine
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.planning.observed.observed import (
    MemberView,
    Object,
    ObservedCluster,
    ObservedNameServer,
)
from failback.operator.render.common import RELEASE, restarted_at
from failback.operator.render.context import Context
from failback.operator.render.nameserver import statefulset_name
from failback.operator.render.shape import Shape

APACHE_OF_ARMS: Final = "4.9.7"
"""Version of Apache's broker in an arm, where the cluster itself runs another engine."""
ACCEPT: Final = "failback.dev/accept-quirk"
STORE_UPGRADE: Final = "storeUpgrade"
"""The word by which a person accepts that a 5.x store is not read by 4.x again."""
_OVER: Final = frozenset({"Completed", "Aborted", "Failed"})
_SERVERS: Final = ("broker", "namesrv")
_OF_APACHE: Final = ("./mqbroker", "./mqnamesrv")


def running_arm(observed: ObservedCluster) -> Mapping[str, Any] | None:
    """Return the arm whose configuration is merged over the cluster's now, or ``None``."""
    for experiment in observed.experiments:
        status = experiment.get("status") or {}
        active = status.get("activeArm")
        if not active or status.get("phase") in _OVER:
            continue
        for arm in experiment.get("spec", {}).get("arms") or ():
            if arm.get("name") == active:
                return dict(arm)
    return None


def arm_engine(cluster: BrokerCluster, arm: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what an arm changes of the cluster's engine: an arm names a type, never a version."""
    kind = str((arm or {}).get("engine") or "").lower()
    if not kind:
        return {}
    if kind == "apache" and cluster.spec.engine.program != kind:
        return {"type": kind, "version": APACHE_OF_ARMS}
    return {"type": kind}


def engine_of(statefulset: Object) -> dict[str, str]:
    """Return engine type, version and image that a StatefulSet runs."""
    template = statefulset["spec"]["template"]
    containers = template.get("spec", {}).get("containers") or ()
    named = [item for item in containers if item.get("name") in _SERVERS]
    container = named[0] if named else {}
    labels = template.get("metadata", {}).get("labels", {})
    found = {
        "type": "apache" if (container.get("args") or [""])[0] in _OF_APACHE else "failback",
        "version": labels.get("app.kubernetes.io/version", ""),
    }
    if container.get("image"):
        found["image"] = container["image"]
    return found


def held_engine(
    cluster: BrokerCluster, observed: ObservedCluster, over: Mapping[str, Any]
) -> dict[str, str] | None:
    """Return the engine that must stay, or ``None``.

    A store that 5.x wrote may hold records, timer logs and reset state that 4.x does not read. So
    no way leads back from 5.x, and none leads there before a person has accepted that.
    """
    kind = str(over.get("type") or cluster.spec.engine.program)
    version = str(over.get("version") or cluster.spec.engine.version or "")
    views = [view for _, view in sorted(observed.members.items())]
    named = [engine_of(view.statefulset) for view in views if view.statefulset is not None]
    newer = [engine for engine in named if _is_v5(engine)]
    if _is_v5({"type": kind, "version": version}):
        begun = newer or any(map(has_v5_store, views)) or accepts(cluster, STORE_UPGRADE)
        return None if begun or not named else named[0]
    written = [view for view in views if has_v5_store(view)]
    ran = [dict(view.pod.engine) for view in written if view.pod is not None]
    return (newer or ran)[0] if written else None


def has_v5_store(view: MemberView) -> bool:
    """Tell whether a member's store was written by 5.x, or may have been.

    A pod runs what it was made with until it is replaced. A member that is stopped and has no claim
    has no store: a Resync wiped it.
    """
    if view.pod is not None and view.pod.engine.get("version"):
        return _is_v5(view.pod.engine)
    if view.statefulset is None:
        return False
    stopped = view.statefulset["spec"].get("replicas") == 0
    wiped = stopped and view.pod is None and view.claim is None
    return not wiped and _is_v5(engine_of(view.statefulset))


def accepts(cluster: BrokerCluster, word: str) -> bool:
    """Tell whether a person accepts a flaw of the engine, by annotation."""
    given = cluster.metadata.annotations.get(ACCEPT, "")
    return word in (each.strip() for each in given.split(","))


def _is_v5(engine: Mapping[str, str]) -> bool:
    return quirk("storeFamily", engine["type"], engine["version"]) == "v5"


def cluster_context(
    cluster: BrokerCluster, observed: ObservedCluster, shape: Shape, context: Context
) -> Context:
    """Return the context to render a cluster in.

    While an experiment's arm or a store that the wanted engine can't read decides about the
    engine, the release stays, even if the spec names another one.
    """
    found = [view.statefulset for _, view in sorted(observed.members.items()) if view.statefulset]
    engine = None if shape.engine else cluster.spec.engine
    if cluster.spec.engine.program == "apache" and any(_restarts(cluster, item) for item in found):
        return context
    return _standing(found, engine, context)


def name_server_context(
    name_server: NameServer, observed: ObservedNameServer, context: Context
) -> Context:
    """Return the context to render a NameServer in."""
    found = observed.objects.get(("StatefulSet", statefulset_name(name_server)))
    return _standing([found] if found else [], name_server.spec.engine, context)


def _standing(statefulsets: Iterable[Object], engine: Engine | None, context: Context) -> Context:
    """Return the context with the release of the first StatefulSet that names one.

    Args:
        engine: What the spec wants; ``None`` when that does not count now.
    """
    found = list(statefulsets)
    if engine is not None and any(_asks_for_another(engine, item) for item in found):
        return context
    for item in found:
        release = item["metadata"].get("annotations", {}).get(RELEASE, "")
        if release and release != context.version:
            return dataclasses.replace(context, version=release, own_version=context.version)
    return context


def _restarts(cluster: BrokerCluster, statefulset: Object) -> bool:
    """Tell whether a restart was asked for that the template lacks: of Apache's pods it takes the
    tools of this release along, and changes no engine."""
    marks = statefulset["spec"]["template"]["metadata"].get("annotations", {})
    return any(marks.get(key) != wanted for key, wanted in restarted_at(cluster).items())


def _asks_for_another(wanted: Engine, statefulset: Object) -> bool:
    return wanted.version is not None and wanted.version != engine_of(statefulset)["version"]
