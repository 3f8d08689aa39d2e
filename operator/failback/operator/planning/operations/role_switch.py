"""RoleSwitch: master and slave of one pair change places. Pure.

::

    Planned  Preflight TakeLease DrainWrites Replicate SyncOffsets | StopOldMaster StartNewMaster
             ApplyOffsets OpenWrites RejoinOldMaster Verify Finished
    alone    the same without DrainWrites: no other pair takes the messages, so no step
             waits until producers have gone there; Replicate closes the old master
    Forced   Preflight TakeLease | StopOldMaster StartNewMaster OpenWrites RejoinOldMaster Verify
             Finished

Left of the bar a time-out or the deletion of the RoleSwitch leads to RollBack, right of it the only
way is forward. The time limit is that of the whole switch. The step in the cluster's status is the
truth; the RoleSwitch's ``steps`` are its diary. Every pass either changes what is remembered or
acts on the cluster, never both. So what an action relies on was in the status before. An operator
that dies at any point leaves all that the next one needs there. ``Finished`` holds the result until
the RoleSwitch shows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.operations.step_context import StepContext, member_label
from failback.operator.planning.operations.switching import handover, takeover
from failback.operator.planning.operations.switching.pair import (
    Outcome,
    PairView,
    waiting,
)
from failback.operator.planning.operations.switching.preflight import preflight
from failback.operator.planning.operations.switching.request import (
    ENDED,
    find,
    open_operation,
    reference,
    requests,
    step_ended,
)
from failback.operator.planning.operations.switching.request import TYPE as TYPE
from failback.operator.planning.plan.types import Advance, Event, Operation, TakeLease
from failback.operator.planning.state import precedence, predicates
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Shape

ROLL_BACK: Final = "RollBack"
FINISHED: Final = "Finished"
PLANNED: Final = precedence.SWITCH_STEPS
FORCED: Final = tuple(
    step
    for step in PLANNED
    if step not in ("DrainWrites", "Replicate", "SyncOffsets", "ApplyOffsets")
)
UNDOABLE: Final = frozenset(PLANNED[: PLANNED.index("StopOldMaster")])
HELD_BY_OBJECT: Final = frozenset(PLANNED[PLANNED.index("StopOldMaster") : 9])
"""Steps during which the RoleSwitch object must not go: its snapshot is still needed."""
_STOPPED: Final = frozenset(PLANNED[PLANNED.index("StopOldMaster") : 9])
_CLOSED: Final = frozenset(PLANNED[2:8])
SWITCHED: Final = frozenset(PLANNED[7:])
"""Steps after the change of master."""
STEPS: Final = frozenset({*PLANNED, ROLL_BACK, FINISHED})
_SOON: Final = 0.0
_PREFLIGHT_SECONDS: Final = 180.0
"""How long a switch that was opened waits at its first step. An operator that began meanwhile does
not know for a minute that the master is steady; let go at once, a switch would never begin under
operators that are ended again and again."""


def causes(state: ClusterState) -> Iterator[Operation]:
    """Yield the operations of the RoleSwitches that may begin now: forced ones, then the oldest."""
    running = {operation.data.get("uid") for operation in state.operations}
    waiting = requests(state.cluster, state.observed)
    for request in sorted(waiting, key=lambda item: item.spec.mode != "Forced"):
        over = request.phase in ENDED or request.deleted_at is not None
        if over or request.uid in running or state.now > request.deadline:
            continue
        found = preflight(state, request)
        # What is to give way on the pair is no obstacle: that is asked by priority.
        if not found.refused and set(found.blocked) <= {"PairFree"}:
            yield open_operation(state, request, found.old_master, PLANNED[0])


def give_way(state: ClusterState, operation: Operation, urgent: Operation) -> Operation | None:
    """Undo what can be undone, or end without the old master, for a forced switch of the pair.

    In between the only way is forward.
    """
    undo = operation.step in (*UNDOABLE, ROLL_BACK) and operation.data["mode"] != "Forced"
    if undo or operation.step in ("RejoinOldMaster", "Verify"):
        return operation.remembering({"giveWay": urgent.data["name"]})
    return operation


def reshape(shape: Shape, cluster: BrokerCluster, operation: Operation) -> Shape:
    """Return the shape at the operation's step: the master, the stopped members, the closed
    pairs."""
    pair, step, data = operation.pair or 0, operation.step, operation.data
    switched = step in SWITCHED or (step == "StartNewMaster" and "recorded" in data)
    masters = dict(shape.masters)
    if step != FINISHED and step != PLANNED[0]:
        masters[pair] = data["to"] if switched else data["from"]
    closed = shape.closed - {pair} if step in _OPEN else shape.closed
    if step in _CLOSED:
        closed |= {pair}
    stopped = set(shape.stopped)
    if step in _STOPPED or (step == "RejoinOldMaster" and "settled" not in data):
        stopped.add((pair, data["from"]))
        stopped |= {(pair, ordinal) for ordinal in data.get("stopped", ())}
    return dataclasses.replace(shape, masters=masters, closed=closed, stopped=frozenset(stopped))


_OPEN: Final = frozenset({"OpenWrites", "RejoinOldMaster", "Verify", ROLL_BACK})


def advance(step: StepContext) -> Advance:
    """Return what the switch wants of this pass."""
    operation = step.operation
    request = find(step.cluster, step.observed, operation.data["uid"])
    view = PairView(step.state, step.desired, operation, request)
    if operation.step == FINISHED:
        shown = request is None or request.phase in ENDED
        return Advance(None if shown else operation)
    if operation.step in UNDOABLE:
        why = _why_undo(view)
        if why is not None:
            return _undo(view, *why)
    elif operation.step != ROLL_BACK and view.lease.is_taken:
        return Advance(operation.blocked("LeaseHeld"))
    if step.state.is_contested(view.pair):
        if operation.step == PLANNED[0]:
            return Advance(None)
        return Advance(operation.blocked("SingleMaster"), _renewal(view))
    return _carry(view, _STEPS[operation.step](view))


# --- what a step's outcome means ----------------------------------------------------------------


def _carry(view: PairView, outcome: Outcome) -> Advance:
    operation = view.operation
    if outcome.failed is not None:
        return _undo(view, *outcome.failed)
    if outcome.done:
        return _next(view, outcome.evidence)
    if outcome.data:
        return Advance(operation.remembering(outcome.data), wake_after=_SOON)
    if operation.step == PLANNED[0]:
        if view.step_seconds < _PREFLIGHT_SECONDS:
            return Advance(operation.blocked(*outcome.blocked))
        return Advance(None)  # nothing was written yet: it waits as a Pending object
    actions = (*_renewal(view), *outcome.actions)
    return Advance(operation.blocked(*outcome.blocked), actions)


def _renewal(view: PairView) -> tuple[TakeLease, ...]:
    """Return the renewal of the lease, from the step after taking it until it is let go."""
    idle = view.operation.step in ("TakeLease", ROLL_BACK) or "verified" in view.data
    if idle or not view.lease.is_due:
        return ()
    return (view.lease.take(),)


def _next(view: PairView, evidence: Mapping[str, Any]) -> Advance:
    """Return the operation at the step that follows."""
    operation = view.operation
    if operation.step == ROLL_BACK:
        return _finish(
            view, "Failed", operation.data["reason"], operation.data["message"], evidence
        )
    steps = FORCED if view.forced else PLANNED
    if view.alone:
        steps = tuple(step for step in steps if step != "DrainWrites")
    position = steps.index(operation.step) + 1
    if position == len(steps):
        return _finish(view, "Complete", "Complete", "", evidence)
    following = steps[position]
    diary = step_ended(operation.data["steps"], evidence, following, view.now)
    moved = operation.at_step(following, view.now, steps=diary)
    what = f"{following} of {_title(view)}"
    events = _events(view, "RoleSwitchStep", what)
    if operation.step == PLANNED[0]:
        events = _events(view, "RoleSwitchStarted", _title(view)) + events
    found = evidence.get("prefix")
    if operation.step == "RejoinOldMaster" and found in takeover.REFUSED:
        tail = evidence.get("tailBytes")
        lost = f", {tail} bytes of its log only it has" if tail is not None else ""
        old = member_label(view.cluster, (view.pair, view.data["from"]))
        events += _events(view, "SlaveDiverged", f"{old} is {found}{lost}", warning=True)
    return Advance(moved, events=events, wake_after=_SOON)


def _why_undo(view: PairView) -> tuple[str, str] | None:
    """Return reason and message when a switch that can still be undone must be."""
    if view.request is None or view.request.deleted_at is not None:
        return "RolledBack", "the RoleSwitch was deleted"
    if "giveWay" in view.data:
        return "Superseded", f"RoleSwitch {view.data['giveWay']} forces a switch of the pair"
    if view.overdue:
        reason = "TimedOut" if view.data["onTimeout"] == "Fail" else "RolledBack"
        limit = f"the time limit of {view.data['timeoutSeconds']} s for the whole switch"
        waited = f"{view.operation.step} had not ended at {limit}"
        return reason, waited
    if view.operation.step not in PLANNED[:2] and view.lease.is_taken:
        return "LeaseHeld", f"somebody else holds Lease {view.lease.name}"
    return None


def _undo(view: PairView, reason: str, message: str) -> Advance:
    """Return the operation at RollBack, or at its end when nothing was begun."""
    if view.operation.step in PLANNED[:2] and not view.lease.is_ours:
        return _finish(view, "Failed", reason, message, {})
    diary = step_ended(view.operation.data["steps"], {"failed": message}, ROLL_BACK, view.now)
    moved = view.operation.at_step(ROLL_BACK, view.now, steps=diary, reason=reason, message=message)
    return Advance(moved, wake_after=_SOON)


def _finish(
    view: PairView, phase: str, reason: str, message: str, evidence: Mapping[str, Any]
) -> Advance:
    diary = step_ended(view.operation.data["steps"], evidence, None, view.now)
    moved = view.operation.at_step(
        FINISHED, view.now, steps=diary, phase=phase, reason=reason, message=message
    )
    if phase == "Complete":
        write = view.data.get("writeOutageSeconds", 0)
        read = view.data.get("readOutageSeconds", 0)
        text = f"{_title(view)}: no writes for {write} s, no reads for {read} s"
        events = _events(view, "RoleSwitchFinished", text)
    else:
        text = f"{_title(view)}: {reason}: {message}"
        undone = view.operation.step == ROLL_BACK
        kind = "RoleSwitchRolledBack" if undone else "RoleSwitchFailed"
        events = _events(view, kind, text, warning=True)
    return Advance(moved, events=events, wake_after=_SOON)


def _title(view: PairView) -> str:
    old = member_label(view.cluster, (view.pair, view.data["from"]))
    new = member_label(view.cluster, (view.pair, view.data["to"]))
    return f"{view.data['name']} ({old} to {new})"


def _events(
    view: PairView, reason: str, message: str, *, warning: bool = False
) -> tuple[Event, ...]:
    """Return an event about the cluster and one about the RoleSwitch."""
    about = {
        **{
            key: value
            for key, value in reference(view.data["name"], view.data["uid"]).items()
            if key in ("apiVersion", "kind", "name", "uid")
        },
        "namespace": view.cluster.namespace,
    }
    return (
        Event(reason, message, warning=warning),
        Event(reason, message, warning=warning, about=about),
    )


# --- the first and the last step ----------------------------------------------------------------


def _preflight(view: PairView) -> Outcome:
    """Ask everything once more, now that the operation is in the status."""
    if view.request is None:
        return waiting("RequestKnown")
    found = preflight(view.state, view.request, operation=view.operation)
    if found.refused:
        return Outcome(failed=("Preflight", found.refused))
    if found.old_master != view.data["from"]:
        return waiting("SingleMaster")
    if not view.forced and "alone" not in view.data:
        return Outcome(
            data={"alone": not predicates.others_take_messages_of(view.state, view.pair)}
        )
    since = view.observed.masterless_since.get(view.pair)
    if view.forced and since is not None and "masterlessSince" not in view.data:
        return Outcome(data={"masterlessSince": since})
    evidence = {"master": member_label(view.cluster, (view.pair, found.old_master))}
    return Outcome(done=not found.blocked, blocked=found.blocked, evidence=evidence)


def _verify(view: PairView) -> Outcome:
    """Wait until the pair is whole again, then let go of lease and snapshot.

    A slave that may not rejoin, or that stays away beyond the time limit, is not waited for.
    """
    if "verified" in view.data:
        return takeover.let_go(view)
    names = ["MasterAgreed"]
    patience = view.cluster.spec.update_strategy.pair_timeout_seconds
    late = view.overdue and view.step_seconds > patience
    if view.data.get("rejoined", True) and not late:
        names.append("MetadataEqual")
    if "giveWay" in view.data:
        names = []
    false = predicates.evaluate(names, view.state, pair=view.pair, operation=view.operation)
    labels = takeover.role_labels(view)
    if false or labels:
        return Outcome(blocked=false, actions=labels)
    return Outcome(data={"verified": True})


_STEPS: Final[Mapping[str, Callable[[PairView], Outcome]]] = {
    "Preflight": _preflight,
    "TakeLease": handover.take_lease,
    "DrainWrites": handover.drain_writes,
    "Replicate": handover.replicate,
    "SyncOffsets": handover.sync_offsets,
    "StopOldMaster": takeover.stop_old_master,
    "StartNewMaster": takeover.start_new_master,
    "ApplyOffsets": takeover.apply_offsets,
    "OpenWrites": takeover.open_writes,
    "RejoinOldMaster": takeover.rejoin_old_master,
    "Verify": _verify,
    ROLL_BACK: handover.roll_back,
}
