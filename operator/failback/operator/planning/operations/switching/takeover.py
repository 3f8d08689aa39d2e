"""RoleSwitch, the steps that only go forward: from stopping the old master to its return.

From the stop of the old master on nothing is undone. Two masters are excluded by order. The target
gets the role only after no pod of the old master exists and no name server lists a master. The old
master's file says SLAVE before its pod exists again. Pure.
"""

from __future__ import annotations

from typing import Final

from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.operations.step_context import OPEN
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.operations.switching.handover import release
from failback.operator.planning.operations.switching.pair import (
    UNDERWAY,
    Outcome,
    PairView,
    doing,
    end_of,
    remember,
    waiting,
)
from failback.operator.planning.plan.types import Action, CommitOffsets, DeletePod, Evict, LabelPod
from failback.operator.planning.state import predicates
from failback.operator.planning.state.claim_marks import new_master
from failback.operator.render.common import ROLE_LABEL
from failback.operator.render.members import member_name

REJOINED_BYTES: Final = 1024 * 1024
FENCE_MARGIN_SECONDS: Final = 30.0
SNAPSHOT_SECONDS: Final = 60.0
SLAVE: Final = "SLAVE"
REFUSED: Final = frozenset({"Diverged", "SlaveAhead", "TooFarBehind"})
"""Verdicts with which a member does not start as a slave."""


def stop_old_master(view: PairView) -> Outcome:
    """Stop the old master: the point of no return."""
    if not _is_stopped(view, view.old):
        return waiting(_why_not_stopped(view))
    if not view.master_addresses:
        return waiting("NameServersReachable")
    if any(address is not None for address in view.master_addresses):
        return waiting("MasterUnregistered")
    return Outcome(done=True, evidence={"pod": "gone", "nameServers": len(view.registered)})


def _is_stopped(view: PairView, member: MemberView) -> bool:
    """Tell whether no process of the member runs, nor will start."""
    found = member.statefulset
    if found is None or found["spec"].get("replicas", 1) != 0:
        return False
    return facts.is_stopped(member) if member.pod is None else _is_fenced(view, member)


def _is_fenced(view: PairView, member: MemberView) -> bool:
    """Tell whether a person vouches that the node of a pod that hangs runs nothing."""
    pod = member.pod
    if pod is None or not pod.deleting:
        return False
    return bool({pod.node_uid, pod.node} - {""} & view.observed.fenced_nodes)


def _why_not_stopped(view: PairView) -> str:
    pod = view.old.pod
    grace = view.cluster.spec.lifecycle.termination_grace_period_seconds
    if pod and pod.deleting and view.step_seconds > grace + FENCE_MARGIN_SECONDS:
        return "OldMasterFenced"
    return "OldMasterGone"


def start_new_master(view: PairView) -> Outcome:
    """Give the target the role: mark its claim, write both files, restart the target's pod."""
    data = view.data
    if "recorded" not in data:
        marks = new_master(view.state, view.pair, data["from"], data["to"])
        if marks is None:
            return remember(recorded=True, podUid=view.new.pod.uid if view.new.pod else "")
        return doing(*marks)
    if not _roles_are_written(view):
        return UNDERWAY
    if _is_master(view):
        return _became_master(view)
    return _restart_target(view)


def _roles_are_written(view: PairView) -> bool:
    """Tell whether both files have their new role, and both pods' templates know it."""
    old = facts.properties(view.old.config_map).get("brokerRole")
    new = facts.properties(view.new.config_map).get("brokerRole", SLAVE)
    if old != SLAVE or new == SLAVE:
        return False
    return not any(
        view.is_pending(kind, view.data[side])
        for kind in ("ConfigMap", "StatefulSet")
        for side in ("from", "to")
    )


def _is_master(view: PairView) -> bool:
    """Tell whether the target says that it is master and every name server agrees."""
    config = (view.new.broker.config if view.new.broker else None) or {}
    if not facts.says_master(view.new.broker) or config.get("brokerId") != "0":
        return False
    own = facts.announced_addresses(view.new)
    return bool(view.master_addresses) and all(found in own for found in view.master_addresses)


def _became_master(view: PairView) -> Outcome:
    """Remember which slaves have more than the new master: they stop until writes are open."""
    end = end_of(view.new)
    if end is None:
        return waiting("MemberAnswers")
    ahead = [member.ordinal for member in view.others if (end_of(member) or 0) > end]
    if "stopped" not in view.data:
        return remember(stopped=ahead)
    stopping = [member for member in view.others if member.ordinal in view.data["stopped"]]
    if any(member.pod is not None for member in stopping):
        return waiting("SlavesAheadStopped")
    began = view.data.get("evictedAt")
    if began is not None and "readOutageSeconds" not in view.data:
        served = any(member.is_ready for member in view.others)
        return remember(readOutageSeconds=0 if served else round(max(0.0, view.now - began)))
    return Outcome(done=True, evidence={"end": end})


def _restart_target(view: PairView) -> Outcome:
    """Replace the target's pod by one that starts from the new file."""
    pod, wanted = view.new.pod, view.data["to"]
    if pod is None or pod.deleting:
        return waiting("TargetReady")
    if pod.uid != view.data["podUid"]:
        if facts.says_master(view.new.broker) is False:  # it started before the new file
            return remember(podUid=pod.uid)
        return waiting("TargetReady")
    if "evictedAt" not in view.data:
        return remember(evictedAt=view.now)
    blocked = predicates.evaluate(("PDBAllows",), view.state, pair=view.pair, member=wanted)
    if blocked and view.forced:  # nobody writes to this pair: its budget protects nothing now
        return doing(DeletePod(pod.name, pod.uid))
    if blocked:
        return waiting(*blocked)
    return doing(Evict(pod.name, pod.uid))


