"""F16: both brokers of a pair are stopped in order and start again, one after the other.

Made of two terminations. The second waits until the first broker is registered again, or begins
while that one is down. With a version each starts as that one on the store that it left.
"""

from __future__ import annotations

from typing import Final

from failback.chaos.experiment.fault_kinds import (
    AFTER,
    MILESTONES,
    FaultKind,
    Parameter,
    Values,
)
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.faults.fault import Fault
from failback.chaos.faults.terminate import TO_VERSION

BOTH: Final = "both"
MASTER_FIRST: Final = "master-first"
SLAVE_FIRST: Final = "slave-first"
_PASSED_ON: Final = ("downSeconds", "graceSeconds", "toVersion")


def _restarts(fault: Written, values: Values) -> tuple[Written, ...]:
    order = values["order"]
    roles = ("master", "slave") if order == MASTER_FIRST else ("slave", "master")
    passed_on = {name: values[name] for name in _PASSED_ON if values[name]}
    after = {"after": values["after"]} if values["after"] else {}
    first = fault.model_copy(
        update={
            "fault": "terminate",
            "target": fault.target.model_copy(update={"role": roles[0]}),
            "with_": passed_on | after,
        }
    )
    waits_for = "gone" if order == BOTH else "registered"
    second = first.model_copy(
        update={
            "id": f"{fault.id}-{roles[1]}",
            "at": 0.0 if order == BOTH else float(values["gapSeconds"]),
            "jitter_seconds": 0.0,
            "target": fault.target.model_copy(update={"role": roles[1]}),
            "with_": passed_on | {"after": f"{waits_for}:{fault.id}"},
        }
    )
    return first, second


FAULT = Fault(
    FaultKind(
        code="F16",
        name="roll-pair",
        proves="that of terminate, each time; the broker says that it is toVersion",
        action="",
        target="broker",
        title="F2 of both brokers of a pair, one after the other, also to another version",
        parameters=(
            Parameter("order", "choice", "order", SLAVE_FIRST, (SLAVE_FIRST, MASTER_FIRST, BOTH)),
            Parameter("gapSeconds", "seconds", "at_seconds", 15.0),
            Parameter("downSeconds", "seconds", "down_seconds", 5.0),
            Parameter("graceSeconds", "seconds", "grace_seconds", 60.0),
            TO_VERSION,
            AFTER,
        ),
        lasts="downSeconds",
        milestones=MILESTONES,
        supported_by=frozenset({"local"}),
        parts=_restarts,
    )
)
