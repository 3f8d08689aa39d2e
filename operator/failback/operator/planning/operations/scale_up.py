"""ScaleUp: a new pair takes no writes until it knows what the others know. Pure.

The members themselves are made with the other children, their master with ``brokerPermission=4``.
This operation waits for them, copies topics and groups from the lowest healthy pair, and opens.
Everything is read from what stands, so a pair that was left closed (by an operation given up, or
by a scale-down taken back) is opened here too. New slaves of a pair that serves are only awaited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import (
    Broker,
    Key,
    MemberView,
    Object,
    ObservedCluster,
)
from failback.operator.planning.operations import live_config
from failback.operator.planning.operations.turn import (
    OPEN,
    ROUTE_SECONDS,
    Turn,
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
    operation_id,
)
from failback.operator.planning.state import present
from failback.operator.render.shape import Member, Shape
from failback.operator.schema.rule_texts import SYSTEM_TOPICS

TYPE: Final = "ScaleUp"
PRIORITY: Final = 6
ABANDONABLE: Final = True

PUTS_PER_PASS: Final = 100
_SYSTEM_PREFIX: Final = "rmq_sys_"
_SYSTEM_GROUPS: Final = frozenset(
    {
        "DEFAULT_CONSUMER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CID_RMQ_SYS_TRANS",
    }
)  # SubscriptionGroupManager#init, apache/rocketmq 4.9.8: every broker makes them itself


def cause(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster, now: float
) -> Operation | None:
    """Return a ScaleUp of a pair that is closed, or that misses a member it never had.

    A pair whose members are up goes first; while none is, live changes elsewhere go first.
    """
    shape = present.base_shape(cluster, status, observed)
    candidates = []
    for pair in range(cluster.spec.pairs):
        missing = [o for o in cluster.pair(pair).ordinals if _is_new(observed, pair, o)]
        if pair in shape.closed or (missing and present.ordinals(observed, pair)):
            candidates.append((not _stands(cluster, observed, pair), pair))
    if not candidates:
        return None
    waits, pair = min(candidates)
    if waits and live_config.cause(cluster, status, observed, now) is not None:
        return None
    master = observed.member(pair, shape.masters[pair])
    return Operation(
        id=operation_id(TYPE, pair, cluster.metadata.generation, str(sorted(shape.closed))),
        type=TYPE,
        step="CreateMembers",
        pair=pair,
        started_at=now,
        step_started_at=now,
        data={
            "opens": pair in shape.closed,
            "existing": not present.ordinals(observed, pair) and master.claim is not None,
            "new": [list(member) for member in _new_slaves(cluster, observed)],
        },
    )


def _is_new(observed: ObservedCluster, pair: int, ordinal: int) -> bool:
    view = observed.member(pair, ordinal)
    return view.statefulset is None and view.config_map is None and view.pod is None


def _new_slaves(cluster: BrokerCluster, observed: ObservedCluster) -> Iterator[Member]:
    """Yield the members that pairs which serve are about to get."""
    for pair in present.pairs(observed):
        if pair < cluster.spec.pairs:
            for member in present.members(cluster, pair):
                if _is_new(observed, *member):
                    yield member


def _stands(cluster: BrokerCluster, observed: ObservedCluster, pair: int) -> bool:
    views = [observed.member(*member) for member in present.members(cluster, pair)]
    name = cluster.broker_name(pair)
    master = observed.member(pair, present.master_member(cluster, observed, pair, {}))
    registered = facts.is_registered(observed, name, master, 0)
    return registered and all(map(present.is_ready, views))


def only_waits(cluster: BrokerCluster, observed: ObservedCluster, operation: Operation) -> bool:
    """Tell whether the operation has nothing to do but to wait for members."""
    waits = operation.step in ("CreateMembers", "WaitRegistered")
    return waits and not _stands(cluster, observed, operation.pair or 0)


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Keep the pair closed, and open it at the last step."""
    if operation.pair is None or not operation.data.get("opens"):
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
    """Return what the ScaleUp wants of this pass."""
    turn = Turn(cluster, observed, desired, operation, now)
    if present.is_leaving(cluster, turn.pair):
        return Advance(None)  # the spec was lowered again: a ScaleDown takes it from here
    return timed(turn, _STEPS[operation.step](turn))


