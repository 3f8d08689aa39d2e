"""A master that is to leave its node: another member becomes master first. Pure.

A refused eviction leaves no mark. A drain shows in the node, which takes no new pods, in the pod's
condition ``DisruptionTarget``, or in the annotation ``failback.dev/drain`` of the pod. With
``failover.onDrain: Switch`` the operator makes a RoleSwitch then, one at a time. Its name is that
of the pod: an operator that died finds what it made, and no pod is switched twice. A switch that
failed is tried again once its object has gone. Nothing is switched back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from failback.operator.planning.observed.observed import MemberView, Object
from failback.operator.planning.operations.step_context import member_label
from failback.operator.planning.operations.switching.pair import end_of
from failback.operator.planning.operations.switching.preflight import preflight
from failback.operator.planning.operations.switching.request import (
    ENDED,
    TYPE,
    Request,
    requests,
)
from failback.operator.planning.operations.turns import waits_for
from failback.operator.planning.plan.encoding import Verdict, find_condition, names
from failback.operator.planning.plan.types import Action, Apply, Event, Operation
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render import common
from failback.operator.render.context import Context

KIND: Final = "DrainWaits"
_KEPT_SECONDS: Final = 300
"""How long a RoleSwitch of ours stays after its end."""
_UNREADABLE: Final = (
    "the operator may not read nodes (rbac.readNodes of the chart): only the annotation"
    " failback.dev/drain of a pod tells of a drain"
)
_MEASURES: Final = frozenset({"Preparing", "SteadyState", "Injecting", "Recovering", "Draining"})
"""Phases of an experiment in which a switch would spoil what it measures."""


@dataclass(frozen=True, slots=True)
class Drain:
    """What comes of the drains of a pass."""

    verdicts: tuple[Verdict, ...] = ()
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()


def drain(state: ClusterState, context: Context) -> Drain:
    """Return what masters of drained nodes wait for, and at most one switch to begin."""
    if state.cluster.spec.failover.on_drain == "Allow":
        stale = find_condition(state.status, KIND) is not None
        return Drain((Verdict(KIND, False, "NoDrain"),) if stale else ())
    waits: list[tuple[str, str]] = []
    switching: list[str] = []
    begun = Drain()
    active = [each for each in requests(state.cluster, state.observed) if each.phase not in ENDED]
    for pair in range(state.cluster.spec.pairs):
        master = state.master(pair)
        why = leaves(state, master)
        if not why:
            continue
        who = f"{member_label(state.cluster, (pair, master.ordinal))} ({why})"
        if any(each.spec.pair == pair for each in active):
            switching.append(who)
            continue
        found = _begin(state, context, master, busy=bool(active or begun.actions))
        if isinstance(found, tuple):
            waits.append((found[0], f"{who}: {found[1]}"))
            continue
        target = member_label(state.cluster, (pair, found["spec"]["targetMember"]))
        text = f"{who} hands over to {target} by RoleSwitch {found['metadata']['name']}"
        begun = Drain(actions=(Apply(found),), events=(Event("DrainSwitch", text, lane=pair),))
        switching.append(who)
    if waits:
        verdict = Verdict(KIND, True, waits[0][0], names((text for _, text in waits), 3))
    elif switching:
        verdict = Verdict(KIND, False, "HandsOver", names(switching))
    elif state.observed.leaving_nodes is None:
        verdict = Verdict(KIND, None, "NodesUnreadable", _UNREADABLE)
    else:
        verdict = Verdict(KIND, False, "NoDrain")
    return Drain((verdict,), begun.actions, begun.events)


def leaves(state: ClusterState, view: MemberView) -> str:
    """Return what says that a member is to leave its node; empty when nothing does."""
    if view.pod is None or view.pod.deleting:
        return ""
    return view.pod.leaving or (state.observed.leaving_nodes or {}).get(view.pod.node, "")


def _begin(
    state: ClusterState, context: Context, master: MemberView, *, busy: bool
) -> Object | tuple[str, str]:
    """Return the RoleSwitch to make, or reason and words of what keeps it from being made."""
    cluster, pair, pod = state.cluster, master.pair, master.pod
    assert pod is not None
    slaves = [view for view in state.wanted(pair) if view.ordinal != master.ordinal]
    if not slaves:
        return "NoSlave", f"the pair has no slave to take over; delete pod {pod.name} to let it go"
    if cluster.spec.failover.on_drain == "Wait":
        return "RoleSwitchNeeded", "a RoleSwitch of yours has to make another member master"
    name = f"drain-{cluster.name}-{pair}-{hashlib.sha256(pod.uid.encode()).hexdigest()[:8]}"
    for found in state.observed.role_switches:
        if found["metadata"]["name"] == name:
            phase = (found.get("status") or {}).get("phase")
            return "SwitchFailed", f"RoleSwitch {name} is {phase}; tried again once it has gone"
    target = _best(state, pod.node, slaves)
    if target is None:
        return "NoOtherNode", "no slave is ready on another node that takes pods"
    marks = common.labels(cluster, "drain", cluster=cluster.name, pair=str(pair))
    manifest = {
        "apiVersion": cluster.api_version,
        "kind": TYPE,
        "metadata": common.metadata(cluster, name, context, marks),
        "spec": {
            "clusterRef": {"name": cluster.name},
            "pair": cluster.broker_name(pair),
            "targetMember": target.ordinal,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
        },
    }
    request = Request.of(manifest)
    assert request is not None
    blocked = preflight(state, request).blocked
    if busy:
        blocked = (*blocked, "NoOtherSwitch")
    runs = [item.get("status") or {} for item in state.observed.experiments]
    if any(run.get("phase") in _MEASURES for run in runs):
        blocked = (*blocked, "NoExperiment")
    if blocked:
        asking = Operation("", TYPE, "Preflight", pair, blocked_by=blocked)
        return "Blocked", f"waits for {waits_for(state, asking)}"
    return manifest


def _best(state: ClusterState, node: str, slaves: list[MemberView]) -> MemberView | None:
    """Return the ready slave with the longest log on another node that takes pods."""
    fit = [
        view
        for view in slaves
        if view.is_ready and view.pod and view.pod.node != node and not leaves(state, view)
    ]
    return max(fit, key=lambda view: (end_of(view) or 0, -view.ordinal), default=None)
