"""Roll: replace pods that run an older template, one member at a time. Pure.

Which member goes next is decided by :func:`restarts.pending`. The master's pair is closed for
producers before the master goes, where others take what they send (``drainMaster``). It is opened
when its slaves follow again. One operation is one pair's turn.

    ChooseMember ─► DrainMaster ─► EvictMember ─► WaitReady ─► WaitReplicated ─► OpenWrites ─┐
        ▲  └──────── slave ────────────▲                            └── slave ──────────────►│
        └────────────────────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.operations import live_config
from failback.operator.planning.operations.step_context import (
    CLOSED,
    OPEN,
    ROUTE_SECONDS,
    StepContext,
    member_label,
    timed,
)
from failback.operator.planning.plan.types import (
    Advance,
    DeletePod,
    Event,
    Evict,
    Operation,
    PatchMetadata,
)
from failback.operator.planning.state import precedence, predicates, restarts
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Member, Shape

TYPE: Final = "Roll"
LIVE_FIRST_SECONDS: Final = 60.0
"""How long a Roll lets a LiveConfig go first that was there before it."""
RECONNECT_SECONDS: Final = 6.0
"""The Java slave's first report comes more than 5 s after it connected."""
REOPEN_SECONDS: Final = 60.0
"""A closed pair whose master may not go yet is opened again after this."""
MASTER: Final = tuple(predicates.PREDICATES)
SLAVE: Final = tuple(name for name in MASTER if name != "OffsetsFresh")
UNREADY: Final[tuple[str, ...]] = (
    "NotPaused",
    "PairFree",
    "NoChaosRunning",
    "PDBAllows",
    "StoreCompatible",
    "ClaimsSettled",
)
"""Replacing a pod that serves nothing takes nothing away; to ask for more would let a bad image
in every pod block its own correction."""


def causes(state: ClusterState) -> Iterator[Operation]:
    """Yield a Roll of the member a person named, then one of each pair, in the order they go."""
    cluster = state.cluster
    waiting = _waiting(state)
    manual = restarts.manual_member(cluster)
    if not (waiting or manual) or _live_goes_first(state):
        return
    if manual is not None and (pod := state.observed.member(*manual).pod) is not None:
        why = f"{restarts.RESTART_MEMBER} {pod.uid}"
        named = {"manual": list(manual)}
        yield state.begin(TYPE, "ChooseMember", why, pair=manual[0], data=named)
    others = [item for item in state.operations if item.type == TYPE]
    if _one_works(state):
        return
    for pair in dict.fromkeys(pair for (pair, _), _ in waiting):
        first = next(member for member, _ in waiting if member[0] == pair)
        if others and _kept_from(state, first):
            continue
        mine = [f"{member_label(cluster, m)}:{','.join(r)}" for m, r in waiting if m[0] == pair]
        yield state.begin(TYPE, "ChooseMember", " ".join(mine), pair=pair, data={})


def _one_works(state: ClusterState, asking: Operation | None = None) -> bool:
    """Tell whether another Roll than the one that asks does not only wait."""
    others = [item for item in state.operations if item.type == TYPE]
    own = asking.id if asking is not None else ""
    return any(item.id != own and not precedence.waits(item, state.now) for item in others)


def _kept_from(state: ClusterState, member: Member) -> tuple[str, ...]:
    """Return what keeps a Roll of another pair from beginning beside one that waits."""
    ready = state.observed.member(*member).is_ready
    master = state.master_member(member[0]) == member[1]
    names = UNREADY if not ready else MASTER if master else SLAVE
    return predicates.evaluate(names, state, pair=member[0], member=member[1])


def _live_goes_first(state: ClusterState) -> bool:
    """Tell whether live keys that changed with the others are being set; not for ever."""
    live = [item for item in state.operations if item.type == live_config.TYPE]
    if any(state.now - item.started_at > LIVE_FIRST_SECONDS for item in live):
        return False
    return bool(live_config.work_of(state).changes)


def _waiting(state: ClusterState) -> tuple[tuple[tuple[int, int], tuple[str, ...]], ...]:
    if state.cluster.spec.update_strategy.type == "OnDelete":
        return ()
    return tuple(item for item in restarts.pending(state) if not _goes_already(state, item[0]))


