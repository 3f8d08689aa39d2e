"""F0: nothing happens. What a run shows then is what the instrument itself does."""

from __future__ import annotations

import time
from typing import Any

from failback.chaos.cluster.clock import now
from failback.chaos.experiment.fault_kinds import FaultKind, Parameter, Values
from failback.chaos.faults.fault import Fault
from failback.chaos.faults.injection import Call, action_of, wait_for_time
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session

KIND = FaultKind(
    code="F0",
    name="none",
    proves="all samplers ran",
    action="do_nothing",
    target="none",
    title="nothing happens: proves the instrument",
    parameters=(Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),),
    lasts="durationSeconds",
)


def do_nothing(session: Session, call: Call, values: Values) -> dict[str, Any]:
    """Let time pass under observation."""
    intended = wait_for_time(session, call, "")
    record = FaultRecord(call.fid, KIND.name, "nobody", session.schedule.seeds["victims"])
    record.intended_ns = intended
    stamp = now()
    record.issued, record.proved = (stamp, stamp), True
    session.phases.fault_begun(stamp.mono_ns)
    session.rec.open_fault(record)
    session.rec.fault_row(record, "NONE", observed=stamp, observer="harness")
    session.sleep_until(stamp.mono_ns + round(session.scaled(values["durationSeconds"]) * 1e9))
    session.rec.healed(record, now())
    session.phases.fault_healed(time.monotonic_ns())
    return session.rec.evidence(record, "effect")


FAULT = Fault(KIND, action_of(KIND, do_nothing))
