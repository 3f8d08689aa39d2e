"""Roll: replace pods that run an older template, one member at a time. Pure.

Members that are not ready first, then slaves from the highest ordinal, the master last, pair by
pair. The master's pair is closed for producers before it goes (``drainMaster``) and opened when
its slaves follow again. One operation is one pair's turn.

    ChooseMember ─► DrainMaster ─► EvictMember ─► WaitReady ─► WaitReplicated ─► OpenWrites ─┐
        ▲  └──────── slave ────────────▲                            └── slave ──────────────►│
        └────────────────────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, Object, ObservedCluster
from failback.operator.planning.operations import live_config
from failback.operator.planning.operations.turn import (
    CLOSED,
    OPEN,
    ROUTE_SECONDS,
    Turn,
    member_label,
    timed,
)
from failback.operator.planning.plan.encoding import operation_from_status
from failback.operator.planning.plan.types import (
    Advance,
    Event,
    Evict,
    Operation,
    PatchMetadata,
    operation_id,
)
from failback.operator.planning.state import predicates, present, restarts
from failback.operator.render.shape import Shape

TYPE: Final = "Roll"
PRIORITY: Final = 5
ABANDONABLE: Final = True

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
    "NoOtherOperation",
    "NoChaosRunning",
    "PDBAllows",
    "StoreCompatible",
    "ClaimsSettled",
)
"""Replacing a pod that serves nothing takes nothing away; to ask for more would let a bad image
in every pod block its own correction."""


def cause(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster, now: float
) -> Operation | None:
    """Return a Roll of the pair whose member goes first, or of the member a person named."""
    waiting = _waiting(cluster, observed, status)
    manual = restarts.manual_member(cluster)
    if (waiting or manual) and _live_goes_first(cluster, status, observed, now):
        return None
    data: dict[str, Any] = {}
    if manual is not None and (pod := observed.member(*manual).pod) is not None:
        pair, why = manual[0], f"{restarts.RESTART_MEMBER} {pod.uid}"
        data = {"manual": list(manual)}
    elif waiting:
        (pair, _), _ = waiting[0]
        why = " ".join(f"{member_label(cluster, m)}:{','.join(r)}" for m, r in waiting)
    else:
        return None
    return Operation(
        id=operation_id(TYPE, pair, cluster.metadata.generation, why),
        type=TYPE,
        step="ChooseMember",
        pair=pair,
        started_at=now,
        step_started_at=now,
        data=data,
    )


def _live_goes_first(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster, now: float
) -> bool:
    """Tell whether live keys that changed with the others are being set; not for ever."""
    running = operation_from_status(status)
    if running is not None and running.type == live_config.TYPE:
        if now - running.started_at > LIVE_FIRST_SECONDS:
            return False
    elif running is not None:
        return False
    return bool(live_config.work_of(cluster, status, observed, now).changes)


def _waiting(
    cluster: BrokerCluster, observed: ObservedCluster, status: Mapping[str, Any]
) -> tuple[tuple[tuple[int, int], tuple[str, ...]], ...]:
    if cluster.spec.update_strategy.type == "OnDelete":
        return ()
    return restarts.pending(cluster, observed, status)


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Close the pair from DrainMaster to OpenWrites."""
    if operation.pair is None or not operation.data.get("closed"):
        return shape
    own = frozenset({operation.pair})
    closed = shape.closed - own if operation.step == "OpenWrites" else shape.closed | own
    return dataclasses.replace(shape, closed=closed)


def advance(
    cluster: BrokerCluster,
    observed: ObservedCluster,
    desired: Mapping[Key, Object],
    operation: Operation,
    now: float,
) -> Advance:
    """Return what the Roll wants of this pass."""
    turn = Turn(cluster, observed, desired, operation, now)
    return timed(turn, _STEPS[operation.step](turn))


