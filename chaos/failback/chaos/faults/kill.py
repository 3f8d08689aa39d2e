"""F1: SIGKILL of a broker, held down for a while."""

from __future__ import annotations

from typing import Any

from failback.chaos.cluster.view import Role
from failback.chaos.errors import ChaosError
from failback.chaos.experiment.fault_kinds import AFTER, DOWN, MILESTONES, FaultKind
from failback.chaos.faults.broker_faults import (
    RELEASE_HOLD,
    finish_effect,
    kill_and_hold,
    release_later,
)
from failback.chaos.faults.fault import Fault
from failback.chaos.faults.injection import begin_on_broker, returned
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


def kill_broker(
    session: Session,
    pair: str,
    at_seconds: float,
    role: Role = "master",
    signal: str = "KILL",
    down_seconds: float | None = None,
    after: str = "",
    fid: str = "",
) -> dict[str, Any]:
    """F1: SIGKILL a broker and hold it down. Without ``down_seconds`` it may start again at once.

    Undone by :func:`release_broker`. Returns the evidence known so far.
    """
    if signal != "KILL":
        raise ChaosError(f"kill_broker sends KILL, not {signal}: use terminate_broker")
    record = begin_on_broker(session, KIND.name, fid, pair, role, at_seconds, after)
    kill(session, record, down_seconds)
    return returned(session, record)


def kill(session: Session, record: FaultRecord, down_seconds: float | None) -> None:
    """Return when K1 to K6 are known; the release is the recorder's."""
    kill_and_hold(session, record)
    finish_effect(session, record, "KILL")
    release_later(session, record, down_seconds)


FAULT = Fault(KIND, kill_broker, RELEASE_HOLD)
