"""F2: SIGTERM of a broker and time. One that needs SIGKILL after the grace failed the fault."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Final

from failback.chaos.cluster.target import VersionChanger
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import (
    AFTER,
    DOWN,
    MILESTONES,
    FaultKind,
    Parameter,
    Values,
)
from failback.chaos.faults import proof
from failback.chaos.faults.broker_faults import (
    EFFECT_SECONDS,
    RELEASE_HOLD,
    finish_effect,
    hold,
    release_later,
    signal_victim,
    victim_of,
)
from failback.chaos.faults.fault import Fault
from failback.chaos.faults.injection import broker_action
from failback.chaos.recorder.fault_record import HEALED, FaultRecord
from failback.chaos.session import Session
from failback.protocol.errors import FailbackError

TO_VERSION: Final = Parameter("toVersion", "version", "to_version", "")
KIND = FaultKind(
    code="F2",
    name="terminate",
    proves="exit 0 or 143, and shutdown code ran; healed by K7 and K8",
    action="terminate_broker",
    target="broker",
    title="SIGTERM of a broker and time to shut down in order",
    parameters=(
        Parameter("graceSeconds", "seconds", "grace_seconds", 60.0),
        Parameter("restart", "flag", "restart", True),
        DOWN,
        TO_VERSION,
        AFTER,
    ),
    lasts="downSeconds",
    milestones=MILESTONES,
)


def terminate(session: Session, record: FaultRecord, values: Values) -> None:
    """SIGTERM a broker. One that needs SIGKILL after the grace leaves the fault unproved.

    With ``toVersion`` it starts again as that version of Apache, and stays it.
    """
    if values["toVersion"]:
        _change_version(session, record, values["toVersion"])
    grace_seconds = float(values["graceSeconds"])
    member, identity = victim_of(record)
    hold(session, record)
    signal_victim(session, record, signal.SIGTERM)
    try:
        proof.prove_death(session, record, member, identity, signal.SIGTERM, grace_seconds)
    except TargetError:
        record.add_unproved_reason(
            f"{member.pod} did not stop within {grace_seconds:g} s and was killed"
        )
        session.target.signal(identity, signal.SIGKILL)
        proof.prove_death(session, record, member, identity, signal.SIGKILL, EFFECT_SECONDS)
    proof.prove_shutdown_code(session, record, member, must_run=True, file_before=None)
    proof.prove_gone(session, record, member)
    finish_effect(session, record, "TERM")
    if values["restart"]:
        release_later(session, record, values["downSeconds"])


def _change_version(session: Session, record: FaultRecord, version: str) -> None:
    """Have the next start be of another version; the broker itself says later that it is."""
    target, (member, _) = session.target, victim_of(record)
    if not isinstance(target, VersionChanger):
        raise TargetError(f"version of {member.pod}", f"a {target.kind} target changes none")
    target.set_version(member, version)
    session.rec.later(
        lambda: session.rec.milestones.get(record.fid, HEALED) is not None,
        lambda: _prove_version(session, record, version),
    )


def _prove_version(session: Session, record: FaultRecord, version: str) -> None:
    member, _ = victim_of(record)
    try:
        with WireConnection(member.address) as connection:
            found = connection.runtime_info(timeout=3.0).get("brokerVersionDesc", "unknown")
    except FailbackError as error:
        found = str(error)
    record.proof["VERSION"] = found
    if found != f"V{version.replace('.', '_')}":
        record.add_unproved_reason(f"{member.pod} says that it is {found}, not {version}")
    session.rec.evidence(record, "heal")


FAULT = Fault(KIND, broker_action(KIND, terminate), replace(RELEASE_HOLD, action="start_broker"))