def give_way(
    operation: Operation, observed: ObservedCluster, urgent: Operation, now: float, limit: float
) -> Operation | None:
    """Return the Roll as it goes on although something more urgent waits; ``None`` = it ends.

    A pair that it closed is opened first, unless its master does not answer. An eviction under
    way is waited for, but not for ever.

    Args:
        limit: ``pairTimeoutSeconds``.
    """
    forced = urgent.data.get("mode") == "Forced"
    pair, member = operation.pair or 0, operation.member or 0
    broker = observed.member(pair, member).broker
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


def _choose(turn: Turn) -> Advance:
    if turn.data.get("manual") is not None:
        return _choose_named(turn)
    waiting = _waiting(turn.cluster, turn.observed, {})
    if not waiting or waiting[0][0][0] != turn.pair:
        return _finish(turn)
    return _begin(turn, waiting[0][0][1])


def _choose_named(turn: Turn) -> Advance:
    """Restart the member that the annotation names; then take the annotation away."""
    if not turn.data.get("manualDone"):
        return _begin(turn, turn.data["manual"][1])
    if restarts.RESTART_MEMBER in turn.cluster.metadata.annotations:
        return turn.stay(actions=(PatchMetadata((restarts.RESTART_MEMBER,)),))
    return _finish(turn)


def _finish(turn: Turn) -> Advance:
    return turn.go("OpenWrites") if turn.data.get("closed") else Advance(None)


def _begin(turn: Turn, ordinal: int) -> Advance:
    """Ask whether the member may go, then drain it or evict it."""
    view = turn.view(ordinal)
    if view.pod is None:
        return turn.go("WaitReady", member=ordinal, podUid="")
    blocked = _blocked(turn, ordinal)
    if blocked or not _template_stands(turn, ordinal):
        return turn.stay(*blocked)
    uid = view.pod.uid
    drains = ordinal == turn.master and turn.cluster.spec.update_strategy.drain_master
    if drains and present.is_ready(view) and turn.permission() == OPEN:
        return turn.go("DrainMaster", member=ordinal, podUid=uid, closed=True, closedAt=None)
    return turn.go("EvictMember", member=ordinal, podUid=uid)


def _blocked(turn: Turn, ordinal: int) -> tuple[str, ...]:
    if present.is_ready(turn.view(ordinal)):
        return turn.check(MASTER if ordinal == turn.master else SLAVE, ordinal)
    names = UNREADY
    if len(facts.claims_to_be_master(turn.observed, turn.pair)) > 1:
        names = (*UNREADY, "SingleMaster")  # two masters: nobody restarts anything
    return turn.check(names, ordinal)


def _template_stands(turn: Turn, ordinal: int) -> bool:
    """Tell whether a pod made now would be of the wanted template."""
    return (
        turn.is_applied("StatefulSet", ordinal)
        and turn.is_applied("ConfigMap", ordinal)
        and restarts.is_settled(turn.view(ordinal))
    )


def _drain(turn: Turn) -> Advance:
    if not present.is_ready(turn.master_view):
        return turn.go("EvictMember")
    if not turn.is_closed():
        blocked = turn.check(("NameServersReachable",))
        return turn.stay(*blocked, actions=turn.set_permission(CLOSED), closedAt=None)
    since = turn.data.get("closedAt")
    if since is None:
        return turn.stay(closedAt=turn.now)
    left = since + ROUTE_SECONDS - turn.now
    return turn.go("EvictMember") if left <= 0 else turn.stay(wake=min(2.0, left))


