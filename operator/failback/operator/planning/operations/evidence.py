"""Whether an operation in the status is one that the operator opened. Pure.

Every account that may write a status could put one there. What an operation needs before it takes a
member away is therefore looked for outside the status: the object that asked for it, the pair's
Lease, the claims, the spec. One that has no such evidence is given up before it shapes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from failback.operator.planning.operations import resync, role_switch, scale_down
from failback.operator.planning.operations.pair_lease import PairLease
from failback.operator.planning.operations.switching.request import find
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state.cluster_state import ClusterState

_SWITCH_DATA: Final[Mapping[str, type]] = {
    "name": str,
    "uid": str,
    "from": int,
    "to": int,
    "mode": str,
    "policy": str,
    "maxLagBytes": int,
    "timeoutSeconds": int,
    "onTimeout": str,
    "snapshot": str,
    "steps": list,
    "unsafe": list,
}


def has_evidence(state: ClusterState, operation: Operation) -> bool:
    """Tell whether an operation may be believed."""
    judge = _JUDGES.get(operation.type)
    return judge is None or judge(state, operation)


def _of_role_switch(state: ClusterState, operation: Operation) -> bool:
    """Its object, or its Lease, before the change of master; the new master after it."""
    data, pair = operation.data, operation.pair
    if pair is None or operation.step not in role_switch.STEPS:
        return False
    if not all(isinstance(data.get(key), kind) for key, kind in _SWITCH_DATA.items()):
        return False
    if operation.step == role_switch.FINISHED:
        return True
    request = find(state.cluster, state.observed, data["uid"])
    asked = request is not None and (request.spec.pair, request.spec.target_member) == (
        pair,
        data["to"],
    )
    if not asked and not PairLease.of(state, pair, data["uid"]).is_ours:
        return False
    master = state.master_member(pair)
    if operation.step == "StartNewMaster":
        return master in (data["from"], data["to"])
    return bool(master == data["to" if operation.step in role_switch.SWITCHED else "from"])


def _of_resync(state: ClusterState, operation: Operation) -> bool:
    """The annotation or the Lease; never about the master."""
    uid, pair = operation.data.get("uid"), operation.pair
    if pair is None or not uid or operation.member == state.master_member(pair):
        return False
    return resync.is_asked_for(state, uid) or PairLease.of(state, pair, operation.id).is_ours


def _of_scale_down(state: ClusterState, operation: Operation) -> bool:
    """The spec has no place for what it takes away, from the step on that stops members."""
    return operation.step not in scale_down.STOPPING or scale_down.is_wanted(state, operation)


_JUDGES: Final[Mapping[str, Callable[[ClusterState, Operation], bool]]] = {
    role_switch.TYPE: _of_role_switch,
    resync.TYPE: _of_resync,
    scale_down.TYPE: _of_scale_down,
}
