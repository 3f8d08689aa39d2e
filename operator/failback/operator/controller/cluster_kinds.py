"""The kinds: how each is refreshed, observed and planned. Thin; decisions are in planning."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from failback.operator.brokers.figures import ClusterFigures, PairFigures
from failback.operator.controller.clock import Deadlines
from failback.operator.controller.observe import Observer
from failback.operator.controller.outcome import NameTaken, Outcome
from failback.operator.controller.passes import Decision
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.kubernetes.store import where_of
from failback.operator.metrics import Metrics
from failback.operator.planning.cluster.cluster import plan_cluster
from failback.operator.planning.nameserver.name_server import plan_name_server
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Object, ObservedCluster
from failback.operator.planning.plan.memory import Memory, Shared
from failback.operator.planning.plan.types import Plan
from failback.operator.planning.state import instants
from failback.operator.render.context import Context, kubernetes_context
from failback.operator.settings import Settings


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What all kinds share."""

    settings: Settings
    observer: Observer
    metrics: Metrics
    clock: Callable[[], float] = time.time
    stable: Callable[[], float] = time.time
    """The clock of the observer: it does not jump when the other one is set."""
    contexts: dict[tuple[str, bool], Context] = field(default_factory=dict)
    shared: Shared = field(default_factory=Shared)
    """Where equal parts of all objects are kept once."""

    async def context(self, namespace: str) -> Context:
        """Return where the objects of a namespace will live; one object per answer."""
        monitors = "PodMonitor" in await self.observer.served_kinds()
        found = self.contexts.get((namespace, monitors))
        if found is None:
            settings = self.settings
            found = replace(
                kubernetes_context(
                    namespace, settings.version, domain=settings.domain, pod_monitors=monitors
                ),
                images=dict(settings.images),
                permits=settings.permits,
            )
            self.contexts[namespace, monitors] = found
        return found

    def ahead(self) -> float:
        """Return by how many seconds the wall clock is ahead of the stable one."""
        return self.clock() - self.stable()

    async def observe(
        self, cluster: BrokerCluster, context: Context, status: Mapping[str, Any]
    ) -> ObservedCluster:
        """Return everything a pass over a cluster sees, in times of the wall clock."""
        observed = await self.observer.observe_cluster(cluster, context, status)
        return instants.shifted(observed, self.ahead())


class NameServerKind:
    """NameServer."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    async def refresh(self, resource: Object) -> bool:
        """Ask the name servers whether they answer."""
        model = NameServer.model_validate(resource)
        context = await self._dependencies.context(model.namespace)
        return await self._dependencies.observer.refresh_name_server(model, context)

    async def decide(self, resource: Object) -> Decision:
        """Observe and plan."""
        model = NameServer.model_validate(resource)
        context = await self._dependencies.context(model.namespace)
        observed = await self._dependencies.observer.observe_name_server(model, context)
        status = resource.get("status", {})
        plan = plan_name_server(model, status, observed, context, self._dependencies.clock())
        return Decision(plan, observed.objects)

    def after(self, resource: Object, plan: Plan, outcome: Outcome) -> None:
        """Remember names that are taken; show the gauges."""
        namespace, name = where_of(resource)
        if isinstance(outcome.error, NameTaken):
            memory = self._dependencies.observer.memory(namespace, f"nameserver/{name}")
            memory.foreign.add(outcome.error.key)
        self._dependencies.metrics.show("NameServer", namespace, name, plan.status)

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered."""
        self._dependencies.observer.forget(namespace, f"nameserver/{name}")


class BrokerClusterKind:
    """BrokerCluster."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._observed: dict[tuple[str, str], ObservedCluster] = {}
        self._memories: dict[tuple[str, str], Memory] = {}
        self._models: dict[tuple[str, str], tuple[str, BrokerCluster]] = {}
        self._refused: dict[tuple[str, str], str] = {}
        """Why the stored spec of a cluster can't be read."""
        self._deadlines: dict[tuple[str, str], Deadlines] = {}
        self._figures: dict[tuple[str, str], PairFigures] = {}

    def _model(self, resource: Object) -> BrokerCluster:
        """Return the decoded resource; decoded once per resourceVersion."""
        where, version = where_of(resource), resource["metadata"]["resourceVersion"]
        known = self._models.get(where)
        if known is None or known[0] != version:
            model, refused = self._dependencies.observer.decoded(resource)
            self._models[where] = known = (version, model)
            self._refused[where] = refused
        return known[1]

    async def refresh(self, resource: Object) -> bool:
        """Ask name servers and brokers what is due."""
        model = self._model(resource)
        context = await self._dependencies.context(model.namespace)
        status = resource.get("status", {})
        return await self._dependencies.observer.refresh_cluster(model, context, status)

    async def decide(self, resource: Object) -> Decision:
        """Observe and plan."""
        model = self._model(resource)
        context = await self._dependencies.context(model.namespace)
        where, stored = (model.namespace, model.name), resource.get("status", {})
        observed = await self._dependencies.observe(model, context, stored)
        self._observed[where] = observed
        memory = self._memories.setdefault(where, Memory(shared=self._dependencies.shared))
        deadlines = self._deadlines.setdefault(where, Deadlines())
        now, ahead = self._dependencies.clock(), self._dependencies.ahead()
        status = deadlines.kept(stored, ahead)
        refused = self._refused.get(where, "")
        plan = plan_cluster(model, status, observed, context, now, memory, refused)
        deadlines.note(stored, plan.status, ahead)
        return Decision(plan, observed.objects)

    def after(self, resource: Object, plan: Plan, outcome: Outcome) -> None:
        """Remember names that are taken; show the gauges."""
        where = where_of(resource)
        if isinstance(outcome.error, NameTaken):
            self._dependencies.observer.memory(*where).foreign.add(outcome.error.key)
        observed = self._observed.pop(where, None)
        if observed is not None:
            model = self._model(resource)
            cluster = ClusterFigures(model.cluster_name, model.spec.engine.program == "apache")
            self._show(where, cluster, plan.status, observed)

    def _show(
        self,
        where: tuple[str, str],
        cluster: ClusterFigures,
        status: Mapping[str, Any],
        observed: ObservedCluster,
    ) -> None:
        members: list[tuple[int, int, int | None, int | None]] = []
        masters: dict[int, int] = {}
        known = self._figures.setdefault(where, PairFigures())
        for pair in status.get("pairs") or ():
            index, name = pair["index"], pair["name"]
            own = facts.claims_to_be_master(observed, index)
            foreign = facts.foreign_addresses(observed, index, name, ids=(0,))
            masters[index] = len(own) + len(foreign)
            master = observed.member(index, pair.get("masterMember", 0)).broker
            for (at, ordinal), view in observed.members.items():
                if at != index or ordinal == pair.get("masterMember", 0):
                    continue
                compared = facts.compare_metadata(master, view.broker)
                ahead = compared.ahead_messages if compared is not None else None
                lag = known.lag_bytes((index, ordinal), master, view.broker)
                members.append((index, ordinal, lag, ahead))
        figures = known.look(cluster, status, observed, self._dependencies.clock())
        self._dependencies.metrics.show("BrokerCluster", *where, status, members, masters, figures)

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered."""
        self._models.pop((namespace, name), None)
        self._refused.pop((namespace, name), None)
        self._memories.pop((namespace, name), None)
        self._deadlines.pop((namespace, name), None)
        self._figures.pop((namespace, name), None)
        self._dependencies.observer.forget(namespace, name)
