"""What faults on brokers share: hold, signal, prove, release; and when the ledger entry closes.

K1, the victim, and K2, the call, are proved here. K3 to K6 are proved in
:mod:`failback.chaos.faults.proof` before an action returns. A fault that misses one of these steps
is not proved: the answer of a call is no proof. Only K5, what peers saw, may be unseen; checks of
recovery times are then inconclusive. K7, was it restarted, and K8, does it serve again, prove the
healing: the recorder collects them while the method goes on.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Member, ProcessIdentity, Stamp
from failback.chaos.errors import TargetError
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import proof
from failback.chaos.faults.fault import Undo
from failback.chaos.faults.injection import enter, undone
from failback.chaos.recorder.fault_record import HEALED, FaultRecord
from failback.chaos.session import Session

logger = logging.getLogger(__name__)

RELEASE: Final = "release"
EFFECT_SECONDS: Final = 15.0


def hold(session: Session, record: FaultRecord) -> None:
    """Keep a broker from starting again, with the undo in the ledger first."""
    member, _ = victim_of(record)
    enter(session, record, RELEASE, {"pod": member.pod})
    session.target.hold(member, record.undo)
    crash_point("held")


def kill_and_hold(
    session: Session, record: FaultRecord, with_it: Callable[[], None] = lambda: None
) -> None:
    """SIGKILL a broker and keep it down: K1 to K6. It is not released yet.

    Args:
        with_it: Called in the same step, right after the signal.
    """
    member, identity = victim_of(record)
    before = proof.offset_file_time(session, member)
    hold(session, record)
    signal_victim(session, record, signal.SIGKILL)
    with_it()
    proof.prove_death(session, record, member, identity, signal.SIGKILL, EFFECT_SECONDS)
    proof.prove_shutdown_code(session, record, member, must_run=False, file_before=before)
    proof.prove_gone(session, record, member)


def release_later(
    session: Session,
    record: FaultRecord,
    seconds: float | None,
    *,
    from_ns: int | None = None,
) -> None:
    """Have the recorder release the hold ``seconds`` after the signal, or after ``from_ns``."""
    member, _ = victim_of(record)
    due = (from_ns or issued_ns(record)) + round(session.scaled(seconds or 0.0) * 1e9)

    def release() -> None:
        let_start(session, record, [member])
        close_when_healed(session, record)

    session.undo_at(due, release)


def let_start(session: Session, record: FaultRecord, members: Sequence[Member]) -> None:
    """Release members that are held, and start them."""
    crash_point("before-release")
    for each in members:
        session.target.release(each)
        session.target.start(each)
    crash_point("released")
    names = ", ".join(each.pod for each in members)
    undone(session, record, "RELEASE", f"{names} may start again")


def close_when_healed(session: Session, record: FaultRecord) -> None:
    """The ledger entry ends with the observed heal, not with the call that undid it."""

    def close() -> None:
        seen = {
            key: value.mono_ns - session.zero.mono_ns
            for key, value in record.observed.items()
            if isinstance(value, Stamp)
        }
        session.ledger.mark_healed(record.undo, {"observed": seen, "proof": dict(record.proof)})
        session.phases.fault_healed(time.monotonic_ns())
        session.progress(f"{record.fid}: healed, {record.proof.get('K7', '')}".rstrip(", "))

    session.rec.later(lambda: session.rec.milestones.get(record.fid, HEALED) is not None, close)


def victim_of(record: FaultRecord) -> tuple[Member, ProcessIdentity]:
    """The broker that is hit and its process."""
    assert record.victim is not None
    assert record.identity is not None
    return record.victim, record.identity


def issued_ns(record: FaultRecord) -> int:
    """When the call that injects was made, on the monotonic clock."""
    assert record.issued is not None
    return record.issued[0].mono_ns


def signal_victim(session: Session, record: FaultRecord, signum: int) -> None:
    """K2. The pid is compared with its ticks once more inside ``signal``."""
    member, identity = victim_of(record)
    name = signal.Signals(signum).name
    # Set before the call: the witness may see the effect before the call returns.
    stamp = now()
    record.issued = (stamp, stamp)
    record.signum = signum
    try:
        receipt = session.target.signal(identity, signum)
    except TargetError as error:
        record.issued = None
        record.proof["K2"] = False
        record.add_unproved_reason(error.why)
        session.rec.fault_row(record, "NOT_INJECTED", observed=None, observer="harness")
        _undo_nothing(session, record, member)
        raise
    crash_point("signalled")
    session.phases.fault_begun(stamp.mono_ns)
    record.issued = (receipt.issued, receipt.returned)
    record.proof["K2"] = True
    session.progress(f"{record.fid}: {name} to {member.pod} (pid {identity.pid})")


def _undo_nothing(session: Session, record: FaultRecord, member: Member) -> None:
    """Nothing was sent: take the hold back and close the entry."""
    with contextlib.suppress(TargetError):
        session.target.release(member)
    session.ledger.mark_healed(record.undo, {"sent": False})
    session.rec.call_off(record)
    session.rec.evidence(record, "not-injected")


def finish_effect(
    session: Session, record: FaultRecord, kind: str, *, observer: str = "runtime"
) -> None:
    """The effect is proved, or doubted: say so in rows and evidence."""
    record.settle()
    session.rec.fault_row(
        record,
        kind,
        observed=record.effect,
        observer=observer,
        detail={"proof": record.proof, "why": record.why, "victims": record.victims},
    )
    session.rec.evidence(record, "effect")
    crash_point("effect-proved")


def member_of(target: Target, pod: str) -> Member:
    """The member that runs in a pod. Raises ``TargetError`` when there is none."""
    for member in target.view().members:
        if member.pod == pod:
            return member
    raise TargetError(f"pod {pod}", "not part of the cluster")


def take_hold_back(
    target: Target, args: Mapping[str, Any], deadline: float
) -> dict[str, Any] | None:
    """Release a held broker and see it answer."""
    pod = str(args["pod"])
    member = member_of(target, pod)
    if member.running and target.pod_state(pod) != "Held":
        target.release(member)
        return {"pod": pod, "running": True}
    target.release(member)
    target.start(member)
    end = min(deadline, time.monotonic() + 30)
    while True:
        found = member_of(target, pod)
        if found.running and found.identity is not None and found.identity.boot_ms is not None:
            return {"pod": pod, "pid": found.identity.pid, "boot_ms": found.identity.boot_ms}
        if time.monotonic() >= end:
            return None
        time.sleep(0.2)


RELEASE_HOLD: Final = Undo(RELEASE, take_hold_back, action="release_broker")
