"""RoleSwitch, the steps that can be undone: lease, closing, replication, offsets, and the undo.

Each function asks first whether its step is done, from observation alone, so that a repeated
step costs nothing. Pure.
"""

from __future__ import annotations

from typing import Final

from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.operations.step_context import (
    CLOSED,
    OPEN,
    ROUTE_SECONDS,
    permission_of,
)
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.operations.switching.pair import (
    UNDERWAY,
    Outcome,
    PairView,
    doing,
    end_of,
    remember,
    waiting,
)
from failback.operator.planning.operations.switching.request import reference
from failback.operator.planning.plan.types import (
    Action,
    Delete,
    SaveSnapshot,
)
from failback.operator.planning.state.predicates import SYNC_PERIODS

QUIET_SECONDS: Final = 2.0
"""Two readings so far apart must agree."""
GROWING_SECONDS: Final = 60.0
"""Delayed messages keep a closed log growing; after this the switch goes on while it grows."""
UNDO_SECONDS: Final = 60.0
EARLY, BASELINE, FINAL = "early", "baseline", "final"


def take_lease(view: PairView) -> Outcome:
    """Take the pair's Lease, so that no other operation works on the pair.

    The offsets known now are saved once: what keeps them from being saved shows before the pair
    is closed.
    """
    if view.lease.is_ours:
        tables = [each.broker.offsets for each in (view.old, view.new) if each.broker is not None]
        known = [each for each in tables if each is not None]
        if known and view.snapshot is None and view.data["policy"] != "None":
            return _save(view, EARLY, snapshot.largest(*known))
        return Outcome(done=True, evidence={"lease": view.lease.name})
    if view.lease.is_taken:
        return Outcome(failed=("LeaseHeld", f"somebody else holds Lease {view.lease.name}"))
    return doing(view.lease.take())


def drain_writes(view: PairView) -> Outcome:
    """Close the old master for producers and wait until they know and its log rests."""
    data = view.data
    if "closedAt" not in data:
        return remember(closedAt=view.now)
    closing = view.permission_set(view.old, CLOSED)
    if closing is not None:
        return closing
    shown = view.route_permission_is(writable=False)
    if shown is None:
        return waiting("NameServersReachable")
    if not shown:
        return waiting("RouteClosed")
    if "routeClosedAt" not in data:
        return remember(routeClosedAt=view.now)
    closed_for = view.now - data["routeClosedAt"]
    if closed_for < ROUTE_SECONDS:
        return UNDERWAY
    if closed_for >= ROUTE_SECONDS + GROWING_SECONDS:
        return Outcome(done=True, evidence={"resting": False})
    end, at = end_of(view.old), view.read_at(view.old)
    if end is None:
        return waiting("MemberAnswers")
    if data.get("drainEnd") != end:
        return remember(drainEnd=end, drainEndAt=at)
    if at - data["drainEndAt"] < QUIET_SECONDS:
        return UNDERWAY
    return Outcome(done=True, evidence={"resting": True, "end": end})


def replicate(view: PairView) -> Outcome:
    """Wait until the target has the old master's log, and no other slave has more than it.

    A pair that is alone is closed here: its routes need not show it.
    """
    closing = _closed_alone(view) if view.alone else None
    if closing is not None:
        return closing
    lag = facts.lag_bytes(view.old.broker, view.new.broker)
    if lag is None:
        return waiting("LagKnown")
    if lag < 0:
        return waiting("PrefixVerified")
    if blocked := _more_advanced(view):
        return waiting(blocked)
    caught_up = view.data.get("caughtUpAt")
    if lag > view.data["maxLagBytes"]:
        return remember(caughtUpAt=None) if caught_up is not None else waiting("LagAcceptable")
    at = min(view.read_at(view.old), view.read_at(view.new))
    if at < view.data.get("shutAt", at):
        return UNDERWAY
    if caught_up is None:
        return remember(caughtUpAt=at)
    if at - caught_up < QUIET_SECONDS:
        return UNDERWAY
    if lag > 0 and "LagAccepted" not in view.data["unsafe"]:
        return remember(unsafe=[*view.data["unsafe"], "LagAccepted"])
    return Outcome(done=True, evidence={"lagBytes": lag, "end": end_of(view.new)})


