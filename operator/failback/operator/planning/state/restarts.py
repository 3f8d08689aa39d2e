"""Which members run with an older template than wanted, why, and in which order they go. Pure."""

from __future__ import annotations

from typing import Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.state.cluster_state import ClusterState, members
from failback.operator.planning.state.running_engine import engine_of
from failback.operator.render.shape import Member

RESTART_MEMBER: Final = "failback.dev/restart-member"
_HASH: Final = "failback.dev/restart-hash"
_RESTARTED_AT: Final = "failback.dev/restarted-at"


def is_settled(view: MemberView) -> bool:
    """Tell whether the StatefulSet controller has seen the template as it is now."""
    if view.statefulset is None:
        return False
    seen = view.statefulset.get("status", {}).get("observedGeneration", 0)
    return bool(seen >= view.statefulset["metadata"].get("generation", 0))


def reasons(view: MemberView) -> tuple[str, ...]:
    """Return why the pod of a member has to be replaced; empty when it has not.

    ``ConfigChanged``, ``ImageChanged``, ``Manual``, ``TemplateChanged`` or ``VolumeResize``.
    """
    pod, statefulset = view.pod, view.statefulset
    if pod is None or statefulset is None or pod.gated:  # it goes by itself
        return ()
    template = statefulset["spec"]["template"]
    marks = template.get("metadata", {}).get("annotations", {})
    found = []
    if pod.restart_hash != marks.get(_HASH, ""):
        found.append("ConfigChanged")
    if pod.image and pod.image != engine_of(statefulset).get("image", pod.image):
        found.append("ImageChanged")
    if pod.restarted_at != marks.get(_RESTARTED_AT, ""):
        found.append("Manual")
    newest = statefulset.get("status", {}).get("updateRevision", "")
    if not found and is_settled(view) and newest and pod.revision and pod.revision != newest:
        found.append("TemplateChanged")
    if view.claim is not None and view.claim.needs_restart:
        found.append("VolumeResize")
    return tuple(found)


def pending(state: ClusterState) -> tuple[tuple[Member, tuple[str, ...]], ...]:
    """Return the wanted members that have to be replaced, with reasons, in the order they go.

    Members that are not ready go first: replacing them takes nothing away. Then pair by pair in
    index order: slaves from the highest ordinal, the master last.
    """
    found = []
    for pair in range(state.cluster.spec.pairs):
        master = state.master_member(pair)
        for view in state.wanted(pair):
            if why := reasons(view):
                order = (view.is_ready, pair, view.ordinal == master, -view.ordinal)
                found.append((order, (pair, view.ordinal), why))
    return tuple((member, why) for _, member, why in sorted(found))


def manual_member(cluster: BrokerCluster) -> Member | None:
    """Return the member that ``failback.dev/restart-member`` names, if the cluster has it."""
    name = cluster.metadata.annotations.get(RESTART_MEMBER, "").strip()
    for pair in range(cluster.spec.pairs):
        for member in members(cluster, pair):
            if name == f"{cluster.broker_name(pair)}-{member[1]}":
                return member
    return None
