"""F17: a broker is killed again and again, or in turn with the pair's other one. Pure.

Made of kills, each of which waits for the return from the one before.
"""

from __future__ import annotations

from typing import Final

from failback.chaos.experiment.fault_kinds import (
    AFTER,
    DOWN,
    MILESTONES,
    FaultKind,
    Parameter,
    Values,
)
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.faults.fault import Fault
from failback.chaos.faults.kill_and_restart import down_part, kill_part

MAX_KILLS: Final = 16


def _kills(fault: Written, values: Values) -> tuple[Written, ...]:
    parts = [kill_part(fault, values)]
    other = "slave" if fault.target.role in (None, "master") else "master"
    for number in range(1, int(values["times"])):
        turned = values["second"] == "slave" and number % 2 == 1
        target = fault.target.model_copy(update={"role": other}) if turned else fault.target
        parts.append(
            parts[0].model_copy(
                update={
                    "id": f"{fault.id}-again-{number}",
                    "at": float(values["gapSeconds"]),
                    "jitter_seconds": 0.0,
                    "target": target,
                    "with_": down_part(values) | {"after": f"accept:{parts[-1].id}"},
                }
            )
        )
    return tuple(parts)


def _not_too_often(values: Values) -> tuple[str, str] | None:
    times = int(values["times"])
    if times > MAX_KILLS:
        return "times", f"must be a whole number from 1 to {MAX_KILLS} (got {times})"
    return None


FAULT = Fault(
    FaultKind(
        code="F17",
        name="double-kill",
        proves="that of kill, each time",
        action="",
        target="broker",
        title="F1 again and again, each gapSeconds after the broker accepts",
        parameters=(
            Parameter("gapSeconds", "seconds", "at_seconds", 8.0),
            Parameter("second", "choice", "second", "same", ("same", "slave")),
            Parameter("times", "count", "times", 2),
            DOWN,
            AFTER,
        ),
        lasts="downSeconds",
        milestones=MILESTONES,
        check=_not_too_often,
        parts=_kills,
    )
)
