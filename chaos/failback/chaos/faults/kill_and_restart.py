"""F3 and F4: a broker is killed, and the consumers restart after its return or while it is down.

Made of a kill and a restart of consumers that waits for it: those are what a run knows, proves and
undoes. Pure.
"""

from __future__ import annotations

from typing import Any

from failback.chaos.experiment.fault_kinds import (
    AFTER,
    DOWN,
    MILESTONES,
    FaultKind,
    Parameter,
    Values,
)
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.experiment.model import FaultTarget
from failback.chaos.faults.fault import Fault

_CONSUMERS = (
    Parameter("consumerSignal", "choice", "signal", "KILL", ("KILL", "TERM")),
    Parameter("restartAfterSeconds", "seconds", "restart_after_seconds", 1.0),
)


def kill_part(fault: Written, values: Values) -> Written:
    """The kill that a fault begins with."""
    after = {"after": values["after"]} if values["after"] else {}
    return fault.model_copy(
        update={
            "fault": "kill",
            "target": fault.target.model_copy(update={"group": ""}),
            "with_": down_part(values) | after,
        }
    )


def down_part(values: Values) -> dict[str, Any]:
    down = values["downSeconds"]
    return {} if down is None else {"downSeconds": down}


def _consumers(fault: Written, values: Values, after: str, at: float) -> Written:
    return Written.model_validate(
        {
            "id": f"{fault.id}-consumers",
            "fault": "kill-consumer",
            "at": float(at),
            "target": FaultTarget.model_validate({"group": fault.target.group, "mode": "All"}),
            "with": {
                "signal": values["consumerSignal"],
                "after": after,
                "restartAfterSeconds": values["restartAfterSeconds"],
            },
        }
    )


def _after_return(fault: Written, values: Values) -> tuple[Written, ...]:
    at = values["afterAcceptSeconds"]
    return kill_part(fault, values), _consumers(fault, values, f"accept:{fault.id}", at)


def _while_down(fault: Written, values: Values) -> tuple[Written, ...]:
    at = values["consumerAtSeconds"]
    return kill_part(fault, values), _consumers(fault, values, f"gone:{fault.id}", at)


def _restart_is_within_the_outage(values: Values) -> tuple[str, str] | None:
    at, down = float(values["consumerAtSeconds"]), float(values["downSeconds"])
    if at >= down:
        return "consumerAtSeconds", f"must be less than downSeconds, {down:g} (got {at:g})"
    return None


THEN = Fault(
    FaultKind(
        code="F3",
        name="kill-then-restart-consumers",
        proves="that of both parts",
        action="",
        target="both",
        title="F1, and all consumers restarted right after the broker accepts again",
        parameters=(
            DOWN,
            Parameter("afterAcceptSeconds", "seconds", "at_seconds", 0.5),
            *_CONSUMERS,
            AFTER,
        ),
        lasts="downSeconds",
        milestones=MILESTONES,
        parts=_after_return,
    )
)
DURING = Fault(
    FaultKind(
        code="F4",
        name="kill-and-restart-consumers-during",
        proves="that of both parts",
        action="",
        target="both",
        title="F1, and all consumers restarted while the broker is down",
        parameters=(
            Parameter("downSeconds", "seconds", "down_seconds", 60.0),
            Parameter("consumerAtSeconds", "seconds", "at_seconds", 20.0),
            *_CONSUMERS,
            AFTER,
        ),
        lasts="downSeconds",
        milestones=MILESTONES,
        check=_restart_is_within_the_outage,
        parts=_while_down,
    )
)
