"""F11: the disk under a broker's store takes few writes a second.

Only a disk of the store's own, where the kernel limits writes of a control group: ``failback up
--faults disk``, and of a broker that syncs before it answers (SYNC_FLUSH). Proof of effect and of
heal is how long the broker takes to answer a message.
"""

from __future__ import annotations

from typing import Final

from failback.chaos.cluster.target import FaultSetter, Target
from failback.chaos.cluster.view import ClusterView
from failback.chaos.experiment.fault_kinds import FaultKind, Parameter, Values
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.faults.set_on_broker import LASTING, Change, fault_of
from failback.chaos.faults.slow_disk import QUICK_MS, is_quick, is_slow, refuse_async

WRITES: Final = 2
_MOST: Final = 1000 / QUICK_MS
"""More writes a second are answered too quickly to be a sign of a slow disk."""


def _is_few(values: Values) -> tuple[str, str] | None:
    if not 0 < values["writesPerSecond"] < _MOST:
        return "writesPerSecond", f"must be from 1 to {_MOST - 1:g}: more is no sign of a slow disk"
    return None


KIND = FaultKind(
    code="F11",
    name="throttle-disk",
    needs="failback up --faults disk (root, an io controller of cgroups), SYNC_FLUSH",
    proves="a message takes the time of one write; healed below 250 ms",
    action="throttle_disk",
    target="broker",
    title="The disk under a master's store takes writesPerSecond writes",
    parameters=(
        Parameter("writesPerSecond", "count", "writes_per_second", WRITES, always=True),
        *LASTING,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
    check=_is_few,
)
CHANGE: Final = Change("few-writes", "disk", "many-writes", is_quick)


def _refuse(target: Target, view: ClusterView, fault: Written) -> str:
    if isinstance(target, FaultSetter):
        for member in view.members:
            possible = target.possible_faults(member)
            if "disk-full" in possible and CHANGE.fault not in possible:
                lacks = "this machine has no io controller of cgroups that can be written to"
                return f"throttle-disk: {lacks}; slow-disk delays syncs without one"
    return CHANGE.refuse(target, view, fault) or refuse_async(view, fault)


FAULT = fault_of(
    KIND,
    CHANGE,
    lambda values: {"per_second": values["writesPerSecond"]},
    lambda _record, values: is_slow(1e3 / values["writesPerSecond"]),
    _refuse,
)
