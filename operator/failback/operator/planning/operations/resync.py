"""Resync: wipe a slave's volume once and let it copy its master's log again. Pure.

A person asks for it with the uid of the claim, which is gone after the first time, so that the
annotation never fires twice. A log that has parted starts nothing by itself: the condition
``ReplicationHealthy`` (cluster/conditions.py) says ``Diverged`` and names the annotation. Never
for the master, nor while the master does not serve. What only the slave has is given up only by an
order that names how many bytes that is: ``UID:BYTES``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.operations.pair_lease import PairLease
from failback.operator.planning.operations.step_context import StepContext, member_label, timed
from failback.operator.planning.plan.types import (
    Action,
    Advance,
    Delete,
    DeletePod,
    Event,
    Operation,
    ReleaseLease,
)
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.planning.state.log_ends import given_up
from failback.operator.render.shape import Shape

TYPE: Final = "Resync"

ANNOTATION: Final = "failback.dev/force-resync-member"
_BEFORE: Final = ("NotPaused", "NoOtherOperation", "NoChaosRunning", "NameServersReachable")


def causes(state: ClusterState) -> Iterator[Operation]:
    """Yield a Resync of the slave whose claim the annotation names."""
    view = _named(state)
    if view is None or refusal(state) is not None:
        return
    uid = _uid(state.cluster)
    yield state.begin(
        TYPE, "StopMember", uid, pair=view.pair, member=view.ordinal, data={"uid": uid}
    )


def refusal(state: ClusterState) -> str | None:
    """Return why the annotation is not acted on, or ``None``."""
    view = _named(state)
    if view is None:
        return None
    label = member_label(state.cluster, (view.pair, view.ordinal))
    master = state.master(view.pair)
    if view.ordinal == master.ordinal:
        return f"{label} is the master of its pair"
    if not master.is_ready:
        return f"{label} may hold the pair's only copy: the master does not serve"
    lost = given_up(master, view)
    if not lost.is_covered(_order(state.cluster)[1]):
        wanted = lost.order(_uid(state.cluster))
        return f"{label}: {lost.words}; {ANNOTATION}={wanted} gives that up"
    return None


def _order(cluster: BrokerCluster) -> tuple[str, str]:
    """Return the uid that the annotation names, and the bytes that it gives up."""
    uid, _, named = cluster.metadata.annotations.get(ANNOTATION, "").strip().partition(":")
    return uid, named


def _uid(cluster: BrokerCluster) -> str:
    return _order(cluster)[0]


def is_asked_for(state: ClusterState, uid: str) -> bool:
    """Tell whether the annotation names this volume."""
    return uid == _uid(state.cluster)


def _named(state: ClusterState) -> MemberView | None:
    uid = _uid(state.cluster)
    for (pair, ordinal), view in sorted(state.observed.members.items()):
        named = uid and uid == _store_uid(state.cluster, view)
        if named and not state.is_leaving(pair, ordinal):
            return view
    return None


def _store_uid(cluster: BrokerCluster, view: MemberView) -> str | None:
    """Return the uid of what holds a member's store: its claim, or the pod when ephemeral."""
    if cluster.spec.storage.type == "Persistent":
        return view.claim.uid if view.claim else None
    return view.pod.uid if view.pod else None


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Keep the member stopped until its claim is gone."""
    if operation.pair is None or operation.member is None:
        return shape
    if operation.step != "WipeClaim" or cluster.spec.storage.type == "Ephemeral":
        return shape
    stopped = shape.stopped | {(operation.pair, operation.member)}
    return dataclasses.replace(shape, stopped=stopped)


def give_way(state: ClusterState, operation: Operation, urgent: Operation) -> Operation | None:
    """Let go of the lease, then end, when nothing has been done, or for a forced switch.

    A claim whose deletion was asked for goes all the same, and the slave copies everything.
    """
    forced = urgent.data.get("mode") == "Forced"
    if forced or operation.step == "StopMember":
        return operation.remembering({"giveWay": True})
    return operation


def advance(step: StepContext) -> Advance:
    """Return what the Resync wants of this pass; its lease is renewed on the way."""
    if step.data.get("giveWay"):
        release = (_lease(step).release(),) if _lease(step).is_ours else ()
        return step.stay(actions=release, wake=0.5) if release else Advance(None)
    found = timed(step, _STEPS[step.operation.step](step))
    releases = any(isinstance(action, ReleaseLease) for action in found.actions)
    if found.operation is None or releases or not _lease(step).is_due:
        return found
    return dataclasses.replace(found, actions=(_lease(step).take(), *found.actions))


def _lease(step: StepContext) -> PairLease:
    return PairLease.of(step.state, step.pair, step.operation.id)


def _view(step: StepContext) -> MemberView:
    return step.view(step.operation.member or 0)


def _stop(step: StepContext) -> Advance:
    """Hold the lease and ask once more; the replica goes with the next step."""
    blocked = step.check(_BEFORE)
    if not _lease(step).is_ours:
        blocked = (*blocked, "LeaseHeld") if _lease(step).is_taken else blocked
        return step.stay(*blocked)
    if _store_uid(step.cluster, _view(step)) != step.data["uid"]:
        return step.go("StartMember")
    if step.operation.member == step.master or not step.master_view.is_ready:
        return step.stay("MasterReady")
    if refusal(step.state) is not None:
        return step.go("StartMember")
    return step.stay(*blocked) if blocked else step.go("WipeClaim")


def _wipe(step: StepContext) -> Advance:
    view = _view(step)
    if _store_uid(step.cluster, view) != step.data["uid"]:
        label = member_label(step.cluster, (step.pair, view.ordinal))
        moved = step.go("StartMember")
        return dataclasses.replace(moved, events=(Event("PodRestart", f"Resync: {label}"),))
    if _named(step.state) is None or refusal(step.state) is not None:
        return step.go("StartMember")  # taken back, or its log has turned out to be the longer one
    if step.cluster.spec.storage.type == "Ephemeral":
        pod = view.pod
        gone = pod is None or pod.deleting
        actions: tuple[Action, ...] = () if gone or pod is None else (DeletePod(pod.name, pod.uid),)
        return step.stay(actions=actions)
    if view.pod is not None or view.claim is None:
        return step.stay()
    key = ("PersistentVolumeClaim", view.claim.name)
    return step.stay(actions=(Delete(key, view.claim.uid),))


def _start(step: StepContext) -> Advance:
    view = _view(step)
    if not view.is_ready or not step.is_registered(view):
        return step.stay()
    return step.go("WaitReplicated")


def _replicated(step: StepContext) -> Advance:
    blocked = step.check(("MetadataEqual",))
    if blocked or not facts.in_sync(step.master_view.broker, _view(step).broker, step.now):
        return step.stay(*blocked)
    if _lease(step).is_ours:
        return step.stay(actions=(_lease(step).release(),), wake=0.5)
    return Advance(None)


_STEPS: Final[Mapping[str, Callable[[StepContext], Advance]]] = {
    "StopMember": _stop,
    "WipeClaim": _wipe,
    "StartMember": _start,
    "WaitReplicated": _replicated,
}
