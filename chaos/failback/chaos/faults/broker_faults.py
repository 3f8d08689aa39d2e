"""Inject faults into brokers, and prove each step: the ladder K1 to K8.

K1 who and K2 the call are proved here, K3 to K6 in :mod:`failback.chaos.faults.proof` before an
action returns, K7 was it restarted and K8 does it serve again by the recorder while the method
goes on. A fault whose ladder has a hole is not honest, whatever any call answered.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from typing import Any, Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import Member, ProcessIdentity, Role, Stamp
from failback.chaos.errors import TargetError
from failback.chaos.experiment.catalogue import parse_rung
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import proof
from failback.chaos.faults.victims import Mode, Selector, choose
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.recorder.milestones import HEALED
from failback.chaos.run_folder.undo_ledger import CONTINUE, RELEASE
from failback.chaos.session import Session

logger = logging.getLogger(__name__)

EFFECT_SECONDS: Final = 15.0


def wait_for_time(
    session: Session, fid: str, at_seconds: float, after: str, *, group: str = "", served: int = 0
) -> int:
    """Wait until a fault is due; return the intended instant, monotonic ns.

    Raises:
        TargetError: The rung that it waits for can no longer be reached.
        Aborted: The run was told to stop.
    """
    offset_ns = round(session.scaled(at_seconds) * 1e9)
    if not after:
        intended = session.zero.mono_ns + offset_ns
        session.sleep_until(intended)
        return intended
    rung, other = parse_rung(after)
    if rung == "slave-serving" and group:
        stamp = wait_served(session, other, group, served)
    else:
        stamp = session.rec.board.wait(other, rung, session.deadline, session.stop_reason)
    if stamp is None:
        raise TargetError(f"{fid}: wait for {after}", "it was not reached")
    intended = stamp.mono_ns + offset_ns
    session.sleep_until(intended)
    return intended


def wait_served(session: Session, other: str, group: str, served: int) -> Stamp | None:
    """The slave has served this much; impossible once the master is back."""
    wanted = max(1, round(session.scaled(served)))
    recorder = session.rec

    def hopeless() -> str:
        reason = session.stop_reason()
        if reason:
            return reason
        if recorder.board.get(other, "accept") is not None:
            return (
                f"the master of {other} returned when the slave had served "
                f"{recorder.served(other, group)} of {wanted} messages to {group}"
            )
        return ""

    return recorder.wait_served(other, group, wanted, session.deadline, hopeless)


def pick(session: Session, pair: str, role: Role | None, mode: Mode = "one") -> Member:
    """Look at the cluster and choose one broker."""
    view = session.target.view()
    found = view.pair(pair)
    selector = Selector(
        pair=found.name if found else "",
        pair_selector="" if found else pair,
        role=role,
        mode=mode,
    )
    seed = session.schedule.seeds["victims"]
    return choose(view, selector, seed, session.experiment.spec.guard.max_pairs_down)[0]


def open_record(
    session: Session, fid: str, fault: str, member: Member, intended_ns: int
) -> FaultRecord:
    """K1: who is the victim, and does it say itself that it is the broker that is meant?"""
    identity = session.target.identity(member)
    record = FaultRecord(
        fid=fid,
        fault=fault,
        rule=f"pair={member.pair} role={member.role} mode=one",
        seed=session.schedule.seeds["victims"],
        victim=member,
        identity=identity,
        victims=[_describe(member, identity)],
        intended_ns=intended_ns,
    )
    record.rungs["K1"] = identity.boot_ms is not None
    if identity.boot_ms is None:
        record.doubt(f"{member.pod} did not answer code 28 before the signal")
    return record


def kill_broker(session: Session, record: FaultRecord, down_seconds: float | None) -> None:
    """F1: SIGKILL, held down. Returns when K1 to K6 are known; the release is the recorder's."""
    kill_and_hold(session, record)
    member, _ = victim_of(record)
    finish_effect(session, record, "KILL")
    assert record.issued is not None
    release_later(session, record, member, record.issued[0].mono_ns, down_seconds or 0.0)


def kill_and_hold(session: Session, record: FaultRecord) -> None:
    """SIGKILL a broker and keep it down: K1 to K6. Nobody releases it yet."""
    member, identity = victim_of(record)
    before = proof.offset_file_time(session, member)
    record.undo = session.ledger.add(RELEASE, {"pod": member.pod}, record.fid)
    crash_point("ledger-written")
    session.rec.open_fault(record)
    session.target.hold(member, record.undo)
    crash_point("held")
    _signal(session, record, signal.SIGKILL)
    proof.prove_death(session, record, member, identity, signal.SIGKILL, EFFECT_SECONDS)
    proof.prove_shutdown_code(session, record, member, must_run=False, file_before=before)
    proof.prove_gone(session, record, member)


def terminate_broker(
    session: Session,
    record: FaultRecord,
    grace_seconds: float,
    down_seconds: float | None,
    restart: bool,
) -> None:
    """F2: SIGTERM and time. A process that has to be killed after the grace failed the fault."""
    member, identity = victim_of(record)
    record.undo = session.ledger.add(RELEASE, {"pod": member.pod}, record.fid)
    crash_point("ledger-written")
    session.rec.open_fault(record)
    session.target.hold(member, record.undo)
    crash_point("held")
    _signal(session, record, signal.SIGTERM)
    try:
        proof.prove_death(session, record, member, identity, signal.SIGTERM, grace_seconds)
    except TargetError:
        record.doubt(f"{member.pod} did not stop within {grace_seconds:g} s and was killed")
        session.target.signal(identity, signal.SIGKILL)
        proof.prove_death(session, record, member, identity, signal.SIGKILL, EFFECT_SECONDS)
    proof.prove_shutdown_code(session, record, member, must_run=True, file_before=None)
    proof.prove_gone(session, record, member)
    finish_effect(session, record, "TERM")
    if restart:
        assert record.issued is not None
        release_later(session, record, member, record.issued[0].mono_ns, down_seconds or 0.0)


