"""OffsetSnapshot: observed from the masters of the cluster that it names, and its ConfigMaps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from failback.carry.restoring import Masters, OnMaster, Pairs, chosen
from failback.kube.asynchronous import Kube
from failback.operator.brokers.peers import Peers
from failback.operator.controller.cluster_kinds import Dependencies
from failback.operator.controller.metadata_kinds import OfCluster
from failback.operator.controller.outcome import Outcome
from failback.operator.controller.passes import Decision
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.offset_snapshot import OffsetSnapshot
from failback.operator.kubernetes.store import Store, where_of
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Object, ObservedCluster
from failback.operator.planning.offsets.kept_table import read
from failback.operator.planning.offsets.snapshot_object import (
    ObservedSnapshot,
    due_at,
    expired,
    plan_offset_snapshot,
    wanted,
)
from failback.operator.planning.operations.switching.request import TYPE as SWITCH
from failback.operator.planning.plan.encoding import stored_operations
from failback.operator.planning.plan.types import Plan, RestoreOffsets
from failback.operator.planning.state.cluster_state import ClusterState
from failback.protocol.errors import FailbackError

_LATER_SECONDS: Final = 2.0


class OffsetSnapshotKind(OfCluster):
    """OffsetSnapshot."""

    def __init__(self, dependencies: Dependencies, store: Store, kube: Kube, peers: Peers) -> None:
        super().__init__(dependencies, store)
        self._kube = kube
        self._peers = peers
        self._written: dict[tuple[str, str], str] = {}
        """The restore that was written last, by resource."""

    async def decide(self, resource: Object) -> Decision:
        """Observe and plan."""
        model = OffsetSnapshot.model_validate(resource)
        status: Mapping[str, Any] = resource.get("status", {})
        later = Decision(Plan(status=status, wake_after=_LATER_SECONDS), {})
        name = model.spec.cluster_ref.name
        item = self._store.resource("BrokerCluster", model.namespace, name)
        if item is not None and self._is_too_early(model.namespace, name):
            return later
        masters: Masters | None = None
        try:
            if item is not None:
                masters = masters_of(*await self._look_at(item))
        except ValidationError:  # the cluster's own status says so; nothing is known of it
            return later
        now, due = self._dependencies.clock(), due_at(model, status)
        if due is not None and due <= now:
            for master in (masters or {}).values():
                self._peers.ask_soon(master.address)
        kept = await self._kept(model, status)
        if model.spec.restore is not None and kept is not None and masters is not None:
            about = chosen(kept, model.spec.restore.groups)
            asked = await asyncio.gather(
                *(self._asked(each, about, pair) for pair, each in masters.items())
            )
            masters = dict(zip(masters, asked, strict=True))
        observed = ObservedSnapshot(
            masters,
            kept,
            await self._config_maps(model.namespace, expired(model, status)),
            self._written.get((model.namespace, model.name), ""),
        )
        plan = plan_offset_snapshot(model, status, observed, now)
        return Decision(plan, {})

    async def _asked(self, master: OnMaster, kept: Pairs, pair: str) -> OnMaster:
        """Ask a master for what a restore needs to know."""
        if not master.address or pair not in kept:
            return master
        try:
            seen = await self._peers.look_at(master.address, kept[pair])
        except (FailbackError, TimeoutError):
            return replace(master, offsets=None)
        return master if seen.problems else seen.master

    async def _kept(self, model: OffsetSnapshot, status: Mapping[str, Any]) -> Pairs | None:
        entry = wanted(model, status)
        if entry is None:
            return None
        return read(await self._kube.get("ConfigMap", model.namespace, str(entry["configMap"])))

    async def _config_maps(self, namespace: str, names: Sequence[str]) -> dict[str, Object]:
        found = {name: await self._kube.get("ConfigMap", namespace, name) for name in names}
        return {name: item for name, item in found.items() if item is not None}

    def after(self, resource: Object, plan: Plan, outcome: Outcome) -> None:
        """Remember the restore that was written and read back; show the gauges."""
        where = where_of(resource)
        orders = [each for each in plan.actions if isinstance(each, RestoreOffsets)]
        if orders:
            self._written[where] = orders[0].id if outcome.ok else ""
        self._dependencies.metrics.show(resource["kind"], *where, plan.status)

    def forget(self, namespace: str, name: str) -> None:
        """Drop what is remembered."""
        self._written.pop((namespace, name), None)


def masters_of(cluster: BrokerCluster, observed: ObservedCluster) -> dict[str, OnMaster]:
    """Return the one process of each pair that says it is master, by broker name.

    A pair whose roles are being switched has none: what it holds now is about to move.
    """
    state = ClusterState.of(cluster, cluster.status, observed, observed.at)
    running = stored_operations(cluster.status)
    switching = {each.get("pair") for each in running if each["type"] == SWITCH}
    found = {}
    for index in range(cluster.spec.pairs):
        broker = state.master(index).broker
        known = facts.says_master(broker) and not state.is_contested(index)
        known = known and index not in switching
        found[cluster.broker_name(index)] = (
            OnMaster(broker.address, broker.offsets, broker.offsets_at or 0.0)
            if known and broker is not None
            else OnMaster("")
        )
    return found
