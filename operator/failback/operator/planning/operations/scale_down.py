"""ScaleDown: members leave from the highest index, and nothing that was not consumed is lost. Pure.

A pair is closed, waits until every group has consumed it, is stopped (slaves first: the master's
clean stop unregisters it), and then its objects go. Claims stay. Raising ``pairs`` again takes it
back at any time: the pair is still there or is made anew over its claims, and ScaleUp opens it.
Slaves that leave need no draining.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed.observed import Key, MemberView, Object, ObservedCluster
from failback.operator.planning.operations.scale_up import is_system_topic
from failback.operator.planning.operations.turn import CLOSED, ROUTE_SECONDS, Turn
from failback.operator.planning.plan.types import (
    Action,
    Advance,
    Delete,
    DeleteTopic,
    Event,
    Operation,
    operation_id,
)
from failback.operator.planning.state import present
from failback.operator.render.shape import Shape

TYPE: Final = "ScaleDown"
PRIORITY: Final = 3
ABANDONABLE: Final = False

SKIP: Final = "failback.dev/skip-scaledown-check"
TELL_SECONDS: Final = 600.0
_MAX_TOPICS: Final = 256
_BEFORE: Final = ("NotPaused", "NoChaosRunning", "NameServersReachable")


def cause(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster, now: float
) -> Operation | None:
    """Return a ScaleDown of the highest pair that leaves, else of slaves that leave."""
    standing = present.pairs(observed)
    for pair in reversed(standing):
        leaves = present.is_leaving(cluster, pair)
        surplus = [o for o in present.ordinals(observed, pair) if o > cluster.pair(pair).slaves]
        if not (leaves or surplus) or _refusal(cluster, status, observed, pair):
            continue
        return Operation(
            id=operation_id(TYPE, pair, cluster.metadata.generation, f"{leaves} {surplus}"),
            type=TYPE,
            step="DrainPair",
            pair=pair,
            started_at=now,
            step_started_at=now,
            data={"leaves": leaves, "slaves": surplus},
        )
    return None


def refusals(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster
) -> tuple[str, ...]:
    """Return why members that the spec has no place for stay all the same."""
    found = (_refusal(cluster, status, observed, pair) for pair in present.pairs(observed))
    return tuple(text for text in found if text)


def _refusal(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster, pair: int
) -> str | None:
    name = cluster.broker_name(pair)
    master = present.master_member(cluster, observed, pair, status)
    slaves = cluster.pair(pair).slaves
    leaves = present.is_leaving(cluster, pair)
    if not leaves and not any(o > slaves for o in present.ordinals(observed, pair)):
        return None
    if not leaves and master > slaves:
        return f"{name}: member {master} is the master; switch roles before slavesPerPair {slaves}"
    for switch in observed.role_switches:
        phase = (switch.get("status") or {}).get("phase")
        if switch["spec"].get("pair") == pair and phase in ("Running", "RollingBack"):
            return f"{name}: RoleSwitch {switch['metadata']['name']} is running"
    if present.running_arm(observed) is not None:
        return f"{name}: an experiment is running"
    return None


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Close the pair; then stop its members; then render it no more."""
    pair = operation.pair
    if pair is None:
        return shape
    leaves, step = bool(operation.data.get("leaves")), operation.step
    if leaves:
        shape = dataclasses.replace(shape, closed=shape.closed | {pair})
    if step == "Unregister":
        return dataclasses.replace(shape, stopped=shape.stopped | _stopped(shape, operation, pair))
    if step == "DeleteMembers" and leaves:
        return dataclasses.replace(shape, pairs=min(shape.pairs, pair))
    if step == "DeleteMembers":
        kept = {key: value for key, value in shape.slaves.items() if key != pair}
        return dataclasses.replace(shape, slaves=kept)
    return shape


def _stopped(shape: Shape, operation: Operation, pair: int) -> set[tuple[int, int]]:
    """Return the members without a replica: slaves, and the master once the slaves are gone."""
    if not operation.data.get("leaves"):
        return {(pair, ordinal) for ordinal in operation.data["slaves"]}
    master = shape.masters.get(pair, 0)
    slaves = {(pair, ordinal) for ordinal in range(4) if ordinal != master}
    return slaves | {(pair, master)} if operation.data.get("slavesGone") else slaves


def advance(
    cluster: BrokerCluster,
    observed: ObservedCluster,
    desired: Mapping[Key, Object],
    operation: Operation,
    now: float,
) -> Advance:
    """Return what the ScaleDown wants of this pass."""
    turn = Turn(cluster, observed, desired, operation, now)
    if _is_taken_back(turn):
        return Advance(
            None, events=(Event("DrainFinished", f"{cluster.broker_name(turn.pair)}, taken back"),)
        )
    return _STEPS[operation.step](turn)


def _is_taken_back(turn: Turn) -> bool:
    if turn.data.get("leaves"):
        return not present.is_leaving(turn.cluster, turn.pair)
    return not all(present.is_leaving(turn.cluster, turn.pair, o) for o in turn.data["slaves"])


