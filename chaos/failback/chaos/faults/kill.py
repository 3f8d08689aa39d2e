"""F1: SIGKILL of a broker, held down for a while."""

from __future__ import annotations

from failback.chaos.experiment.fault_kinds import AFTER, DOWN, MILESTONES, FaultKind, Values
from failback.chaos.faults.broker_faults import (
    RELEASE_HOLD,
    finish_effect,
    kill_and_hold,
    release_later,
)
from failback.chaos.faults.fault import Fault
from failback.chaos.faults.injection import broker_action
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session

KIND = FaultKind(
    code="F1",
    name="kill",
    proves="the proof K1 to K6; healed by K7 and K8",
    action="kill_broker",
    target="broker",
    title="SIGKILL of a broker, held down for downSeconds",
    parameters=(DOWN, AFTER),
    lasts="downSeconds",
    milestones=MILESTONES,
    fixed={"signal": "KILL"},
)


def kill(session: Session, record: FaultRecord, values: Values) -> None:
    """Without ``downSeconds`` the broker may start again at once."""
    kill_and_hold(session, record)
    finish_effect(session, record, "KILL")
    release_later(session, record, values["downSeconds"])


FAULT = Fault(KIND, broker_action(KIND, kill), RELEASE_HOLD)
