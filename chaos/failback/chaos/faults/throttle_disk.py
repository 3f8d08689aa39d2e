"""F11: the disk under a broker's store takes one write in ``delayMs``, and the next ones wait.

Only a disk of the store's own, where the kernel limits writes of a control group: ``failback up
--faults disk``, and of a broker that syncs before it answers (SYNC_FLUSH). Proof of effect and of
heal is how long the broker takes to answer a message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from failback.chaos.cluster.target import FaultSetter, Target
from failback.chaos.cluster.view import ClusterView
from failback.chaos.experiment.fault_kinds import Values
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.faults import slow_disk
from failback.chaos.faults.set_on_broker import Change, fault_of

_LONGEST_MS: Final = 1000.0
"""The kernel counts writes in a second, and at least one."""


def _is_counted(values: Values) -> tuple[str, str] | None:
    if values["delayMs"] > _LONGEST_MS:
        return "delayMs", f"must be at most {_LONGEST_MS:g}: the kernel allows one write a second"
    return None


KIND = replace(
    slow_disk.KIND,
    name="throttle-disk",
    needs="failback up --faults disk (root, an io controller of cgroups), SYNC_FLUSH",
    action="throttle_disk",
    title="The disk under a master's store takes one write in delayMs",
    check=_is_counted,
)
CHANGE: Final = Change("few-writes", "disk", "many-writes", slow_disk.is_quick)


def _refuse(target: Target, view: ClusterView, fault: Written) -> str:
    if isinstance(target, FaultSetter):
        for member in view.members:
            possible = target.possible_faults(member)
            if "disk-full" in possible and CHANGE.fault not in possible:
                lacks = "this machine has no io controller of cgroups that can be written to"
                return f"throttle-disk: {lacks}; slow-disk delays syncs without one"
    return CHANGE.refuse(target, view, fault) or slow_disk.refuse_unseen(view, fault)


FAULT = fault_of(
    KIND,
    CHANGE,
    lambda values: {"per_second": int(_LONGEST_MS / values["delayMs"])},
    lambda _record, values: slow_disk.is_slow(values),
    _refuse,
)