def _drain(turn: Turn) -> Advance:
    blocked = turn.check(_BEFORE)
    if blocked:
        return turn.stay(*blocked)
    if not turn.data.get("leaves"):
        return turn.go("Unregister")
    if turn.master_view.pod is None:  # nothing writes here; what it holds can't be asked either
        return turn.go("WaitEmpty")
    if turn.permission() is None:
        return turn.stay("MasterAnswers")
    if not turn.is_closed():
        return turn.stay(actions=turn.set_permission(CLOSED), closedAt=None)
    since = turn.data.get("closedAt")
    if since is None:
        event = Event("DrainStarted", turn.cluster.broker_name(turn.pair))
        return dataclasses.replace(turn.stay(closedAt=turn.now), events=(event,))
    left = since + ROUTE_SECONDS - turn.now
    return turn.go("WaitEmpty") if left <= 0 else turn.stay(wake=min(2.0, left))


def _empty(turn: Turn) -> Advance:
    name = turn.cluster.broker_name(turn.pair)
    lag = turn.observed.lags.get(turn.pair)
    skipped = turn.cluster.metadata.annotations.get(SKIP) == name
    if skipped or (lag is not None and lag.empty):
        blocked = turn.check(_BEFORE)
        if blocked:
            return turn.stay(*blocked)
        moved = turn.go("Unregister", topics=_own_topics(turn), slavesGone=False)
        text = f"{name}, unread messages are given up" if skipped else name
        return dataclasses.replace(moved, events=(Event("DrainFinished", text),))
    told = turn.data.get("toldAt")
    if lag is None or (told is not None and turn.now - told < TELL_SECONDS):
        return turn.stay("PairEmpty", wake=5.0)
    text = f"{name} is not consumed: {', '.join(lag.remaining[:5])}; a group that nobody runs "
    text += "never drains: delete its SubscriptionGroup, or the group by request 207"
    event = Event("DrainBlocked", text, warning=True)
    return turn.stay("PairEmpty", events=(event,), wake=5.0, toldAt=turn.now)


def _own_topics(turn: Turn) -> list[str]:
    """Return the topics that no other pair has: name servers may keep a trace of them."""
    broker = turn.master_view.broker
    own = set((broker.topics if broker else None) or {})
    return sorted(name for name in own - _elsewhere(turn) if not is_system_topic(name))[
        :_MAX_TOPICS
    ]


def _elsewhere(turn: Turn) -> set[str]:
    found: set[str] = set()
    for (pair, _), view in turn.observed.members.items():
        if pair != turn.pair and view.broker is not None:
            found |= set(view.broker.topics or {})
    return found


def _unregister(turn: Turn) -> Advance:
    slaves = [view for view in _leaving(turn) if view.ordinal != turn.master]
    if any(view.pod is not None for view in slaves):
        return turn.stay()
    if not turn.data.get("leaves"):
        return turn.go("DeleteMembers")
    if not turn.data.get("slavesGone"):
        return turn.stay(slavesGone=True, wake=0.0)
    if turn.master_view.pod is not None or not _is_unregistered(turn):
        return turn.stay()
    return turn.go("DeleteMembers")


def _is_unregistered(turn: Turn) -> bool:
    answers = [r.brokers for r in turn.observed.routes if r.brokers is not None]
    name = turn.cluster.broker_name(turn.pair)
    return bool(answers) and not any(answer.get(name) for answer in answers)


def _leaving(turn: Turn) -> list[MemberView]:
    ordinals = present.ordinals(turn.observed, turn.pair)
    if not turn.data.get("leaves"):
        ordinals = tuple(o for o in ordinals if o in turn.data["slaves"])
    return [turn.view(ordinal) for ordinal in ordinals]


def _delete(turn: Turn) -> Advance:
    """Delete one StatefulSet in a pass, from the highest ordinal, then what belongs to it."""
    leaving = _leaving(turn)
    if not leaving:
        topics = _forgotten(turn)
        if topics and not turn.data.get("forgotten"):
            return turn.stay(actions=topics, forgotten=True)
        # Once more: a crash may have come between that word in the status and the requests.
        return Advance(None, topics, (Event("PairRemoved", _removed(turn)),))
    view = leaving[-1]
    keys: tuple[Key, ...] = (
        ("StatefulSet", turn.name(view.ordinal)),
        ("ConfigMap", turn.name(view.ordinal)),
    )
    if turn.data.get("leaves") and len(leaving) == 1:
        keys = (*keys, ("PodDisruptionBudget", f"{turn.cluster.name}-{turn.pair}"))
    return turn.stay(actions=_deletions(turn, keys), wake=0.5)


def _removed(turn: Turn) -> str:
    name = turn.cluster.broker_name(turn.pair)
    if turn.data.get("leaves"):
        return name
    return ", ".join(f"{name}-{ordinal}" for ordinal in turn.data["slaves"])


def _deletions(turn: Turn, keys: tuple[Key, ...]) -> tuple[Action, ...]:
    found = ((key, turn.observed.objects.get(key)) for key in keys)
    return tuple(
        Delete(key, have["metadata"]["uid"])
        for key, have in found
        if have is not None and not have["metadata"].get("deletionTimestamp")
    )


def _forgotten(turn: Turn) -> tuple[Action, ...]:
    servers = tuple(turn.observed.name_servers or ())
    names = set(turn.data.get("topics") or ()) - _elsewhere(turn)
    return tuple(DeleteTopic(name, (), servers) for name in sorted(names)) if servers else ()


_STEPS: Final[Mapping[str, Callable[[Turn], Advance]]] = {
    "DrainPair": _drain,
    "WaitEmpty": _empty,
    "Unregister": _unregister,
    "DeleteMembers": _delete,
}