def apply_offsets(view: PairView) -> Outcome:
    """Raise the new master's offsets to the snapshot. Nothing is ever lowered.

    Not earlier: as a slave the target would have lost them at its next copy from the master.
    """
    data = view.data
    if not view.copies_offsets:
        return Outcome(done=True, evidence={"skipped": "Forced" if view.forced else data["policy"]})
    kept = view.snapshot.table if view.snapshot is not None else None
    if kept is None:
        if view.request is not None and view.step_seconds < SNAPSHOT_SECONDS:
            return waiting("SnapshotReadable")
        if "SnapshotLost" not in data["unsafe"]:
            return remember(unsafe=[*data["unsafe"], "SnapshotLost"])
        return Outcome(done=True, evidence={"skipped": "the snapshot is gone"})
    broker = view.new.broker
    if broker is None or broker.offsets is None or broker.offsets_at is None:
        return waiting("OffsetsKnown")
    if broker.offsets_at < view.operation.step_started_at:
        return waiting("OffsetsKnown")
    missing = snapshot.raised(broker.offsets, kept)
    if "offsetsCopied" not in data:
        lowered = snapshot.count_above(broker.offsets, kept)
        return remember(offsetsCopied=len(missing), offsetsLowered=lowered)
    if missing:
        return doing(CommitOffsets(broker.address, missing))
    return Outcome(done=True, evidence={"copied": data["offsetsCopied"]})


def open_writes(view: PairView) -> Outcome:
    """Let producers write to the new master."""
    opening = view.permission_set(view.new, OPEN)
    if opening is not None:
        return opening
    shown = view.route_permission_is(writable=True)
    if shown is None:
        return waiting("NameServersReachable")
    if not shown:
        return waiting("RouteOpen")
    began = view.data.get("closedAt", view.data.get("masterlessSince"))
    if began is not None and "writeOutageSeconds" not in view.data:
        return remember(writeOutageSeconds=round(max(0.0, view.now - began)))
    return Outcome(done=True, evidence={"permission": OPEN})


def rejoin_old_master(view: PairView) -> Outcome:
    """Start the old master as a slave; its own check of its log decides whether it may."""
    if "settled" not in view.data and "giveWay" not in view.data:
        return _settle_ids(view)
    pod = view.old.pod
    if pod is not None and pod.prefix in REFUSED:
        evidence: dict[str, object] = {"prefix": pod.prefix, "message": pod.prefix_message[:256]}
        if pod.tail_bytes is not None:
            evidence["tailBytes"] = pod.tail_bytes
        return _with_doubt(view, "Diverged", evidence)
    if _is_slave_again(view):
        if pod is not None and pod.prefix == "Unverified":
            return _with_doubt(view, "PrefixUnverified", {"prefix": pod.prefix})
        return Outcome(done=True, evidence={"prefix": pod.prefix if pod else ""})
    patience = float(view.cluster.spec.update_strategy.pair_timeout_seconds)
    if (view.overdue and view.step_seconds > patience) or "giveWay" in view.data:
        return _with_doubt(view, "PrefixUnverified", {"rejoined": False})
    return waiting("OldMasterRejoined")


def _with_doubt(view: PairView, reason: str, evidence: dict[str, object]) -> Outcome:
    if reason not in view.data["unsafe"]:
        return remember(unsafe=[*view.data["unsafe"], reason], rejoined=False)
    return Outcome(done=True, evidence=evidence)


def _settle_ids(view: PairView) -> Outcome:
    """Restart other slaves whose id the switch changes, before the old master takes theirs.

    The ids of a pair are a permutation of its ordinals: a switch between members 1 and 2 gives
    member 0 another id as well. Two slaves of one id would replace each other in every route.
    """
    for member in view.others:
        key = ("ConfigMap", member_name(view.cluster, view.pair, member.ordinal))
        wanted = facts.properties(view.desired.get(key)).get("brokerId")
        if not member.is_ready or wanted is None:
            continue
        config = member.broker.config if member.broker else None
        if config is None:
            return waiting("SlavesAnswer")
        if config.get("brokerId") != wanted and member.pod is not None:
            if any(view.is_pending(kind, member.ordinal) for kind in ("ConfigMap", "StatefulSet")):
                return UNDERWAY
            return doing(Evict(member.pod.name, member.pod.uid))
    return remember(settled=True)


def _is_slave_again(view: PairView) -> bool:
    config = (view.old.broker.config if view.old.broker else None) or {}
    key = ("ConfigMap", member_name(view.cluster, view.pair, view.data["from"]))
    wanted = facts.properties(view.desired.get(key)).get("brokerId")
    if not view.old.is_ready or config.get("brokerId") != wanted:
        return False
    lag = facts.lag_bytes(view.new.broker, view.old.broker)
    return facts.says_master(view.old.broker) is False and lag is not None and lag < REJOINED_BYTES


def role_labels(view: PairView) -> tuple[Action, ...]:
    """Return the labels that tell each pod's role, where they are not right."""
    found: list[Action] = []
    for member in (view.old, view.new, *view.others):
        said = facts.says_master(member.broker)
        role = "unknown" if said is None else "master" if said else "slave"
        pod = member.pod
        if pod is not None and not pod.deleting and said is not None and pod.role != role:
            found.append(LabelPod(pod.name, pod.uid, {ROLE_LABEL: role}))
    return tuple(found)


def let_go(view: PairView) -> Outcome:
    """End of Verify: release Lease and snapshot."""
    actions = release(view)
    return doing(*actions) if actions else Outcome(done=True)
