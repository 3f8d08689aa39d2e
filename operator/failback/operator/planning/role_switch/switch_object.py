"""Decide what a RoleSwitch object needs now: its status, its end, its finalizer. Pure.

The switch itself is an operation of the cluster. This plan mirrors the operation into the status,
and says what a switch waits for that has not begun. It keeps the object as long as the operation
needs it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.role_switch import RoleSwitch, RoleSwitchSpec
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.operations import role_switch as operation_steps
from failback.operator.planning.operations.step_context import member_label
from failback.operator.planning.operations.switching.preflight import preflight
from failback.operator.planning.operations.switching.request import (
    ENDED,
    EXPERIMENT,
    TYPE,
    Request,
)
from failback.operator.planning.operations.turns import waits_for
from failback.operator.planning.plan.encoding import (
    Verdict,
    from_time,
    judged,
    names,
    operations_from_status,
    to_time,
)
from failback.operator.planning.plan.types import Action, Delete, Event, Operation, Plan
from failback.operator.planning.state.cluster_state import ClusterState

_RUNNING_SECONDS: Final = 2.0
_PENDING_SECONDS: Final = 5.0
_GIVE_UP_SECONDS: Final = 60.0
"""Deletion waits so long for an undo; then the cluster finishes it without the object."""
_UNSAFE_WORDS: Final = {
    "OffsetPolicyNone": "consumer offsets were not carried over: messages will be re-consumed",
    "Forced": "the old master did not hand over: its last messages and offsets may be missing",
    "LagAccepted": "the target lacked messages that maxLagBytes allowed it to lack",
    "PrefixUnverified": "the old master's log has not been compared with the new master's",
    "Diverged": "the old master's log differs from the new master's",
    "SnapshotLost": "the offset snapshot was lost before it was applied",
}


def plan_role_switch(
    switch: RoleSwitch,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    cluster: BrokerCluster | None,
    now: float,
    *,
    deleting: bool,
) -> Plan:
    """Return the status of a RoleSwitch, and whether its object may go.

    Args:
        status: Its status as stored.
        observed: Of the cluster it names.
        cluster: With its status; ``None`` when there is none of that name.
        deleting: ``metadata.deletionTimestamp`` is set.
    """
    if status.get("phase") in ENDED:
        return _ended(switch, status, now, deleting=deleting)
    operation = _operation(switch, cluster)
    if deleting:
        plan = _deleting(switch, status, cluster, operation, now)
        if plan is not None:
            return plan
    if cluster is not None and operation is not None:
        plan = _mirrored(switch, status, cluster, operation, now)
        return dataclasses.replace(plan, finalizer=plan.status["phase"] not in ENDED)
    return dataclasses.replace(_pending(switch, status, observed, cluster, now), finalizer=False)


def _operation(switch: RoleSwitch, cluster: BrokerCluster | None) -> Operation | None:
    """Return the operation of the cluster that is this switch."""
    for found in operations_from_status(cluster.status) if cluster is not None else ():
        if found.type == TYPE and found.data.get("uid") == switch.metadata.uid:
            return found
    return None


# --- after its end ------------------------------------------------------------------------------


def _ended(switch: RoleSwitch, status: Mapping[str, Any], now: float, *, deleting: bool) -> Plan:
    """Return the plan of a switch that is over: it goes when its time has come."""
    if deleting:
        return Plan(status=status, finalizer=False)
    ttl = switch.spec.ttl_seconds_after_finished
    finished = from_time(status.get("finishedAt"))
    if ttl is None or finished is None:
        return Plan(status=status, finalizer=False)
    left = finished + ttl - now
    if left > 0:
        return Plan(status=status, wake_after=left, finalizer=False)
    gone: tuple[Action, ...] = (Delete((TYPE, switch.name), switch.metadata.uid),)
    return Plan(actions=gone, status=status, wake_after=_PENDING_SECONDS, finalizer=False)


def _deleting(
    switch: RoleSwitch,
    status: Mapping[str, Any],
    cluster: BrokerCluster | None,
    operation: Operation | None,
    now: float,
) -> Plan | None:
    """Return the plan that lets the object go, or ``None`` while it is still needed."""
    if cluster is None or operation is None or cluster.metadata.deletion_timestamp:
        return Plan(status=status, finalizer=False)
    if operation.step in operation_steps.HELD_BY_OBJECT:
        return None
    if operation.step in operation_steps.UNDOABLE or operation.step == operation_steps.ROLL_BACK:
        since = from_time(switch.metadata.deletion_timestamp)
        if since is None or now - since < _GIVE_UP_SECONDS:
            return None
        text = f"{switch.name} is let go at {operation.step}; the cluster undoes the rest"
        return Plan(status=status, finalizer=False, events=(Event("RoleSwitchFailed", text, True),))
    return Plan(status=status, finalizer=False)


# --- while it waits -----------------------------------------------------------------------------


def _pending(
    switch: RoleSwitch,
    status: Mapping[str, Any],
    observed: ObservedCluster,
    cluster: BrokerCluster | None,
    now: float,
) -> Plan:
    request = Request(
        name=switch.name,
        uid=switch.metadata.uid,
        spec=switch.spec,
        created_at=from_time(switch.metadata.creation_timestamp) or 0.0,
        experiment=switch.metadata.labels.get(EXPERIMENT, ""),
    )
    words = ""
    if cluster is None:
        blocked: tuple[str, ...] = ("ClusterExists",)
    else:
        state = ClusterState.of(cluster, cluster.status, observed, now)
        found = preflight(state, request)
        asking = Operation("", TYPE, "Preflight", switch.spec.pair, blocked_by=found.blocked)
        words = waits_for(state, asking)
        if found.refused:
            return _failed_early(switch, status, "Preflight", found.refused, now)
        blocked = found.blocked
    if now > request.deadline:
        waited = f" for {names(blocked)}" if blocked else ""
        text = f"did not begin within {request.spec.timeout_seconds} s, waiting{waited}"
        return _failed_early(switch, status, "TimedOut", text, now)
    new = _status(switch, status, now, "Pending", reason="Pending", message="")
    # With nothing in its way it begins at once, and its steps say so. Said here as well, an
    # operator that began again, to which no master is steady yet, would take it back.
    new["blockedBy"] = list(blocked or status.get("blockedBy", ()))
    if cluster is not None:
        new["toMember"] = member_label(cluster, (request.spec.pair, request.spec.target_member))
        new["targetLag"] = last_known_lag(cluster, request.spec)
    events: tuple[Event, ...] = ()
    if blocked and set(blocked) != set(status.get("blockedBy", ())):
        text = f"{switch.name} waits for {words or names(blocked)}"
        events = (Event("RoleSwitchBlocked", text, warning=switch.spec.mode == "Forced"),)
    return Plan(status=new, events=events, wake_after=_PENDING_SECONDS)


def _failed_early(
    switch: RoleSwitch, status: Mapping[str, Any], reason: str, message: str, now: float
) -> Plan:
    """Return the end of a switch that touched nothing."""
    new = _status(switch, status, now, "Failed", reason=reason, message=message)
    new["finishedAt"] = to_time(now)
    event = Event("RoleSwitchFailed", f"{switch.name}: {reason}: {message}", warning=True)
    return Plan(status=new, events=(event,))


# --- while it runs ------------------------------------------------------------------------------


def _mirrored(
    switch: RoleSwitch,
    status: Mapping[str, Any],
    cluster: BrokerCluster,
    operation: Operation,
    now: float,
) -> Plan:
    """Return the status that shows the cluster's operation."""
    data = operation.data
    over = operation.step == operation_steps.FINISHED
    phase = "Running"
    if operation.step == operation_steps.ROLL_BACK:
        phase = "RollingBack"
    elif over:
        phase = data["phase"]
    reason = data.get("reason", phase)
    new = _status(
        switch,
        status,
        now,
        phase,
        reason=reason,
        message=data.get("message", ""),
        unsafe=tuple(data["unsafe"]),
    )
    new.setdefault("targetLag", last_known_lag(cluster, switch.spec))
    new |= {
        "startedAt": to_time(operation.started_at),
        "blockedBy": list(operation.blocked_by),
        "fromMember": member_label(cluster, (switch.spec.pair, data["from"])),
        "toMember": member_label(cluster, (switch.spec.pair, data["to"])),
        "steps": [dict(step) for step in data["steps"]],
    }
    for field in ("writeOutageSeconds", "readOutageSeconds", "offsetsCopied", "offsetsLowered"):
        if field in data:
            new[field] = data[field]
    if over:
        new["finishedAt"] = to_time(operation.step_started_at)
        return Plan(status=new)
    return Plan(status=new, wake_after=_RUNNING_SECONDS)