def pause_broker(session: Session, record: FaultRecord, duration_seconds: float) -> None:
    """F6: SIGSTOP; proved by the process state and by silence on code 28."""
    member, identity = victim_of(record)
    record.undo = session.ledger.add(
        CONTINUE,
        _named(member, identity),
        record.fid,
    )
    crash_point("ledger-written")
    session.rec.open_fault(record)
    _signal(session, record, signal.SIGSTOP)
    assert record.issued is not None
    resume_at = record.issued[0].mono_ns + round(session.scaled(duration_seconds) * 1e9)
    proof.prove_stopped(session, record, identity)
    session.rec.later(
        lambda: time.monotonic_ns() >= resume_at or session.in_rollback,
        lambda: resume(session, record),
    )
    proof.prove_silence(record, member, resume_at)
    finish_effect(session, record, "PAUSE")


def release_later(
    session: Session, record: FaultRecord, member: Member, from_ns: int, down_seconds: float
) -> None:
    """Have the recorder release the hold when the outage is over."""
    due = from_ns + round(session.scaled(down_seconds) * 1e9)
    session.rec.later(
        lambda: time.monotonic_ns() >= due or session.in_rollback,
        lambda: release(session, record, member),
    )


def release(session: Session, record: FaultRecord, member: Member) -> None:
    crash_point("before-release")
    session.target.release(member)
    session.target.start(member)
    crash_point("released")
    session.ledger.mark_undone(record.undo)
    session.rec.fault_row(record, "RELEASE", observed=now(), observer="harness")
    session.progress(f"{record.fid}: {member.pod} may start again")
    _close_when_healed(session, record)


def resume(session: Session, record: FaultRecord) -> None:
    member, identity = victim_of(record)
    crash_point("before-continue")
    with contextlib.suppress(TargetError):
        session.target.signal(identity, signal.SIGCONT)
    record.resumed = now()
    session.ledger.mark_undone(record.undo)
    session.rec.fault_row(record, "RESUME", observed=record.resumed, observer="harness")
    session.progress(f"{record.fid}: {member.pod} runs on")
    _close_when_healed(session, record)


def _close_when_healed(session: Session, record: FaultRecord) -> None:
    """The ledger entry ends with the observed heal, not with the call that undid it."""

    def close() -> None:
        seen = {
            key: value.mono_ns - session.zero.mono_ns
            for key, value in record.observed.items()
            if isinstance(value, Stamp)
        }
        session.ledger.mark_healed(record.undo, {"observed": seen, "rungs": dict(record.rungs)})
        session.phases.fault_healed(time.monotonic_ns())
        session.progress(f"{record.fid}: healed, {record.rungs.get('K7', '')}".rstrip(", "))

    session.rec.later(lambda: session.rec.board.get(record.fid, HEALED) is not None, close)


def victim_of(record: FaultRecord) -> tuple[Member, ProcessIdentity]:
    """The broker that is hit and its process."""
    assert record.victim is not None
    assert record.identity is not None
    return record.victim, record.identity


def _signal(session: Session, record: FaultRecord, signum: int) -> None:
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
        record.rungs["K2"] = False
        record.doubt(error.why)
        session.rec.fault_row(record, "NOT_INJECTED", observed=None, observer="harness")
        _undo_nothing(session, record, member)
        raise
    crash_point("signalled")
    session.phases.fault_begun(stamp.mono_ns)
    record.issued = (receipt.issued, receipt.returned)
    record.rungs["K2"] = True
    session.progress(f"{record.fid}: {name} to {member.pod} (pid {identity.pid})")


def _undo_nothing(session: Session, record: FaultRecord, member: Member) -> None:
    """Nothing was sent: take the hold back and close the entry."""
    with contextlib.suppress(TargetError):
        session.target.release(member)
    session.ledger.mark_healed(record.undo, {"sent": False})
    session.rec.call_off(record)
    session.rec.evidence(record, "not-injected")


def finish_effect(session: Session, record: FaultRecord, kind: str) -> None:
    """The effect is proved, or doubted: say so in rows and evidence."""
    record.settle()
    gone = record.observed.get("gone_ns")
    session.rec.fault_row(
        record,
        kind,
        observed=gone,
        observer="runtime",
        detail={"rungs": record.rungs, "why": record.why, "victims": record.victims},
    )
    session.rec.evidence(record, "effect")
    crash_point("effect-proved")


def _named(member: Member, identity: ProcessIdentity) -> dict[str, Any]:
    """One process for the ledger: enough to find exactly it again."""
    named = {"pod": member.pod, "pid": identity.pid, "ticks": identity.ticks}
    where = {"container": identity.container, "uid": identity.uid}
    return named | {key: value for key, value in where.items() if value}


def _describe(member: Member, identity: ProcessIdentity) -> dict[str, Any]:
    return {
        "pair": member.pair,
        "member": member.ordinal,
        "broker_id": member.broker_id,
        "address": member.address,
        "pod": member.pod,
        "pid": identity.pid,
        "ticks": identity.ticks,
        "boot_ms": identity.boot_ms,
        **({"container": identity.container, "uid": identity.uid} if identity.container else {}),
    }
