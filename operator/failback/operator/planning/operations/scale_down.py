"""ScaleDown: members leave from the highest index, and nothing that was not consumed is lost. Pure.

A pair is closed and waits until every group has consumed it. It is stopped, slaves first: the
master's clean stop unregisters it. Then its objects go. Claims stay. Raising ``pairs`` again takes
it back at any time: the pair is still there or is made again over its claims, and ScaleUp opens it.
Slaves that leave need no draining.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed.observed import Key, MemberView, PairLag
from failback.operator.planning.operations.step_context import CLOSED, ROUTE_SECONDS, StepContext
from failback.operator.planning.plan.encoding import names
from failback.operator.planning.plan.types import (
    Action,
    Advance,
    Delete,
    DeleteTopic,
    Event,
    Operation,
)
from failback.operator.planning.state import precedence, predicates
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Shape
from failback.protocol.names import is_system_topic

TYPE: Final = "ScaleDown"
STOPPING: Final = frozenset({"Unregister", "DeleteMembers"})
"""Steps that stop members, or delete them."""

SKIP: Final = "failback.dev/skip-scaledown-check"
GIVE_UP: Final = "failback.dev/give-up-groups"
"""Groups, separated by commas, whose unread messages do not keep a pair that leaves."""
TELL_SECONDS: Final = 600.0
_MAX_TOPICS: Final = 256
_BEFORE: Final = ("NotPaused", "NoChaosRunning", "NameServersReachable")


def causes(state: ClusterState) -> Iterator[Operation]:
    """Yield a ScaleDown of the highest pair that leaves, and of the slaves of each pair that leave.

    The pair below it waits: pairs are numbered without gaps. None is closed while another one is
    disturbed.
    """
    highest = max(state.pairs, default=0)
    for pair in reversed(state.pairs):
        leaves = state.is_leaving(pair)
        surplus = _surplus(state, pair)
        if not (leaves or surplus) or _refusal(state, pair):
            continue
        if leaves and (
            pair < highest or predicates.evaluate(("NoOtherOperation",), state, pair=pair)
        ):
            continue
        data = {"leaves": leaves, "slaves": surplus}
        yield state.begin(TYPE, "DrainPair", f"{leaves} {surplus}", pair=pair, data=data)


def give_way(state: ClusterState, operation: Operation, urgent: Operation) -> Operation | None:
    """End a ScaleDown of slaves that has begun nothing, or does not come to its end.

    A pair that leaves goes on: no other operation works on it.
    """
    if operation.data.get("leaves"):
        return operation
    begun = operation.step != "DrainPair" and precedence.is_recent(operation, state.now)
    return operation if begun and urgent.data.get("mode") != "Forced" else None


def _surplus(state: ClusterState, pair: int) -> list[int]:
    slaves = state.cluster.pair(pair).slaves
    return [ordinal for ordinal in state.ordinals[pair] if ordinal > slaves]


def refusals(state: ClusterState) -> tuple[str, ...]:
    """Return why members that the spec has no place for stay all the same."""
    found = (_refusal(state, pair) for pair in state.pairs)
    return tuple(text for text in found if text)


def _refusal(state: ClusterState, pair: int) -> str | None:
    name = state.cluster.broker_name(pair)
    master, slaves = state.master_member(pair), state.cluster.pair(pair).slaves
    leaves = state.is_leaving(pair)
    if not leaves and not _surplus(state, pair):
        return None
    if not leaves and master > slaves:
        return f"{name}: member {master} is the master; switch roles before slavesPerPair {slaves}"
    for switch in state.observed.role_switches:
        phase = (switch.get("status") or {}).get("phase")
        if switch["spec"].get("pair") == pair and phase in ("Running", "RollingBack"):
            return f"{name}: RoleSwitch {switch['metadata']['name']} is running"
    if state.arm is not None:
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


def advance(step: StepContext) -> Advance:
    """Return what the ScaleDown wants of this pass."""
    if not is_wanted(step.state, step.operation):
        return Advance(None, events=(Event("DrainFinished", f"{step.broker_name}, taken back"),))
    return _STEPS[step.operation.step](step)


def is_wanted(state: ClusterState, operation: Operation) -> bool:
    """Tell whether the spec has no place for what an operation takes away."""
    pair, slaves = operation.pair, operation.data.get("slaves")
    if pair is None:
        return False
    if operation.data.get("leaves"):
        return state.is_leaving(pair)
    return bool(slaves) and all(state.is_leaving(pair, ordinal) for ordinal in slaves or ())


def _drain(step: StepContext) -> Advance:
    blocked = step.check(_BEFORE)
    if blocked:
        return step.stay(*blocked)
    if not step.data.get("leaves"):
        return step.go("Unregister")
    if step.master_view.pod is None:  # nothing writes here; what it holds can't be asked either
        return step.go("WaitEmpty")
    if step.permission() is None:
        return step.stay("MasterAnswers")
    if not step.is_closed():
        return step.stay(actions=step.set_permission(CLOSED), closedAt=None)
    since = step.data.get("closedAt")
    if since is None:
        event = Event("DrainStarted", step.broker_name)
        return dataclasses.replace(step.stay(closedAt=step.now), events=(event,))
    left = since + ROUTE_SECONDS - step.now
    return step.go("WaitEmpty") if left <= 0 else step.stay(wake=min(2.0, left))


def _empty(step: StepContext) -> Advance:
    name = step.broker_name
    lag = step.observed.lags.get(step.pair)
    skipped = step.cluster.metadata.annotations.get(SKIP) == name
    counted = None if lag is None else _counted(step, lag)
    if skipped or counted == {}:
        blocked = step.check(_BEFORE)
        if blocked:
            return step.stay(*blocked)
        moved = step.go("Unregister", topics=_own_topics(step), slavesGone=False)
        doubts = _given_up(step, lag)
        text = "; ".join((name, *doubts))
        return dataclasses.replace(moved, events=(Event("DrainFinished", text, bool(doubts)),))
    last = step.data.get("toldAt")
    if counted is None or (last is not None and step.now - last < TELL_SECONDS):
        return step.stay("PairEmpty", wake=5.0)
    groups = names(dict.fromkeys(item.partition("@")[0] for item in counted))
    text = f"{name} is not consumed: {_figures(counted)}; a group that nobody runs never drains: "
    text += f"delete it, or give its messages up by {GIVE_UP}: {groups}"
    event = Event("DrainBlocked", text, warning=True)
    return step.stay("PairEmpty", events=(event,), wake=5.0, toldAt=step.now)


def _counted(step: StepContext, lag: PairLag) -> dict[str, int]:
    """Return what is unread and not given up: ``group@topic`` → messages."""
    words = step.cluster.metadata.annotations.get(GIVE_UP, "").split(",")
    given_up = {word.strip() for word in words}
    return {
        item: count for item, count in lag.unread.items() if item.partition("@")[0] not in given_up
    }


def _given_up(step: StepContext, lag: PairLag | None) -> list[str]:
    """Return what goes unread with the pair, in figures, and which group never read there."""
    if lag is None:
        return ["unread messages are given up"]
    found = [f"given up: {_figures(lag.unread)}"] if lag.unread else []
    resources = step.observed.groups
    declared = {item["spec"].get("groupName") or item["metadata"]["name"] for item in resources}
    never = sorted(declared - lag.groups)
    return [*found, *([f"never read there: {names(never)}"] if never else [])]


def _figures(unread: Mapping[str, int]) -> str:
    return names(f"{item}: {count}" for item, count in unread.items())


def _own_topics(step: StepContext) -> list[str]:
    """Return the topics that no other pair has: name servers may keep a trace of them."""
    broker = step.master_view.broker
    own = set((broker.topics if broker else None) or {})
    return sorted(name for name in own - _elsewhere(step) if not is_system_topic(name))[
        :_MAX_TOPICS
    ]


def _elsewhere(step: StepContext) -> set[str]:
    found: set[str] = set()
    for (pair, _), view in step.observed.members.items():
        if pair != step.pair and view.broker is not None:
            found |= set(view.broker.topics or {})
    return found


def _unregister(step: StepContext) -> Advance:
    slaves = [view for view in _leaving(step) if view.ordinal != step.master]
    if any(view.pod is not None for view in slaves):
        return step.stay()
    if not step.data.get("leaves"):
        return step.go("DeleteMembers")
    if not step.data.get("slavesGone"):
        return step.stay(slavesGone=True, wake=0.0)
    is_unregistered = bool(step.registered) and not any(step.registered)
    if step.master_view.pod is not None or not is_unregistered:
        return step.stay()
    return step.go("DeleteMembers")


def _leaving(step: StepContext) -> list[MemberView]:
    ordinals = step.state.ordinals.get(step.pair, ())
    if not step.data.get("leaves"):
        ordinals = tuple(o for o in ordinals if o in step.data["slaves"])
    return [step.view(ordinal) for ordinal in ordinals]


def _delete(step: StepContext) -> Advance:
    """Delete one StatefulSet in a pass, from the highest ordinal, then what belongs to it."""
    leaving = _leaving(step)
    if not leaving:
        topics = _forgotten(step)
        if topics and not step.data.get("forgotten"):
            return step.stay(actions=topics, forgotten=True)
        # Once more: a crash may have come between that word in the status and the requests.
        return Advance(None, topics, (Event("PairRemoved", _removed(step)),))
    view = leaving[-1]
    keys: tuple[Key, ...] = (
        ("StatefulSet", step.name(view.ordinal)),
        ("ConfigMap", step.name(view.ordinal)),
    )
    if step.data.get("leaves") and len(leaving) == 1:
        keys = (*keys, ("PodDisruptionBudget", f"{step.cluster.name}-{step.pair}"))
    return step.stay(actions=_deletions(step, keys), wake=0.5)


def _removed(step: StepContext) -> str:
    name = step.broker_name
    if step.data.get("leaves"):
        return name
    return ", ".join(f"{name}-{ordinal}" for ordinal in step.data["slaves"])


def _deletions(step: StepContext, keys: tuple[Key, ...]) -> tuple[Action, ...]:
    found = ((key, step.observed.objects.get(key)) for key in keys)
    return tuple(
        Delete(key, have["metadata"]["uid"])
        for key, have in found
        if have is not None and not have["metadata"].get("deletionTimestamp")
    )


def _forgotten(step: StepContext) -> tuple[Action, ...]:
    servers = step.observed.own_name_servers
    names = set(step.data.get("topics") or ()) - _elsewhere(step)
    return tuple(DeleteTopic(name, (), servers) for name in sorted(names)) if servers else ()


_STEPS: Final[Mapping[str, Callable[[StepContext], Advance]]] = {
    "DrainPair": _drain,
    "WaitEmpty": _empty,
    "Unregister": _unregister,
    "DeleteMembers": _delete,
}
