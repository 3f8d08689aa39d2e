"""Which engine release is rendered where none is named: a newer operator restarts nothing. Pure.

An engine without a version runs the version of a release. That of the operator holds when the
objects are made. Afterwards it is that of the existing StatefulSets, until the resource names a
version that they do not run. Otherwise every upgrade of the operator would roll all brokers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from failback.operator.kinds.base import Engine
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.planning.observed.observed import Object, ObservedCluster, ObservedNameServer
from failback.operator.planning.state.running_engine import engine_of
from failback.operator.render.common import RELEASE
from failback.operator.render.context import Context
from failback.operator.render.nameserver import statefulset_name
from failback.operator.render.shape import Shape


def cluster_context(
    cluster: BrokerCluster, observed: ObservedCluster, shape: Shape, context: Context
) -> Context:
    """Return the context to render a cluster in.

    While an experiment's arm or a store that the wanted engine can't read decides about the
    engine, the release stays whatever the spec says.
    """
    found = [view.statefulset for _, view in sorted(observed.members.items()) if view.statefulset]
    engine = None if shape.engine else cluster.spec.engine
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
            return dataclasses.replace(context, version=release)
    return context


def _asks_for_another(wanted: Engine, statefulset: Object) -> bool:
    return wanted.version is not None and wanted.version != engine_of(statefulset)["version"]
