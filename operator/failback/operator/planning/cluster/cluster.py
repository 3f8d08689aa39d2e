"""Decide what a BrokerCluster needs now: one pass, from observation to actions and status. Pure.

Depends on its arguments only. Nothing is destroyed on what is not known, and at most one operation
runs. Once nothing is left to do the plan holds no action and an unchanged status.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning import operations
from failback.operator.planning.cluster import conditions, warnings
from failback.operator.planning.cluster import status as cluster_status
from failback.operator.planning.cluster.conditions import Verdict
from failback.operator.planning.cluster.engine_release import cluster_context
from failback.operator.planning.cluster.engine_warnings import CHANGE_REFUSED, refused_change
from failback.operator.planning.cluster.fixed_keys import refused_changes
from failback.operator.planning.cluster.shaping import shape_of
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, Object, ObservedCluster
from failback.operator.planning.operations.step_context import StepContext
from failback.operator.planning.plan.children import by_key, plan_children
from failback.operator.planning.plan.encoding import (
    condition,
    find_condition,
    from_time,
    merge_conditions,
    names,
    operation_to_status,
)
from failback.operator.planning.plan.memory import Desired, Memory
from failback.operator.planning.plan.types import (
    Action,
    Advance,
    Apply,
    Event,
    LabelPod,
    Operation,
    Plan,
    SetPodCondition,
)
from failback.operator.planning.state.claim_marks import claim_marks
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render import common
from failback.operator.render.broker import REGISTERED_GATE
from failback.operator.render.context import Context
from failback.operator.render.objects import render_cluster
from failback.operator.schema.permitted import broken

_OF_MEMBERS: Final = frozenset({"ConfigMap", "StatefulSet"})
_SOON: Final = 0.05
"""Seconds until the pass after one that opened or moved an operation."""
_WAITING: Final = 15.0
"""Seconds until the next look at something that is not as wanted, though nothing changed:
some causes are a matter of time."""
_LONGEST_RULE: Final = 90.0
"""Seconds after the last change from which on time alone turns nothing: no rule counts longer."""


def plan_cluster(
    cluster: BrokerCluster,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    context: Context,
    now: float,
    memory: Memory | None = None,
) -> Plan:
    """Return what brings the cluster towards its spec, and the status to write.

    Args:
        memory: Results of earlier passes; the plan is the same without it.
    """
    memory = Memory() if memory is None else memory
    state = _state(cluster, status, observed, now)
    refused = broken(cluster, context.permits)
    if refused:
        text = "; ".join(f"{item.rule} {item.path}: {item.message}" for item in refused[:3])
        return _only_status(state, context, "InvalidSpec", text)
    addresses = _name_servers(observed)
    if addresses is None:
        return _only_status(state, context, "NameServerMissing", _missing(cluster))
    shape = shape_of(state)
    rendered_in = cluster_context(cluster, observed, shape, context)
    desired = memory.render(
        cluster,
        addresses,
        rendered_in,
        shape,
        lambda: by_key(render_cluster(cluster, addresses, rendered_in, shape=shape)),
    )
    desired = _without_unclear(state, desired)
    if fixed := refused_changes(observed, desired):
        return _only_status(state, context, "InvalidSpec", "; ".join(fixed[:3]))
    taken = sorted(key for key in desired if key in observed.foreign)
    if taken:
        text = names(f"{kind}/{name} belongs to somebody else" for kind, name in taken)
        return _only_status(state, context, "NameTaken", text)
    children, drift = plan_children(desired.values(), observed.objects, memory)
    if state.is_paused:
        view = ClusterView(state, shape, desired, {}, state.running)
        return Plan(status=_status(view, context, rendered_in, paused=True, settled=False))
    contested = [pair for pair in range(shape.pairs) if state.is_contested(pair)]
    applied = [item for item in children if not _picks_a_master(item, observed, contested)]
    advance = _operate(state, desired, held=bool(contested))
    view = ClusterView(state, shape, desired, drift, advance.operation)
    begun = advance.operation if _begins(state.running, advance.operation) else None
    marks = claim_marks(state, desired, () if begun is None else (begun.pair,))
    actions = (*marks, *applied, *advance.actions, *_pod_marks(view))
    # The pass in which an operation ends does not know yet whether another pair needs one.
    idle = state.running is None and advance.operation is None
    settled = idle and not actions and not contested
    new = _status(view, context, rendered_in, paused=False, settled=settled)
    more = not advance.counts and _remembers_more(advance, state.running)
    return Plan(
        actions=actions,
        status=new,
        operation_first=bool(actions) and more,
        events=(*advance.events, *_operation_events(state.running, advance), *_events(view, new)),
        wake_after=_wake_after(view, advance, new),
    )


def _state(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster, now: float
) -> ClusterState:
    """Return the state of the pass; an operation of a type this release lacks is given up."""
    state = ClusterState.of(cluster, status, observed, now)
    known = state.running is None or state.running.type in operations.OPERATIONS
    return state if known else dataclasses.replace(state, running=None)


def _remembers_more(advance: Advance, running: Operation | None) -> bool:
    """Tell whether what the operation is to remember has changed: its step, its data.

    What it waited for is not of that kind. Written before the action it waited with, it would keep
    operators from that action whose lives end with a write: each next one has to wait anew.
    """
    return _remembered(advance.operation) != _remembered(running)


def _remembered(operation: Operation | None) -> Operation | None:
    return operation and dataclasses.replace(operation, blocked_by=(), attempts=0)


def _missing(cluster: BrokerCluster) -> str:
    reference = cluster.spec.name_server_ref
    return f"there is no NameServer {reference.name if reference else ''}".rstrip()


def _name_servers(observed: ObservedCluster) -> list[str] | None:
    """Return the addresses to render: those given, else the last that members were told."""
    if observed.name_servers is not None:
        return list(observed.name_servers)
    for _, member in sorted(observed.members.items()):
        known = facts.properties(member.config_map).get("namesrvAddr")
        if known:
            return known.split(";")
    return None


def _operate(state: ClusterState, desired: Mapping[Key, Object], *, held: bool) -> Advance:
    """Advance the running operation, or open the one whose cause comes first.

    Args:
        held: A pair has two masters. Which of them is right is not for us to say, so that nothing
            goes on; a RoleSwitch waits in its own way.
    """
    chosen = operations.choose(state)
    if held and chosen is not None and chosen.type != operations.role_switch.TYPE:
        return Advance(chosen.blocked("SingleMaster"))
    if chosen is None or chosen != state.running:
        return Advance(chosen, wake_after=_SOON)
    return operations.advance(StepContext(state, desired, chosen))


def _picks_a_master(action: Action, observed: ObservedCluster, contested: Sequence[int]) -> bool:
    """Tell whether an action changes what a member of a pair with two masters of ours starts from.

    A member that is asked to stop is stopped: that is how a person ends that state.
    """
    if not isinstance(action, Apply) or action.manifest["kind"] not in _OF_MEMBERS:
        return False
    pair = action.manifest["metadata"].get("labels", {}).get("failback.dev/pair")
    stops = action.manifest.get("spec", {}).get("replicas") == 0
    return not stops and any(
        pair == str(index) and len(facts.claims_to_be_master(observed, index)) > 1
        for index in contested
    )


def _pod_marks(view: ClusterView) -> tuple[Action, ...]:
    """Return what pods are to show: the role a broker says it has, and whether it is listed."""
    found: list[Action] = []
    for member in view.members:
        pod = member.pod
        if pod is None or pod.deleting:
            continue
        says_master = facts.says_master(member.broker)
        if says_master is not None:
            role = "master" if says_master else "slave"
            if pod.role != role:
                found.append(LabelPod(pod.name, pod.uid, {common.ROLE_LABEL: role}))
        if pod.gate is not None and facts.routes_known(view.observed):
            listed = view.is_registered(member)
            if pod.gate != listed:
                found.append(SetPodCondition(pod.name, pod.uid, REGISTERED_GATE, listed))
    return tuple(found)


def _without_unclear(state: ClusterState, desired: Desired) -> Desired:
    """Leave out what would open a pair whose master cannot be told.

    Its members that exist are stopped, and keep the files that they have.
    """
    if not state.unclear:
        return desired
    stands = {key for key in state.observed.objects if key[0] != "ConfigMap"}
    unclear = {str(pair) for pair in state.unclear}
    return {
        key: item
        for key, item in desired.items()
        if key in stands
        or item["metadata"].get("labels", {}).get("failback.dev/pair") not in unclear
    }


def _begins(before: Operation | None, after: Operation | None) -> bool:
    return after is not None and (before is None or before.id != after.id)


def _operation_events(running: Operation | None, advance: Advance) -> tuple[Event, ...]:
    after = advance.operation
    found = []
    if running is not None and (after is None or after.id != running.id):
        found.append(Event("OperationFinished", f"{running.type} {running.id}"))
    if after is not None and (running is None or after.id != running.id):
        found.append(Event("OperationStarted", f"{after.type} {after.id}"))
    if after is not None and after.blocked_by:
        before = running.blocked_by if running is not None and running.id == after.id else ()
        if set(after.blocked_by) != set(before):
            text = f"{after.type} at {after.step} waits for {names(after.blocked_by)}"
            found.append(Event("OperationBlocked", text, warning=True))
    return tuple(found)


def _verdicts(view: ClusterView, version: str) -> list[Verdict]:
    ready = conditions.ready(view)
    if view.observed.name_servers is None:
        ready = Verdict("Ready", False, "NameServerMissing", _missing(view.cluster))
    return [
        ready,
        conditions.config_applied(view),
        conditions.roles_consistent(view),
        conditions.replication_healthy(view),
        conditions.metadata_synced(view),
        conditions.scaling_down(view),
        conditions.reconciling(view),
        warnings.warning(view, version),
    ]


def _status(
    view: ClusterView, context: Context, rendered_in: Context, *, paused: bool, settled: bool
) -> dict[str, Any]:
    """Return the whole status; fields that are not ours to say stay as they were.

    Args:
        context: Of this operator.
        rendered_in: The same with the release that the cluster's members run.
    """
    version = common.engine_version(view.cluster.spec.engine, rendered_in)
    verdicts = [*_verdicts(view, version), _paused(paused)]
    found = {
        **view.previous,
        "operatorVersion": view.observed.version_shown or context.version,
        "replicas": cluster_status.pairs_present(view),
        "readyPairs": cluster_status.ready_pairs(view),
        "selector": cluster_status.selector(view),
        "pendingRestarts": cluster_status.pending_restarts(view),
        "pairs": cluster_status.pairs(view),
    }
    if settled:
        found["observedGeneration"] = view.cluster.metadata.generation
    found.pop("currentOperation", None)
    if view.operation is not None:
        found["currentOperation"] = operation_to_status(view.operation)
    found, truncated = cluster_status.trimmed(found)
    if truncated:
        verdicts = [warnings.truncated(item) for item in verdicts]
    found["conditions"] = _conditions(view.state, verdicts)
    return found


def _paused(value: bool) -> Verdict:
    return Verdict("Paused", value, "Requested" if value else "None")


def _conditions(state: ClusterState, verdicts: list[Verdict]) -> list[dict[str, Any]]:
    generation = state.cluster.metadata.generation
    found = [
        condition(
            state.status,
            item.type,
            item.value,
            item.reason,
            item.message,
            now=state.now,
            generation=generation,
        )
        for item in verdicts
    ]
    return merge_conditions(state.status, found)


def _only_status(state: ClusterState, context: Context, reason: str, message: str) -> Plan:
    """Return a plan that says why nothing is done; the children stay as they are."""
    previous = state.status
    verdicts = [Verdict("Ready", False, reason, message), _paused(state.is_paused)]
    found = {
        **previous,
        "operatorVersion": previous.get("operatorVersion") or context.version,
        "conditions": _conditions(state, verdicts),
    }
    events: tuple[Event, ...] = ()
    if _turned(previous, "Ready", reason):
        events = (Event(reason, message, warning=True),)
        if reason == "InvalidSpec" and ".config" in message:
            events = (*events, Event("ConfigRejected", message, warning=True))
    return Plan(status=found, events=events)


def _turned(previous: Mapping[str, Any], kind: str, reason: str) -> bool:
    """Tell whether a condition gives this reason for the first time."""
    before = find_condition(previous, kind)
    return before is None or before["reason"] != reason


def _events(view: ClusterView, new: Mapping[str, Any]) -> tuple[Event, ...]:
    """Return the events of conditions that turned in this pass."""
    found = []
    for kind, reason, event in (
        ("RolesConsistent", "TwoMasters", "TwoMastersDetected"),
        ("ReplicationHealthy", "Diverged", "SlaveDiverged"),
        ("ReplicationHealthy", "SlaveAhead", "SlaveDiverged"),
        ("ReplicationHealthy", "SlaveLagging", "SlaveLagging"),
        ("MetadataSynced", "SlaveAheadOfMaster", "SlaveAheadOfMaster"),
        ("ScalingDown", "ScaleDownRefused", "ScaleDownRefused"),
    ):
        now = find_condition(new, kind)
        if now and now["reason"] == reason and _turned(view.previous, kind, reason):
            found.append(Event(event, now["message"], warning=True))
    refused = refused_change(new)
    if refused is not None and refused != refused_change(view.previous):
        found.append(Event(CHANGE_REFUSED, refused, warning=True))
    return tuple(found)


def _wake_after(view: ClusterView, advance: Advance, new: Mapping[str, Any]) -> float | None:
    if advance.operation != view.state.running:
        return _SOON
    if advance.operation is not None:
        return advance.wake_after
    ready = find_condition(new, "Ready")
    if (ready and ready["status"] == "True") or view.now - _changed_at(view, new) > _LONGEST_RULE:
        return None
    return _WAITING


def _changed_at(view: ClusterView, new: Mapping[str, Any]) -> float:
    """Return the Unix time of the newest change from which a rule counts; 0 without any."""
    observed = view.observed
    times: list[float | None] = [
        *observed.master_since.values(),
        *observed.masterless_since.values(),
        *(from_time(item["lastTransitionTime"]) for item in new["conditions"]),
    ]
    for member in view.members:
        if member.broker is not None:
            times.append(member.broker.stalled_since)
        if member.pod is not None:
            times += [member.pod.started_at, member.pod.ready_since]
    return max((time for time in times if time is not None), default=0.0)
