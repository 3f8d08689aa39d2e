"""The status of a BrokerCluster beside its conditions: pairs, members, pending restarts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from failback.operator.planning.cluster.carried import carried_of
from failback.operator.planning.cluster.view import ClusterView
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import MemberView
from failback.operator.planning.state import restarts

MAX_DETAILED_PAIRS: Final = 16
"""Beyond so many pairs, only members that are not as wanted are listed."""
MAX_STATUS_BYTES: Final = 900 * 1024
_MAX_PENDING: Final = 64
_PHASE_OF_OPERATION: Final = {
    "Roll": "Updating",
    "LiveConfig": "Updating",
    "VolumeResize": "Updating",
    "ScaleDown": "Draining",
    "RoleSwitch": "Switching",
}
_ANSWERED: Final = (
    "observedRole",
    "appliedConfig",
    "slaveReadEnable",
    "flushDiskType",
    "rules",
    "engineVersion",
)
"""What only a broker itself can say: kept while it does not answer."""


def selector(view: ClusterView) -> str:
    """Return the label selector of all pods, as the scale subresource gives it."""
    return f"failback.dev/cluster={view.cluster.name},app.kubernetes.io/component=broker"


def pairs_present(view: ClusterView) -> int:
    """Return how many pairs have any StatefulSet: observed, not wanted."""
    return len(
        {
            pair
            for (pair, _), member in view.observed.members.items()
            if member.statefulset is not None
        }
    )


def pairs(view: ClusterView) -> list[dict[str, Any]]:
    """Return ``status.pairs[]``."""
    return [_pair(view, index) for index in range(view.shape.pairs)]


def ready_pairs(view: ClusterView) -> int:
    """Return how many pairs are writable with all members ready."""
    return sum(
        view.is_writable(index) and all(each.is_ready for each in view.pair_members(index))
        for index in range(view.shape.pairs)
    )


def leftover_claims(view: ClusterView) -> list[str]:
    """Return the claims of members that are neither wanted nor there."""
    wanted = {(member.pair, member.ordinal) for member in view.members}
    found = [
        member.claim.name
        for at, member in sorted(view.observed.members.items())
        if member.claim is not None and not member.exists and at not in wanted
    ]
    return found[:_MAX_PENDING]


def _pair(view: ClusterView, index: int) -> dict[str, Any]:
    master = view.master(index)
    members = [_member(view, member) for member in view.pair_members(index)]
    if view.shape.pairs > MAX_DETAILED_PAIRS:
        members = [item for item in members if not _as_wanted(item)]
    registered = master is not None and view.is_registered(master)
    known = view.state.mastership(index)
    found: dict[str, Any] = {
        "name": view.cluster.broker_name(index),
        "index": index,
        "phase": _phase(view, index),
        "master": view.member_name(master) if master is not None and registered else "",
        "writable": view.is_writable(index),
        "members": members,
    }
    before = view.previous_pair(index)
    found["firstMaster"] = before.get("firstMaster", view.cluster.pair(index).master_member)
    if known.unclear:
        # What it had while its master was known tells a changed mark from a changed claim.
        return found | {key: before[key] for key in ("masterClaim",) if key in before}
    found["masterMember"] = master.ordinal if master is not None else 0
    if known.epoch:
        found["epoch"] = known.epoch
    claim = view.observed.member(index, found["masterMember"]).claim
    return found if claim is None else {**found, "masterClaim": claim.uid}


def _phase(view: ClusterView, index: int) -> str:
    for operation in view.operations:
        phase = _PHASE_OF_OPERATION.get(operation.type)
        if operation.pair == index and phase is not None:
            return phase
    if index in view.shape.closed:
        return "Draining"
    ready = [member.is_ready for member in view.pair_members(index)]
    if all(ready) and view.is_writable(index):
        return "Running"
    return "Degraded" if any(ready) else "Pending"


def _member(view: ClusterView, member: MemberView) -> dict[str, Any]:
    wanted, before = view.wanted(member), view.previous_member(member)
    pod, claim, broker = member.pod, member.claim, member.broker
    found: dict[str, Any] = {
        "ordinal": member.ordinal,
        "pod": view.pod_name(member),
        "brokerId": view.broker_id(member),
        "desiredRole": wanted.get("brokerRole", ""),
        "ready": member.is_ready,
        "restarts": pod.restarts if pod else 0,
        "address": _address(wanted),
    }
    if claim is not None:
        found["claimUid"] = claim.uid
    if (carried := carried_of(view, member)) is not None:
        found["carried"] = carried
    if pod is not None:
        found["restartHash"] = pod.restart_hash
        if pod.prefix in ("Verified", "Unverified", "Diverged"):
            found["prefix"] = pod.prefix
        elif pod.prefix == "SlaveAhead":
            found["prefix"] = "Diverged"
    if broker is not None and broker.config is not None:
        found |= _answers(member, broker.config, broker.runtime)
    else:
        found |= {key: before[key] for key in _ANSWERED if key in before}
    if view.broker_id(member) != 0:
        found |= _lag(view, member, before)
        compared = view.metadata(member)
        if compared is not None:
            found["metadataSynced"] = compared.equal and not compared.stale
        elif "metadataSynced" in before:
            found["metadataSynced"] = before["metadataSynced"]
    return found


def _lag(view: ClusterView, member: MemberView, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a slave's lag; while it cannot be known, also what it was."""
    lag = view.lag(member)
    if lag != facts.UNKNOWN:
        return {"lag": lag}
    last = before.get("lastLag") if before.get("lag") == facts.UNKNOWN else before.get("lag")
    return {"lag": lag} if last is None else {"lag": lag, "lastLag": last}


def _address(wanted: Mapping[str, str]) -> str:
    host = wanted.get("brokerIP1", "")
    return f"{host}:{wanted['listenPort']}" if host and "${" not in host else ""


def _answers(
    member: MemberView, config: Mapping[str, str], runtime: Mapping[str, str] | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "observedRole": config.get("brokerRole", ""),
        "appliedConfig": facts.live_hash(member),
        "slaveReadEnable": config.get("slaveReadEnable", "false").lower() == "true",
        "flushDiskType": config.get("flushDiskType", ""),
    }
    if "failbackRules" in config:
        found["rules"] = config["failbackRules"]
    version = (runtime or {}).get("brokerVersionDesc")
    if version:
        found["engineVersion"] = version
    return found


def _as_wanted(member: Mapping[str, Any]) -> bool:
    """Tell whether a member is as it should be: ready, in its role, keeping pace."""
    return (
        member["ready"]
        and member.get("observedRole", member["desiredRole"]) == member["desiredRole"]
        and member.get("lag", facts.ZERO) in (facts.ZERO, facts.UNDER_1MI)
        and member.get("metadataSynced", True)
        and member.get("prefix", "Verified") != "Diverged"
    )


def pending_restarts(view: ClusterView) -> list[dict[str, Any]]:
    """Return the members whose pod differs from its template, and why."""
    found = [
        {"member": view.member_name(member), "reasons": list(reasons)}
        for member in view.members
        if (reasons := restarts.reasons(member))
    ]
    return found[:_MAX_PENDING]


def trimmed(status: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the status without member detail when it is too large for one object, and whether."""
    if len(json.dumps(status)) <= MAX_STATUS_BYTES:
        return status, False
    return {**status, "pairs": [{**pair, "members": []} for pair in status["pairs"]]}, True
