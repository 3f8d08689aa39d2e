"""Resync: wipe a slave's volume once and let it copy its master's log again. Pure.

A person asks for it with the uid of the claim, which is gone after the first time, so that the
annotation never fires twice. Never for the master, nor while the master does not serve.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, MemberView, Object, ObservedCluster
from failback.operator.planning.operations.turn import Turn, member_label, timed
from failback.operator.planning.plan.encoding import from_time
from failback.operator.planning.plan.types import (
    Action,
    Advance,
    Delete,
    DeletePod,
    Event,
    Operation,
    ReleaseLease,
    TakeLease,
    operation_id,
)
from failback.operator.planning.state import present
from failback.operator.render.shape import Shape

TYPE: Final = "Resync"
PRIORITY: Final = 2
ABANDONABLE: Final = False

ANNOTATION: Final = "failback.dev/force-resync-member"
LEASE_SECONDS: Final = 60
RENEW_SECONDS: Final = 15
_BEFORE: Final = ("NotPaused", "NoChaosRunning", "NameServersReachable")


def cause(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster, now: float
) -> Operation | None:
    """Return a Resync of the slave whose claim the annotation names."""
    view = _named(cluster, observed)
    if view is None or refusal(cluster, status, observed) is not None:
        return None
    uid = _uid(cluster)
    return Operation(
        id=operation_id(TYPE, view.pair, cluster.metadata.generation, uid),
        type=TYPE,
        step="StopMember",
        pair=view.pair,
        member=view.ordinal,
        started_at=now,
        step_started_at=now,
        data={"uid": uid},
    )


def refusal(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster
) -> str | None:
    """Return why the annotation is not acted on, or ``None``."""
    view = _named(cluster, observed)
    if view is None:
        return None
    label = member_label(cluster, (view.pair, view.ordinal))
    master = present.master_member(cluster, observed, view.pair, status)
    if view.ordinal == master:
        return f"{label} is the master of its pair"
    if not present.is_ready(observed.member(view.pair, master)):
        return f"{label} may hold the pair's only copy: the master does not serve"
    return None


def _uid(cluster: BrokerCluster) -> str:
    return cluster.metadata.annotations.get(ANNOTATION, "").strip()


def _named(cluster: BrokerCluster, observed: ObservedCluster) -> MemberView | None:
    uid = _uid(cluster)
    for (pair, ordinal), view in sorted(observed.members.items()):
        if (
            uid
            and uid == _store_uid(cluster, view)
            and not present.is_leaving(cluster, pair, ordinal)
        ):
            return view
    return None


def _store_uid(cluster: BrokerCluster, view: MemberView) -> str | None:
    """Return the uid of what holds a member's store: its claim, or the pod when ephemeral."""
    if cluster.spec.storage.type == "persistent":
        return view.claim.uid if view.claim else None
    return view.pod.uid if view.pod else None


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Keep the member stopped until its claim is gone."""
    if operation.pair is None or operation.member is None:
        return shape
    if operation.step != "WipeClaim" or cluster.spec.storage.type == "ephemeral":
        return shape
    stopped = shape.stopped | {(operation.pair, operation.member)}
    return dataclasses.replace(shape, stopped=stopped)


def advance(
    cluster: BrokerCluster,
    observed: ObservedCluster,
    desired: Mapping[Key, Object],
    operation: Operation,
    now: float,
) -> Advance:
    """Return what the Resync wants of this pass; its lease is renewed on the way."""
    turn = Turn(cluster, observed, desired, operation, now)
    found = timed(turn, _STEPS[operation.step](turn))
    releases = any(isinstance(action, ReleaseLease) for action in found.actions)
    if found.operation is None or releases or not _lease_is_due(turn):
        return found
    take = TakeLease(_lease_name(turn), operation.id, LEASE_SECONDS)
    return dataclasses.replace(found, actions=(take, *found.actions))


def _view(turn: Turn) -> MemberView:
    return turn.view(turn.operation.member or 0)


def _stop(turn: Turn) -> Advance:
    """Hold the lease and ask once more; the replica goes with the next step."""
    blocked = turn.check(_BEFORE)
    if not _lease_is_ours(turn):
        blocked = (*blocked, "LeaseHeld") if _lease_is_taken(turn) else blocked
        return turn.stay(*blocked)
    if _store_uid(turn.cluster, _view(turn)) != turn.data["uid"]:
        return turn.go("StartMember")
    if turn.operation.member == turn.master or not present.is_ready(turn.master_view):
        return turn.stay("MasterReady")
    return turn.stay(*blocked) if blocked else turn.go("WipeClaim")


def _wipe(turn: Turn) -> Advance:
    view = _view(turn)
    if _store_uid(turn.cluster, view) != turn.data["uid"]:
        label = member_label(turn.cluster, (turn.pair, view.ordinal))
        moved = turn.go("StartMember")
        return dataclasses.replace(moved, events=(Event("PodRestart", f"Resync: {label}"),))
    if turn.cluster.spec.storage.type == "ephemeral":
        pod = view.pod
        gone = pod is None or pod.deleting
        actions: tuple[Action, ...] = () if gone or pod is None else (DeletePod(pod.name, pod.uid),)
        return turn.stay(actions=actions)
    if view.pod is not None or view.claim is None:
        return turn.stay()
    key = ("PersistentVolumeClaim", view.claim.name)
    return turn.stay(actions=(Delete(key, view.claim.uid),))


def _start(turn: Turn) -> Advance:
    view = _view(turn)
    if not present.is_ready(view) or not turn.is_registered(view):
        return turn.stay()
    return turn.go("WaitReplicated")


def _replicated(turn: Turn) -> Advance:
    blocked = turn.check(("MetadataEqual",))
    if blocked or not facts.in_sync(turn.master_view.broker, _view(turn).broker, turn.now):
        return turn.stay(*blocked)
    if _lease_is_ours(turn):
        return turn.stay(actions=(ReleaseLease(_lease_name(turn), turn.operation.id),), wake=0.5)
    return Advance(None)


# --- the lease ----------------------------------------------------------------------------------


def _lease_name(turn: Turn) -> str:
    return f"failback-{turn.cluster.name}-{turn.pair}"


def _lease(turn: Turn) -> Mapping[str, Any]:
    found = turn.observed.leases.get(_lease_name(turn))
    return {} if found is None else found.get("spec", {})


def _lease_is_ours(turn: Turn) -> bool:
    return bool(_lease(turn).get("holderIdentity") == turn.operation.id)


def _lease_age(turn: Turn) -> float:
    renewed = from_time(_lease(turn).get("renewTime"))
    return float("inf") if renewed is None else max(0.0, turn.now - renewed)


def _lease_is_taken(turn: Turn) -> bool:
    holder = _lease(turn).get("holderIdentity")
    seconds = float(_lease(turn).get("leaseDurationSeconds", LEASE_SECONDS))
    return bool(holder) and holder != turn.operation.id and _lease_age(turn) < seconds


def _lease_is_due(turn: Turn) -> bool:
    if _lease_is_taken(turn):
        return False
    return not _lease_is_ours(turn) or _lease_age(turn) >= RENEW_SECONDS


_STEPS: Final[Mapping[str, Callable[[Turn], Advance]]] = {
    "StopMember": _stop,
    "WipeClaim": _wipe,
    "StartMember": _start,
    "WaitReplicated": _replicated,
}
