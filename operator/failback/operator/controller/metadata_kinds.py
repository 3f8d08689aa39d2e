"""Topic, SubscriptionGroup and RoleSwitch: kinds that live on a cluster's brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from failback.operator.controller.cluster_kinds import Dependencies
from failback.operator.controller.outcome import Outcome
from failback.operator.controller.passes import Decision
from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.role_switch import RoleSwitch
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.kinds.topic import Topic
from failback.operator.kubernetes.store import Store, where_of
from failback.operator.planning.metadata.group import plan_group
from failback.operator.planning.metadata.topic import plan_topic
from failback.operator.planning.observed.observed import Object, ObservedCluster
from failback.operator.planning.plan.types import Plan
from failback.operator.planning.role_switch.switch_object import plan_role_switch

_FIRST_ANSWERS_SECONDS = 60.0
"""An operator that has just started lets a resource be for so long, until brokers were asked."""
_UNASKED_SECONDS = 1.0
_UNREADABLE_SECONDS = 15.0
"""How long a resource waits for a cluster whose spec can't be read to be mended."""

Model = TypeVar("Model", bound=Resource)
Planner = Callable[..., Plan]


class OfCluster:
    """A kind that is planned from the observation of the cluster it names."""

    def __init__(self, dependencies: Dependencies, store: Store) -> None:
        self._dependencies = dependencies
        self._store = store
        self._began = dependencies.stable()

    async def refresh(self, resource: Object) -> bool:
        """Nothing: the loop of the cluster asks its brokers, and wakes this one."""
        return False

    def _is_too_early(self, namespace: str, cluster: str) -> bool:
        """Tell whether nothing is known yet: a broker that was not asked is not down."""
        young = self._dependencies.stable() - self._began < _FIRST_ANSWERS_SECONDS
        return young and not self._dependencies.observer.has_asked(namespace, cluster)

    async def _look_at(self, item: Object) -> tuple[BrokerCluster, ObservedCluster]:
        """Return a stored cluster and everything that is seen of it.

        Raises:
            ValidationError: Its spec can't be read.
        """
        cluster, _ = self._dependencies.observer.decoded(item)
        context = await self._dependencies.context(cluster.namespace)
        return cluster, await self._dependencies.observe(cluster, context, cluster.status)


class OnCluster(OfCluster, Generic[Model]):
    """A kind that lives on the brokers of a cluster."""

    def __init__(
        self, dependencies: Dependencies, store: Store, model: type[Model], planner: Planner
    ) -> None:
        super().__init__(dependencies, store)
        self._model = model
        self._planner = planner
        self._refused: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}

    async def decide(self, resource: Object) -> Decision:
        """Plan from what the cluster's brokers and name servers answered last."""
        model = self._model.model_validate(resource)
        namespace = model.namespace
        now = self._dependencies.clock()
        observed, cluster, status = ObservedCluster(at=now), None, resource.get("status", {})
        name = resource["spec"]["clusterRef"]["name"]
        item = self._store.resource("BrokerCluster", namespace, name)
        if item is not None and self._is_too_early(namespace, name):
            return Decision(Plan(status=status, wake_after=_UNASKED_SECONDS), {})
        if item is not None:
            try:
                cluster, observed = await self._look_at(item)
            except ValidationError:  # the cluster's own status says so; nothing is known of it
                return Decision(Plan(status=status, wake_after=_UNREADABLE_SECONDS), {})
        refused = self._refusals(namespace, model)
        plan = self._planner(
            model,
            status,
            replace(observed, refused=refused),
            cluster,
            now,
            deleting="deletionTimestamp" in resource["metadata"],
        )
        return Decision(plan, observed.objects)

    def _refusals(self, namespace: str, model: Model) -> dict[str, str]:
        """Return what brokers refused for good since the spec changed last."""
        generation, found = self._refused.get((namespace, model.name), (0, {}))
        return dict(found) if generation == model.metadata.generation else {}

    def after(self, resource: Object, plan: Plan, outcome: Outcome) -> None:
        """Remember refusals; show the gauges."""
        where = where_of(resource)
        if outcome.refused:
            generation = resource["metadata"].get("generation", 1)
            before = self._refused.get(where, (0, {}))
            kept = before[1] if before[0] == generation else {}
            self._refused[where] = (generation, {**kept, **outcome.refused})
        mode = resource["spec"].get("mode", "Planned") if resource["kind"] == "RoleSwitch" else ""
        self._dependencies.metrics.show(resource["kind"], *where, plan.status, mode=mode)
        if resource["kind"] == "RoleSwitch":
            self._note_outage(resource, plan.status)

    def _note_outage(self, resource: Object, status: Mapping[str, Any]) -> None:
        """Record the outages of a switch in the pass in which it ends."""
        before = resource.get("status", {})
        for field, side in (("writeOutageSeconds", "write"), ("readOutageSeconds", "read")):
            if field in status and field not in before:
                mode = resource["spec"].get("mode", "Planned")
                self._dependencies.metrics.role_switch_outage(mode, side, float(status[field]))

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered."""
        self._refused.pop((namespace, name), None)


def kinds_on_cluster(dependencies: Dependencies, store: Store) -> dict[str, OnCluster[Any]]:
    """Return the kinds that live on brokers, by their names."""
    return {
        "Topic": OnCluster(dependencies, store, Topic, plan_topic),
        "SubscriptionGroup": OnCluster(dependencies, store, SubscriptionGroup, plan_group),
        "RoleSwitch": OnCluster(dependencies, store, RoleSwitch, plan_role_switch),
    }
