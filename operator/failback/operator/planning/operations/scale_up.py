"""ScaleUp: a new pair takes no writes until it knows what the others know. Pure.

The members themselves are made with the other children, their master with ``brokerPermission=4``.
This operation waits for them, copies topics and groups from the lowest healthy pair, and opens.
Everything is read from what exists. So a pair that was left closed, by an operation given up or by
a scale-down taken back, is opened here too. New slaves of a pair that serves are only awaited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Broker, MemberView
from failback.operator.planning.operations.step_context import (
    OPEN,
    ROUTE_SECONDS,
    StepContext,
    member_label,
    timed,
)
from failback.operator.planning.plan.types import (
    Action,
    Advance,
    Event,
    Operation,
    PutGroup,
    PutTopic,
)
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Member, Shape
from failback.protocol.names import is_reserved_group, is_system_topic

TYPE: Final = "ScaleUp"
PUTS_PER_PASS: Final = 100


def causes(state: ClusterState) -> Iterator[Operation]:
    """Yield a ScaleUp of each pair that is closed, or that misses a member it never had.

    A pair whose members are up goes first, and beside one that waits for its members.
    """
    closed = state.base_shape.closed
    candidates = []
    for pair in range(state.cluster.spec.pairs):
        misses_one = any(not view.exists for view in state.wanted(pair))
        if pair in closed or (misses_one and pair in state.ordinals):
            candidates.append((not state.is_whole(pair), pair))
    begun = any(item.type == TYPE for item in state.operations)
    for waits, pair in sorted(candidates):
        if not (begun and waits):
            yield _operation(state, pair)


def _operation(state: ClusterState, pair: int) -> Operation:
    closed = state.base_shape.closed
    data = {
        "opens": pair in closed,
        "existing": state.master(pair).config_map is None and bool(state.master(pair).claim),
        "new": [list(member) for member in _new_slaves(state)],
    }
    return state.begin(TYPE, "CreateMembers", str(sorted(closed)), pair=pair, data=data)


def _new_slaves(state: ClusterState) -> Iterator[Member]:
    """Yield the members that pairs which serve are about to get."""
    for pair in state.pairs:
        if pair < state.cluster.spec.pairs:
            for view in state.wanted(pair):
                if not view.exists:
                    yield pair, view.ordinal


def give_way(state: ClusterState, operation: Operation, urgent: Operation) -> Operation | None:
    """End the ScaleUp: all it has to go by is what exists, so that it begins again at any time."""
    return None


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Keep the pair closed, and open it at the last step."""
    if operation.pair is None or not operation.data.get("opens"):
        return shape
    own = frozenset({operation.pair})
    closed = shape.closed - own if operation.step == "OpenWrites" else shape.closed | own
    return dataclasses.replace(shape, closed=closed)


def advance(step: StepContext) -> Advance:
    """Return what the ScaleUp wants of this pass."""
    if step.state.is_leaving(step.pair):
        return Advance(None)  # the spec was lowered again: a ScaleDown takes it from here
    return timed(step, _STEPS[step.operation.step](step))


def _create(step: StepContext) -> Advance:
    if any(view.statefulset is None for view in step.state.wanted(step.pair)):
        return step.stay()
    return step.go("WaitRegistered")


def _registered(step: StepContext) -> Advance:
    views = [step.master_view, *step.slaves()]
    if not all(view.is_ready and step.is_registered(view) for view in views):
        return step.stay(*step.check(("NameServersReachable",)))
    master = step.master_view.broker
    if not all(facts.in_sync(master, slave.broker, step.now) for slave in step.slaves()):
        return step.stay(*step.check(("PrefixVerified",)))
    if step.data.get("opens"):
        return step.go("CopyMetadata")
    return Advance(None, events=_slaves_added(step))


def _slaves_added(step: StepContext) -> tuple[Event, ...]:
    """Return one event per new slave: an empty one starts at its master's last log file."""
    events = []
    for pair, ordinal in step.data.get("new", ()):
        broker = step.observed.member(pair, ordinal).broker
        start = "" if broker is None or broker.start is None else f" from offset {broker.start}"
        label = member_label(step.cluster, (pair, ordinal))
        events.append(Event("PairAdded", f"{label} replicates{start}"))
    return tuple(events)


# --- metadata -----------------------------------------------------------------------------------


def _copy(step: StepContext) -> Advance:
    target = step.master_view.broker
    sources = [step.state.master(pair) for pair in _open_pairs(step)]
    if not sources:
        return step.go("OpenWrites")
    known = [view.broker for view in sources if _tables(view)]
    if not known or not _tables(step.master_view) or known[0] is None or target is None:
        return step.stay("MasterAnswers")
    missing = _missing(step, known[0], target)
    return step.stay(actions=missing[:PUTS_PER_PASS]) if missing else step.go("OpenWrites")


def _open_pairs(step: StepContext) -> list[int]:
    """Return the other pairs; those that are closed too know no more than this one."""
    not_these = {step.pair, *step.state.base_shape.closed}
    wanted = [pair for pair in step.state.pairs if pair < step.cluster.spec.pairs]
    return [pair for pair in wanted if pair not in not_these]


def _tables(view: MemberView) -> bool:
    broker = view.broker
    return broker is not None and broker.topics is not None and broker.groups is not None


def _missing(step: StepContext, source: Broker, target: Broker) -> tuple[Action, ...]:
    elsewhere = _topics_of_other_pairs(step)
    own = {step.cluster.cluster_name} | {
        step.cluster.broker_name(pair) for pair in step.state.pairs
    }
    topics = [
        PutTopic(target.address, config)
        for name, config in sorted((source.topics or {}).items())
        if name not in (target.topics or {})
        and name not in elsewhere
        and name not in own
        and not is_system_topic(name)
    ]
    groups = [
        PutGroup(target.address, config)
        for name, config in sorted((source.groups or {}).items())
        if name not in (target.groups or {}) and not is_reserved_group(name)
    ]
    return (*topics, *groups)


def _topics_of_other_pairs(step: StepContext) -> set[str]:
    """Return the topics that a Topic resource keeps to other pairs."""
    own = step.broker_name
    found: set[str] = set()
    for topic in step.observed.topics:
        pairs = topic["spec"].get("pairs") or ["*"]
        if "*" not in pairs and own not in pairs:
            found.add(topic["spec"].get("topicName") or topic["metadata"]["name"])
    return found


def _open(step: StepContext) -> Advance:
    if step.permission() != OPEN:
        return step.stay(actions=step.set_permission(OPEN))
    waited = step.now - step.operation.step_started_at
    if step.route_is_writable() is False and waited <= ROUTE_SECONDS:
        return step.stay()
    name = step.broker_name
    data = " with existing data" if step.data.get("existing") else ""
    return Advance(None, events=(Event("PairAdded", f"{name}{data}"),))


_STEPS: Final[Mapping[str, Callable[[StepContext], Advance]]] = {
    "CreateMembers": _create,
    "WaitRegistered": _registered,
    "CopyMetadata": _copy,
    "OpenWrites": _open,
}