def last_known_lag(cluster: BrokerCluster, spec: RoleSwitchSpec) -> str:
    """Return how far the target was behind when its master was last asked."""
    pairs = cluster.status.get("pairs", ())
    members = [item for pair in pairs if pair["index"] == spec.pair for item in pair["members"]]
    target: Mapping[str, Any] = next(
        (item for item in members if item["ordinal"] == spec.target_member), {}
    )
    lag = target.get("lag", facts.UNKNOWN)
    return str(target.get("lastLag", lag) if lag == facts.UNKNOWN else lag)


def _status(
    switch: RoleSwitch,
    previous: Mapping[str, Any],
    now: float,
    phase: str,
    *,
    reason: str,
    message: str,
    unsafe: tuple[str, ...] = (),
) -> dict[str, Any]:
    generation = switch.metadata.generation
    complete, failed = phase == "Complete", phase == "Failed"
    safe: bool | None = False if unsafe else True if complete else None
    doubts = "; ".join(_UNSAFE_WORDS[item] for item in unsafe)
    found = [
        Verdict("Complete", complete, phase if not failed else reason, message if failed else ""),
        Verdict("Failed", failed, reason if failed else "", message if failed else ""),
        Verdict("Safe", safe, unsafe[-1] if unsafe else "Safe" if complete else "Unknown", doubts),
    ]
    kept = {key: value for key, value in previous.items() if key != "blockedBy"}
    return {
        **kept,
        "observedGeneration": generation,
        "phase": phase,
        "conditions": judged(previous, found, now=now, generation=generation),
    }