def _goes_already(state: ClusterState, member: Member) -> bool:
    pod = state.observed.member(*member).pod
    return pod is not None and pod.deleting


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Close the pair from DrainMaster to OpenWrites."""
    if operation.pair is None or not operation.data.get("closed"):
        return shape
    own = frozenset({operation.pair})
    closed = shape.closed - own if operation.step == "OpenWrites" else shape.closed | own
    return dataclasses.replace(shape, closed=closed)


def advance(step: StepContext) -> Advance:
    """Return what the Roll wants of this pass."""
    return timed(step, _STEPS[step.operation.step](step))


def give_way(state: ClusterState, operation: Operation, urgent: Operation) -> Operation | None:
    """Return the Roll as it goes on although something more urgent waits; ``None`` = it ends.

    A pair that it closed is opened first, unless its master does not answer. An eviction under
    way is waited for, at most ``pairTimeoutSeconds``.
    """
    now, limit = state.now, state.cluster.spec.update_strategy.pair_timeout_seconds
    forced = urgent.data.get("mode") == "Forced"
    pair, member = operation.pair or 0, operation.member or 0
    broker = state.observed.member(pair, member).broker
    under_way = operation.step == "WaitReady" or (
        operation.step == "EvictMember" and operation.attempts > 0
    )
    if under_way and not forced and now - operation.step_started_at <= limit:
        return operation
    if not operation.data.get("closed") or broker is None or broker.config is None:
        return None
    if operation.step == "OpenWrites":
        return operation.remembering({"giveWay": True})
    return operation.at_step("OpenWrites", now, giveWay=True)


# --- steps --------------------------------------------------------------------------------------


def _choose(step: StepContext) -> Advance:
    if step.data.get("manual") is not None:
        return _choose_named(step)
    waiting = [ordinal for (pair, ordinal), _ in _waiting(step.state) if pair == step.pair]
    named = restarts.manual_member(step.cluster)
    if named is not None and named[0] == step.pair:
        return _finish(step)  # that Roll goes first
    return _begin(step, waiting[0]) if waiting else _finish(step)


def _choose_named(step: StepContext) -> Advance:
    """Restart the member that the annotation names; then take the annotation away."""
    if not step.data.get("manualDone"):
        return _begin(step, step.data["manual"][1])
    if restarts.RESTART_MEMBER in step.cluster.metadata.annotations:
        return step.stay(actions=(PatchMetadata((restarts.RESTART_MEMBER,)),))
    return _finish(step)


def _finish(step: StepContext) -> Advance:
    return step.go("OpenWrites") if step.data.get("closed") else Advance(None)


def _begin(step: StepContext, ordinal: int) -> Advance:
    """Ask whether the member may go, then drain it or evict it."""
    view = step.view(ordinal)
    if view.pod is None:
        return step.go("WaitReady", member=ordinal, podUid="")
    blocked = _blocked(step, ordinal)
    if "NoOtherOperation" in blocked and _one_works(step.state, step.operation):
        return _finish(step)  # it begins again when its turn has come
    if blocked or not _template_stands(step, ordinal):
        return step.stay(*blocked)
    uid = view.pod.uid
    drains = ordinal == step.master and _drains(step)
    if drains and view.is_ready and step.permission() == OPEN:
        return step.go("DrainMaster", member=ordinal, podUid=uid, closed=True, closedAt=None)
    return step.go("EvictMember", member=ordinal, podUid=uid)


def _drains(step: StepContext) -> bool:
    wanted = step.cluster.spec.update_strategy.drain_master
    return bool(wanted) and predicates.others_take_messages_of(step.state, step.pair)


def _blocked(step: StepContext, ordinal: int) -> tuple[str, ...]:
    if step.view(ordinal).is_ready:
        return step.check(MASTER if ordinal == step.master else SLAVE, ordinal)
    names = UNREADY
    if len(facts.claims_to_be_master(step.observed, step.pair)) > 1:
        names = (*UNREADY, "SingleMaster")  # two masters: no member restarts
    return step.check(names, ordinal)


def _template_stands(step: StepContext, ordinal: int) -> bool:
    """Tell whether a pod made now would be of the wanted template."""
    return (
        step.is_applied("StatefulSet", ordinal)
        and step.is_applied("ConfigMap", ordinal)
        and restarts.is_settled(step.view(ordinal))
    )


def _drain(step: StepContext) -> Advance:
    if not step.master_view.is_ready:
        return step.go("EvictMember")
    if not step.is_closed():
        blocked = step.check(("NameServersReachable",))
        return step.stay(*blocked, actions=step.set_permission(CLOSED), closedAt=None)
    since = step.data.get("closedAt")
    if since is None:
        return step.stay(closedAt=step.now)
    left = since + ROUTE_SECONDS - step.now
    return step.go("EvictMember") if left <= 0 else step.stay(wake=min(2.0, left))


def _evict(step: StepContext) -> Advance:
    ordinal = step.operation.member or 0
    view = step.view(ordinal)
    pod = view.pod
    if pod is None or pod.uid != step.data["podUid"]:
        return step.go("WaitReady")
    if pod.deleting:
        return step.stay()
    blocked = _blocked(step, ordinal)
    if blocked and step.data.get("closed"):
        waited = step.now - step.operation.step_started_at
        if waited > REOPEN_SECONDS and step.operation.attempts == 0:
            return step.go("OpenWrites")
    if blocked or not _template_stands(step, ordinal):
        return step.stay(*blocked)
    first = step.operation.attempts == 0
    why = restarts.reasons(view) or ("Manual",)
    event = Event("PodRestart", f"{why[0]}: {member_label(step.cluster, (step.pair, ordinal))}")
    operation = dataclasses.replace(step.operation.blocked(), attempts=1)
    # A budget that keeps a master from drains would keep it from us as well.
    away = DeletePod if step.state.holds(view) else Evict
    return Advance(operation, (away(pod.name, pod.uid),), (event,) if first else ())


def _wait_ready(step: StepContext) -> Advance:
    ordinal = step.operation.member or 0
    view = step.view(ordinal)
    if view.pod is None or view.pod.deleting or view.pod.uid == step.data["podUid"]:
        return step.stay()
    if _is_outdated(step, ordinal):
        return step.go("ChooseMember")
    if not view.is_ready or not step.is_registered(view):
        return _or_unready_first(step)
    return step.go("WaitReplicated")


def _is_outdated(step: StepContext, ordinal: int) -> bool:
    """Tell whether the new pod is of an older template all the same, or the spec changed."""
    if step.data.get("manual") is not None:
        return False
    return bool(restarts.reasons(step.view(ordinal))) and _template_stands(step, ordinal)


def _or_unready_first(step: StepContext) -> Advance:
    """Wait, unless another member that is not ready can be helped by a new pod."""
    if step.data.get("manual") is None:
        named = restarts.manual_member(step.cluster)
        mine = named is not None and named[0] == step.pair and not step.data.get("closed")
        if mine and named is not None and not step.observed.member(*named).is_ready:
            return Advance(None)  # a person wants a new pod of it
        for (pair, ordinal), _ in _waiting(step.state):
            view = step.observed.member(pair, ordinal)
            if pair == step.pair and not view.is_ready:
                return step.go("ChooseMember")
    return step.stay()


def _wait_replicated(step: StepContext) -> Advance:
    ordinal = step.operation.member or 0
    view = step.view(ordinal)
    if _is_outdated(step, ordinal):
        return step.go("ChooseMember")
    if ordinal == step.master:
        done = _slaves_follow(step)
    else:
        blocked = step.check(("PrefixVerified", "MetadataEqual"))
        done = not blocked and facts.in_sync(step.master_view.broker, view.broker, step.now)
        if blocked:
            waiting = _or_unready_first(step)
            moved = waiting.operation is not None and waiting.operation.step != "WaitReplicated"
            return waiting if moved else step.stay(*blocked)
    if not done:
        return _or_unready_first(step)
    more = {"manualDone": True} if step.data.get("manual") is not None else {}
    following = "OpenWrites" if step.data.get("closed") else "ChooseMember"
    return step.go(following, **more)


def _slaves_follow(step: StepContext) -> bool:
    """Tell whether every slave that serves is connected to the new master and in sync."""
    if step.now - step.operation.step_started_at < RECONNECT_SECONDS and step.slaves():
        return False
    return all(
        facts.in_sync(step.master_view.broker, slave.broker, step.now)
        for slave in step.slaves()
        if slave.is_ready
    )


def _open(step: StepContext) -> Advance:
    if step.permission() is None and step.data.get("giveWay"):
        return Advance(None)
    if step.permission() != OPEN:
        return step.stay(actions=step.set_permission(OPEN))
    waited = step.now - step.operation.step_started_at
    if step.route_is_writable() is False and waited <= ROUTE_SECONDS:
        return step.stay()  # a topic that is itself read-only must not hold the Roll for ever
    if step.data.get("giveWay"):
        return Advance(None)
    return step.go("ChooseMember", closed=False, closedAt=None)


_STEPS: Final[Mapping[str, Callable[[StepContext], Advance]]] = {
    "ChooseMember": _choose,
    "DrainMaster": _drain,
    "EvictMember": _evict,
    "WaitReady": _wait_ready,
    "WaitReplicated": _wait_replicated,
    "OpenWrites": _open,
}