def _evict(turn: Turn) -> Advance:
    ordinal = turn.operation.member or 0
    view = turn.view(ordinal)
    pod = view.pod
    if pod is None or pod.uid != turn.data["podUid"]:
        return turn.go("WaitReady")
    if pod.deleting:
        return turn.stay()
    blocked = _blocked(turn, ordinal)
    if blocked and turn.data.get("closed"):
        waited = turn.now - turn.operation.step_started_at
        if waited > REOPEN_SECONDS and turn.operation.attempts == 0:
            return turn.go("OpenWrites")
    if blocked or not _template_stands(turn, ordinal):
        return turn.stay(*blocked)
    first = turn.operation.attempts == 0
    why = restarts.reasons(view) or ("Manual",)
    event = Event("PodRestart", f"{why[0]}: {member_label(turn.cluster, (turn.pair, ordinal))}")
    operation = dataclasses.replace(turn.operation.blocked(), attempts=1)
    return Advance(operation, (Evict(pod.name, pod.uid),), (event,) if first else ())


def _wait_ready(turn: Turn) -> Advance:
    ordinal = turn.operation.member or 0
    view = turn.view(ordinal)
    if view.pod is None or view.pod.deleting or view.pod.uid == turn.data["podUid"]:
        return turn.stay()
    if _is_outdated(turn, ordinal):
        return turn.go("ChooseMember")
    if not present.is_ready(view) or not turn.is_registered(view):
        return _or_unready_first(turn)
    return turn.go("WaitReplicated")


def _is_outdated(turn: Turn, ordinal: int) -> bool:
    """Tell whether the new pod is of an older template all the same, or the spec changed."""
    if turn.data.get("manual") is not None:
        return False
    return bool(restarts.reasons(turn.view(ordinal))) and _template_stands(turn, ordinal)


def _or_unready_first(turn: Turn) -> Advance:
    """Wait, unless another member that is not ready can be helped by a new pod."""
    if turn.data.get("manual") is None:
        for (pair, ordinal), _ in _waiting(turn.cluster, turn.observed, {}):
            view = turn.observed.member(pair, ordinal)
            if pair == turn.pair and not present.is_ready(view):
                return turn.go("ChooseMember")
    return turn.stay()


def _wait_replicated(turn: Turn) -> Advance:
    ordinal = turn.operation.member or 0
    view = turn.view(ordinal)
    if _is_outdated(turn, ordinal):
        return turn.go("ChooseMember")
    if ordinal == turn.master:
        done = _slaves_follow(turn)
    else:
        blocked = turn.check(("PrefixVerified", "MetadataEqual"))
        done = not blocked and facts.in_sync(turn.master_view.broker, view.broker, turn.now)
        if blocked:
            waiting = _or_unready_first(turn)
            moved = waiting.operation is not None and waiting.operation.step != "WaitReplicated"
            return waiting if moved else turn.stay(*blocked)
    if not done:
        return _or_unready_first(turn)
    more = {"manualDone": True} if turn.data.get("manual") is not None else {}
    step = "OpenWrites" if turn.data.get("closed") else "ChooseMember"
    return turn.go(step, **more)


def _slaves_follow(turn: Turn) -> bool:
    """Tell whether every slave that serves is connected to the new master and in sync."""
    if turn.now - turn.operation.step_started_at < RECONNECT_SECONDS and turn.slaves():
        return False
    return all(
        facts.in_sync(turn.master_view.broker, slave.broker, turn.now)
        for slave in turn.slaves()
        if present.is_ready(slave)
    )


def _open(turn: Turn) -> Advance:
    if turn.permission() is None and turn.data.get("giveWay"):
        return Advance(None)
    if turn.permission() != OPEN:
        return turn.stay(actions=turn.set_permission(OPEN))
    waited = turn.now - turn.operation.step_started_at
    if turn.route_is_writable() is False and waited <= ROUTE_SECONDS:
        return turn.stay()  # a topic that is itself read-only must not hold the Roll for ever
    if turn.data.get("giveWay"):
        return Advance(None)
    return turn.go("ChooseMember", closed=False, closedAt=None)


_STEPS: Final[Mapping[str, Callable[[Turn], Advance]]] = {
    "ChooseMember": _choose,
    "DrainMaster": _drain,
    "EvictMember": _evict,
    "WaitReady": _wait_ready,
    "WaitReplicated": _wait_replicated,
    "OpenWrites": _open,
}