def _closed_alone(view: PairView) -> Outcome | None:
    """Return what closes the old master, which then refuses every send; ``None`` = it is closed."""
    if "closedAt" not in view.data:
        return remember(closedAt=view.now)
    closing = view.permission_set(view.old, CLOSED)
    if closing is None and "shutAt" not in view.data:
        return remember(shutAt=view.now)
    return closing


def _more_advanced(view: PairView) -> str | None:
    """Return the predicate that another slave makes false, or ``None``."""
    target = end_of(view.new) or 0
    for member in view.others:
        if not member.is_ready:
            continue  # it is compared when it comes back
        end = end_of(member)
        if end is None:
            return "LagKnown"
        if end > target:
            return "TargetMostAdvanced"
    return None


def sync_offsets(view: PairView) -> Outcome:
    """Wait until the target has the old master's offsets; with CopyMax keep the larger of both.

    What the target must have is the table at the begin of this step. It is in the snapshot
    too, because an operator that starts again must find it. A pair that is alone takes no writes
    meanwhile: with CopyMax the snapshot has what the target lacks, so no step waits for it.
    """
    policy = view.data["policy"]
    if policy == "None":
        return Outcome(done=True, evidence={"policy": policy})
    old, new = _fresh_offsets(view, view.old), _fresh_offsets(view, view.new)
    if old is None or new is None:
        return waiting("OffsetsKnown")
    kept = view.snapshot
    taken = _label(view, kept.label) if kept is not None else None
    if kept is None or kept.table is None or taken in (None, EARLY):
        if view.alone and policy == "CopyMax":
            return _save(view, FINAL, snapshot.largest(old, new))
        return _save(view, BASELINE, snapshot.largest(old, new))
    if taken == FINAL:
        count = sum(map(len, kept.table.values()))
        return Outcome(done=True, evidence={"policy": policy, "offsets": count})
    if not snapshot.covers(new, kept.table):
        patience = SYNC_PERIODS * view.sync_seconds
        if policy == "WaitSync" or view.step_seconds < patience:
            return waiting("OffsetsFresh")
    if policy == "WaitSync":
        return Outcome(done=True, evidence={"policy": policy})
    return _save(view, FINAL, snapshot.largest(old, new))


def _fresh_offsets(view: PairView, member: MemberView) -> snapshot.Table | None:
    """Return the member's offset table if it was read in this step."""
    broker = member.broker
    if broker is None or broker.offsets is None or broker.offsets_at is None:
        return None
    return broker.offsets if broker.offsets_at >= view.operation.step_started_at else None


def _label(view: PairView, label: str) -> str | None:
    """Return which snapshot of this very switch a label means."""
    prefix = f"{view.operation.id}/"
    return label.removeprefix(prefix) if label.startswith(prefix) else None


def _save(view: PairView, which: str, table: snapshot.Table) -> Outcome:
    size = len(snapshot.encode(table))
    if size > snapshot.MAX_BYTES:
        problem = f"the offset table is larger than {snapshot.MAX_BYTES} bytes compressed"
        return Outcome(failed=("OffsetTableTooLarge", problem))
    owner = reference(view.data["name"], view.data["uid"])
    label = f"{view.operation.id}/{which}"
    save = SaveSnapshot(view.data["snapshot"], owner, table, label)
    return doing(save)


def release(view: PairView) -> tuple[Action, ...]:
    """Return what takes away Lease and snapshot; nothing when they are gone."""
    actions: tuple[Action, ...] = ()
    if view.snapshot is not None:
        key = ("ConfigMap", view.data["snapshot"])
        actions += (Delete(key, view.snapshot.uid),)
    if view.lease.is_ours:
        actions += (view.lease.release(),)
    return actions


def roll_back(view: PairView) -> Outcome:
    """Open the old master again and let go of everything.

    A master that does not answer keeps this from being proved. After a minute, or at once when a
    forced switch waits for the pair, its file alone counts.
    """
    if "closedAt" in view.data:
        opening = view.permission_set(view.old, OPEN)
        patient = view.step_seconds < UNDO_SECONDS and "giveWay" not in view.data
        silent = permission_of(view.old) is None and not patient
        if opening is not None and not (silent and opening.blocked == ("MemberAnswers",)):
            return opening
    actions = release(view)
    if actions:
        return doing(*actions)
    return Outcome(done=True, evidence={"permission": permission_of(view.old) or "unknown"})