def _create(turn: Turn) -> Advance:
    wanted = turn.cluster.pair(turn.pair).ordinals
    if any(turn.view(ordinal).statefulset is None for ordinal in wanted):
        return turn.stay()
    return turn.go("WaitRegistered")


def _registered(turn: Turn) -> Advance:
    views = [turn.master_view, *turn.slaves()]
    if not all(present.is_ready(view) and turn.is_registered(view) for view in views):
        return turn.stay(*turn.check(("NameServersReachable",)))
    master = turn.master_view.broker
    if not all(facts.in_sync(master, slave.broker, turn.now) for slave in turn.slaves()):
        return turn.stay(*turn.check(("PrefixVerified",)))
    if turn.data.get("opens"):
        return turn.go("CopyMetadata")
    return Advance(None, events=_slaves_added(turn))


def _slaves_added(turn: Turn) -> tuple[Event, ...]:
    """Return one event per new slave: an empty one starts at its master's last log file."""
    events = []
    for pair, ordinal in turn.data.get("new", ()):
        broker = turn.observed.member(pair, ordinal).broker
        start = "" if broker is None or broker.start is None else f" from offset {broker.start}"
        label = member_label(turn.cluster, (pair, ordinal))
        events.append(Event("PairAdded", f"{label} replicates{start}"))
    return tuple(events)


# --- metadata -----------------------------------------------------------------------------------


def _copy(turn: Turn) -> Advance:
    target = turn.master_view.broker
    sources = [p for p in _other_pairs(turn) if p not in _closed_pairs(turn)]
    if not sources:
        return turn.go("OpenWrites")
    known = [view.broker for view in map(_master_of(turn), sources) if _tables(view)]
    if not known or not _tables(turn.master_view) or known[0] is None or target is None:
        return turn.stay("MasterAnswers")
    missing = _missing(turn, known[0], target)
    return turn.stay(actions=missing[:PUTS_PER_PASS]) if missing else turn.go("OpenWrites")


def _other_pairs(turn: Turn) -> list[int]:
    standing = present.pairs(turn.observed)
    return [p for p in range(turn.cluster.spec.pairs) if p != turn.pair and p in standing]


def _closed_pairs(turn: Turn) -> frozenset[int]:
    """Return the pairs that are closed too: they know no more than this one."""
    return present.base_shape(turn.cluster, {}, turn.observed).closed


def _master_of(turn: Turn) -> Callable[[int], MemberView]:
    def view(pair: int) -> MemberView:
        ordinal = present.master_member(turn.cluster, turn.observed, pair, {})
        return turn.observed.member(pair, ordinal)

    return view


def _tables(view: MemberView) -> bool:
    broker = view.broker
    return broker is not None and broker.topics is not None and broker.groups is not None


def _missing(turn: Turn, source: Broker, target: Broker) -> tuple[Action, ...]:
    elsewhere = _topics_of_other_pairs(turn)
    own = {turn.cluster.cluster_name} | {
        turn.cluster.broker_name(pair) for pair in present.pairs(turn.observed)
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
        if name not in (target.groups or {}) and name not in _SYSTEM_GROUPS
    ]
    return (*topics, *groups)


def is_system_topic(name: str) -> bool:
    """Tell whether brokers make a topic themselves."""
    return name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIX)


def _topics_of_other_pairs(turn: Turn) -> set[str]:
    """Return the topics that a Topic resource keeps to other pairs."""
    own = turn.cluster.broker_name(turn.pair)
    found: set[str] = set()
    for topic in turn.observed.topics:
        pairs = topic["spec"].get("pairs") or ["*"]
        if "*" not in pairs and own not in pairs:
            found.add(topic["spec"].get("topicName") or topic["metadata"]["name"])
    return found


def _open(turn: Turn) -> Advance:
    if turn.permission() != OPEN:
        return turn.stay(actions=turn.set_permission(OPEN))
    waited = turn.now - turn.operation.step_started_at
    if turn.route_is_writable() is False and waited <= ROUTE_SECONDS:
        return turn.stay()
    name = turn.cluster.broker_name(turn.pair)
    data = " with existing data" if turn.data.get("existing") else ""
    return Advance(None, events=(Event("PairAdded", f"{name}{data}"),))


_STEPS: Final[Mapping[str, Callable[[Turn], Advance]]] = {
    "CreateMembers": _create,
    "WaitRegistered": _registered,
    "CopyMetadata": _copy,
    "OpenWrites": _open,
}
