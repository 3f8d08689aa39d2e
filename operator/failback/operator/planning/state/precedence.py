"""Which operations may go on beside which: which one holds a pair, and which one disturbs one now.
Pure.

A pair has one operation at a time. What is taken away in one pair keeps voluntary disruptions of
other pairs waiting, but for a limited time: an operation that does not come to its end only waits,
and nothing waits for a wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from failback.operator.planning.plan.types import Operation

HOLD_SECONDS: Final = 120.0
"""An operation that has been at one step for longer counts as one that waits."""
PASSING_SECONDS: Final = 15.0
"""What blocks an operation for no longer is no wait: most of it passes by itself."""
SWITCH_STEPS: Final = (
    "Preflight",
    "TakeLease",
    "DrainWrites",
    "Replicate",
    "SyncOffsets",
    "StopOldMaster",
    "StartNewMaster",
    "ApplyOffsets",
    "OpenWrites",
    "RejoinOldMaster",
    "Verify",
)
"""The steps of a planned RoleSwitch, in order."""
_DISTURBS: Final[Mapping[str, frozenset[str]]] = {
    "RoleSwitch": frozenset({*SWITCH_STEPS, "RollBack"} - {"Preflight", "Verify"}),
    "Resync": frozenset({"WipeClaim", "StartMember", "WaitReplicated"}),
    "Roll": frozenset({"DrainMaster", "EvictMember", "WaitReady", "WaitReplicated", "OpenWrites"}),
}
"""Steps with a member taken away, or a pair closed that is to open again."""
_SETS_PERMISSION: Final[Mapping[str, frozenset[str]]] = {
    "RoleSwitch": _DISTURBS["RoleSwitch"],
    "Roll": frozenset({"DrainMaster", "OpenWrites"}),
    "ScaleDown": frozenset({"DrainPair"}),
    "ScaleUp": frozenset({"OpenWrites"}),
}


def holds_pair(operation: Operation) -> bool:
    """Tell whether nothing else may work on the operation's pair.

    A RoleSwitch that waits for the old master to return, or for its object to show the result,
    lets others work on the pair.
    """
    if operation.pair is None:
        return False
    if operation.type != "RoleSwitch":
        return True
    settled = operation.step == "RejoinOldMaster" and "settled" in operation.data
    return not settled and operation.step not in ("Verify", "Finished")


def keeps_out(operation: Operation, asking: str) -> bool:
    """Tell whether an operation keeps one of the type ``asking`` from beginning on its pair.

    A RoleSwitch has the Lease of the pair to its end, and two types need it.
    """
    leased = operation.type == "RoleSwitch" and operation.step != "Finished"
    return holds_pair(operation) or (leased and asking in ("RoleSwitch", "Resync"))


def disturbs(operation: Operation, now: float) -> bool:
    """Tell whether the operation has taken a member of its pair away, or closed it, and works."""
    if operation.step not in _DISTURBS.get(operation.type, ()) or not holds_pair(operation):
        return False
    untouched = operation.attempts == 0 and not operation.data.get("closed")
    if operation.step == "EvictMember" and operation.blocked_by and untouched:
        return False
    return is_recent(operation, now)


def is_recent(operation: Operation, now: float) -> bool:
    """Tell whether the operation has been at its step for a short time only."""
    return now - operation.step_started_at <= HOLD_SECONDS


def waits(operation: Operation, now: float) -> bool:
    """Tell whether the operation only waits, so that another of its type may begin elsewhere."""
    blocked = operation.blocked_by and now - operation.step_started_at > PASSING_SECONDS
    return bool(blocked) or not is_recent(operation, now)


def sets_permission(operation: Operation) -> bool:
    """Tell whether the operation itself sets the permission of its pair at this step."""
    steps = _SETS_PERMISSION.get(operation.type, frozenset())
    return operation.step in steps and holds_pair(operation)
