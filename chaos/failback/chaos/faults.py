"""Inject faults, and prove each step: the ladder K1 to K8.

K1 who, K2 the call, K3 the signal that the process died of, K4 whether shutdown code ran, K5 what
peers saw, K6 is it gone, K7 was it restarted, K8 does it serve again. K1 to K6 are proved here
before an action returns, K7 and K8 by the recorder while the method goes on. A fault whose ladder
has a hole is not honest, whatever any call answered.
"""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import socket
import time
from typing import Any, Final

from failback.chaos.board import EFFECT, HEALED
from failback.chaos.catalogue import parse_rung
from failback.chaos.errors import TargetError
from failback.chaos.failpoints import crash_point
from failback.chaos.fault_record import FaultRecord
from failback.chaos.fleet import CONSUMER, WorkloadProcess
from failback.chaos.ledger import CONTINUE, RELEASE, START_CONSUMERS
from failback.chaos.session import Session
from failback.chaos.target import Deadline, FileStat
from failback.chaos.victims import Mode, Selector, choose
from failback.chaos.view import Member, ProcessIdentity, ProcessState, Role, Stamp
from failback.chaos.wire import WireConnection, now, split_address
from failback.protocol.errors import FailbackError, RemotingTimeout

logger = logging.getLogger(__name__)

EFFECT_SECONDS: Final = 15.0
STORE_SECONDS: Final = 60.0
K5_SECONDS: Final = 3.0
PAUSE_PROOF_SECONDS: Final = 3.0
OFFSET_FILE: Final = "config/consumerOffset.json"
ABORT_FILE: Final = "abort"


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
        stamp = _wait_served(session, other, group, served)
    else:
        stamp = session.rec.board.wait(other, rung, session.deadline, session.stop_reason)
    if stamp is None:
        raise TargetError(f"{fid}: wait for {after}", "it was not reached")
    intended = stamp.mono_ns + offset_ns
    session.sleep_until(intended)
    return intended


def _wait_served(session: Session, other: str, group: str, served: int) -> Stamp | None:
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


# --- brokers -------------------------------------------------------------------------------------


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
    member, identity = _victim(record)
    before = _offset_file_time(session, member)
    record.undo = session.ledger.add(RELEASE, {"pod": member.pod}, record.fid)
    crash_point("ledger-written")
    session.rec.open_fault(record)
    session.target.hold(member, record.undo)
    crash_point("held")
    _signal(session, record, signal.SIGKILL)
    _await_death(session, record, member, identity, signal.SIGKILL, EFFECT_SECONDS)
    _shutdown_code(session, record, member, must_run=False, file_before=before)
    _peer_and_port(session, record, member)
    _finish_effect(session, record, "KILL")
    assert record.issued is not None
    release_later(session, record, member, record.issued[0].mono_ns, down_seconds or 0.0)


def terminate_broker(
    session: Session,
    record: FaultRecord,
    grace_seconds: float,
    down_seconds: float | None,
    restart: bool,
) -> None:
    """F2: SIGTERM and time. A process that has to be killed after the grace failed the fault."""
    member, identity = _victim(record)
    record.undo = session.ledger.add(RELEASE, {"pod": member.pod}, record.fid)
    crash_point("ledger-written")
    session.rec.open_fault(record)
    session.target.hold(member, record.undo)
    crash_point("held")
    _signal(session, record, signal.SIGTERM)
    try:
        _await_death(session, record, member, identity, signal.SIGTERM, grace_seconds)
    except TargetError:
        record.doubt(f"{member.pod} did not stop within {grace_seconds:g} s and was killed")
        session.target.signal(identity, signal.SIGKILL)
        _await_death(session, record, member, identity, signal.SIGKILL, EFFECT_SECONDS)
    _shutdown_code(session, record, member, must_run=True, file_before=None)
    _peer_and_port(session, record, member)
    _finish_effect(session, record, "TERM")
    if restart:
        assert record.issued is not None
        release_later(session, record, member, record.issued[0].mono_ns, down_seconds or 0.0)


def pause_broker(session: Session, record: FaultRecord, duration_seconds: float) -> None:
    """F6: SIGSTOP; proved by the process state and by silence on code 28."""
    member, identity = _victim(record)
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
    _await_stopped(session, record, identity)
    session.rec.later(
        lambda: time.monotonic_ns() >= resume_at or session.in_rollback,
        lambda: resume(session, record),
    )
    _prove_silence(record, member, resume_at)
    _finish_effect(session, record, "PAUSE")


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
    member, identity = _victim(record)
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
        session.phases.last_heal = max(session.phases.last_heal or 0, time.monotonic_ns())
        session.progress(f"{record.fid}: healed, {record.rungs.get('K7', '')}".rstrip(", "))

    session.rec.later(lambda: session.rec.board.get(record.fid, HEALED) is not None, close)


def _victim(record: FaultRecord) -> tuple[Member, ProcessIdentity]:
    assert record.victim is not None
    assert record.identity is not None
    return record.victim, record.identity


def _signal(session: Session, record: FaultRecord, signum: int) -> None:
    """K2. The pid is compared with its ticks once more inside ``signal``."""
    member, identity = _victim(record)
    name = signal.Signals(signum).name
    # Set before the call: the witness may see the effect before the call returns.
    stamp = now()
    record.issued = (stamp, stamp)
    record.signum = signum
    if session.phases.first_fault is None:
        session.phases.first_fault = stamp.mono_ns
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


def _await_death(
    session: Session,
    record: FaultRecord,
    member: Member,
    identity: ProcessIdentity,
    asked: int,
    seconds: float,
) -> None:
    """K3: the parent's wait status says what the process died of."""
    death = session.target.await_gone(identity, Deadline.after(seconds))
    crash_point("dead")
    record.observed["gone_ns"] = death.seen
    session.rec.board.post(record.fid, "gone", death.seen)
    if death.signal is not None:
        record.rungs["K3"] = signal.Signals(death.signal).name
    else:
        record.rungs["K3"] = f"exit {death.code}"
    if asked == signal.SIGTERM:
        right = death.signal == signal.SIGTERM or death.code in (0, 143)
    else:
        right = death.signal == asked
    if not right:
        name = signal.Signals(asked).name
        record.doubt(f"asked {name}, but {member.pod} ended by {record.rungs['K3']}")
    if death.doubt:
        record.doubt(death.doubt)


def _shutdown_code(
    session: Session,
    record: FaultRecord,
    member: Member,
    *,
    must_run: bool,
    file_before: int | None,
) -> None:
    """K4: a clean stop deletes the store's ``abort`` file and writes the offset file."""
    assert record.issued is not None
    issued_wall = record.issued[0].wall_ns
    abort = _stat(session, member, ABORT_FILE)
    offsets = _stat(session, member, OFFSET_FILE)
    _keep_files(session, record, member)
    written_later = offsets is not None and offsets.mtime_ns > issued_wall
    if must_run:
        ran = abort is None
        record.rungs["K4"] = "shutdown code ran" if ran else "shutdown code did not run"
        if not ran:
            record.doubt("the abort file is still there: shutdown code did not run")
        return
    clean = abort is not None and not written_later
    record.rungs["K4"] = "no shutdown code ran" if clean else "shutdown code ran"
    record.observed["file_age_ms"] = (
        round((issued_wall - offsets.mtime_ns) / 1e6) if offsets is not None else None
    )
    if abort is None:
        record.doubt("the abort file is gone: shutdown code ran")
    if written_later:
        record.doubt(f"{OFFSET_FILE} was written after the signal (before: {file_before})")


def _stat(session: Session, member: Member, path: str) -> FileStat | None:
    """Facts of a store file of a dead broker. Where the platform has to start its container again
    before anybody can look inside, this waits for it."""
    deadline = Deadline.after(STORE_SECONDS)
    while True:
        try:
            return session.target.stat_store(member, path)
        except TargetError:
            if deadline.over():
                raise
        session.check()
        time.sleep(0.2)


def _keep_files(session: Session, record: FaultRecord, member: Member) -> None:
    """The files that the next start will load."""
    for path in (OFFSET_FILE, f"{OFFSET_FILE}.bak", "config/delayOffset.json"):
        with contextlib.suppress(OSError, TargetError):
            data = session.target.read_store(member, path)
            name = path.removeprefix("config/")
            session.folder.write_bytes(f"snap/{record.fid}-gone/{member.pod}/{name}", data)


def _offset_file_time(session: Session, member: Member) -> int | None:
    found = _stat(session, member, OFFSET_FILE)
    return found.mtime_ns if found else None


def _peer_and_port(session: Session, record: FaultRecord, member: Member) -> None:
    """K5 from the witness's own connection, K6 from the kernel and a refused connect."""
    session.wait_for(lambda: "K5" in record.rungs, K5_SECONDS, period=0.02)
    record.rungs.setdefault("K5", None)
    _, identity = _victim(record)
    gone = session.target.process_state(identity) in (ProcessState.GONE, ProcessState.REPLACED)
    refused = _refuses(member.address)
    record.rungs["K6"] = gone and refused
    if not gone:
        record.doubt(f"pid {identity.pid} still exists")
    if not refused:
        record.doubt(f"{member.address} still accepts connections")


def _refuses(address: str) -> bool:
    try:
        socket.create_connection(split_address(address), 0.5).close()
    except OSError:
        return True
    return False


def _await_stopped(session: Session, record: FaultRecord, identity: ProcessIdentity) -> None:
    """K3 of a stop: the kernel says ``T``. A stopped process runs no code, so K4 holds too."""
    stopped = session.wait_for(
        lambda: session.target.process_state(identity) is ProcessState.STOPPED, 5.0, period=0.01
    )
    record.rungs["K3"] = "SIGSTOP" if stopped else None
    record.rungs["K4"] = "no shutdown code ran"
    if not stopped:
        state = session.target.process_state(identity).value
        record.doubt(f"pid {identity.pid} is {state}, not stopped")
    stamp = now()
    record.observed["gone_ns"] = stamp
    session.rec.board.post(record.fid, "gone", stamp)


def _prove_silence(record: FaultRecord, member: Member, resume_at: int) -> None:
    """K6 of a stop: the kernel accepts the connection, nobody answers for three seconds.

    A pause that is over sooner is watched for as long as it lasts.
    """
    left = (resume_at - time.monotonic_ns()) / 1e9
    seconds = min(PAUSE_PROOF_SECONDS, left - 0.2)
    record.rungs["K5"] = "SILENCE"
    record.observed.setdefault("peer", "SILENCE")
    if seconds <= 0:
        record.rungs["K6"] = False
        record.doubt("the pause is too short to be proved")
        return
    try:
        with WireConnection(member.address) as connection:
            connection.runtime_info(timeout=seconds)
    except RemotingTimeout:
        record.rungs["K6"] = True
        record.observed["silent_seconds"] = round(seconds, 3)
    except FailbackError as error:
        record.rungs["K6"] = False
        record.doubt(f"while stopped, {member.address}: {error}")
    else:
        record.rungs["K6"] = False
        record.doubt(f"{member.address} answered while it should be stopped")


def _finish_effect(session: Session, record: FaultRecord, kind: str) -> None:
    if record.honest is None:
        record.honest = True
    gone = record.observed.get("gone_ns")
    session.rec.fault_row(
        record,
        kind,
        observed=gone,
        observer="runtime",
        detail={"rungs": record.rungs, "why": record.why, "victims": record.victims},
    )
    session.rec.evidence(record, "effect")
    session.rec.board.post(record.fid, EFFECT, now())
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


# --- consumers -----------------------------------------------------------------------------------


def choose_members(session: Session, group: str, mode: str, value: int) -> list[WorkloadProcess]:
    """Running members of a group, chosen by seed. Raises ``TargetError`` when there is none."""
    running = sorted(session.load.of_role(CONSUMER, group=group), key=lambda each: each.member)
    if not running:
        raise TargetError(f"members of {group}", "none is running")
    match mode:
        case "all":
            return running
        case "one":
            amount = 1
        case _:
            amount = max(1, min(len(running), value or 1))
    draw = random.Random(session.schedule.seeds["victims"])
    return sorted(draw.sample(running, amount), key=lambda each: each.member)


def end_consumers(
    session: Session, record: FaultRecord, members: list[WorkloadProcess], signum: int
) -> None:
    """F15: end consumer processes; their wait status is the proof. They start again later."""
    record.signum = signum
    record.undo = session.ledger.add(
        START_CONSUMERS,
        {"members": [[each.group, each.member] for each in members]},
        record.fid,
    )
    session.rec.open_fault(record)
    record.rungs["K1"] = True
    begun = now()
    record.issued = (begun, begun)
    for process in members:
        receipt = session.load.signal_member(process, signum)
        record.issued = (begun, receipt.returned)
    record.rungs["K2"] = True
    name = signal.Signals(signum).name
    names = ", ".join(each.name for each in members)
    session.progress(f"{record.fid}: {name} to {names}")
    record.rungs["K6"] = all(session.load.await_end(each, EFFECT_SECONDS) for each in members)
    crash_point("consumers-ended")
    ends = [_how_it_ended(each, signum) for each in members]
    record.rungs["K3"] = ", ".join(how for how, _ in ends)
    if not record.rungs["K6"]:
        record.doubt(f"{names}: still running {EFFECT_SECONDS:g} s after {name}")
    for how, right in ends:
        if not right:
            record.doubt(f"asked {name}, but a consumer ended by {how}")
    last = max(
        (each.exit.stamp for each in members if each.exit), key=lambda s: s.mono_ns, default=now()
    )
    record.observed["gone_ns"] = last
    if record.honest is None:
        record.honest = True
    session.rec.board.post(record.fid, "gone", last)
    kind = "CLIENT_TERM" if signum == signal.SIGTERM else "CLIENT_KILL"
    for process in members:
        _client_row(session, record, process, kind)
    session.rec.evidence(record, "effect")
    session.rec.board.post(record.fid, EFFECT, now())


def start_consumers_later(
    session: Session,
    record: FaultRecord,
    members: list[WorkloadProcess],
    restart_after: str,
    seconds: float,
) -> None:
    """Start the ended members again: ``seconds`` after their end, or after another rung."""
    delay_ns = round(session.scaled(seconds) * 1e9)
    pending = [(each.group, each.member) for each in members]
    rung, other = parse_rung(restart_after) if restart_after else ("gone", record.fid)

    def due() -> bool:
        if session.in_rollback:
            return True
        stamp = session.rec.board.get(other, rung)
        return stamp is not None and time.monotonic_ns() >= stamp.mono_ns + delay_ns

    def start() -> None:
        if session.in_rollback:
            # The run is ending: nobody is started any more, and nothing is left to take back.
            session.ledger.mark_healed(record.undo, {"ended_with": "the run"})
            return
        crash_point("before-consumers-start")
        for group, member in pending:
            session.load.start_member(group, member)
        session.ledger.mark_undone(record.undo)
        session.rec.fault_row(record, "CLIENT_START", observed=now(), observer="harness")
        names = ", ".join(f"{group}-{member}" for group, member in pending)
        session.progress(f"{record.fid}: {names} started again")
        session.rec.later(
            lambda: _assigned(session, pending), lambda: _consumers_back(session, record)
        )

    session.rec.later(due, start)


def _assigned(session: Session, pending: list[tuple[str, int]]) -> bool:
    running = {(each.group, each.member): each for each in session.load.of_role(CONSUMER)}
    return all(key in running and bool(running[key].stats.get("assigned")) for key in pending)


def _consumers_back(session: Session, record: FaultRecord) -> None:
    stamp = now()
    record.rungs["K7"] = "new processes assigned"
    record.rungs["K8"] = True
    session.rec.healed(record, stamp)
    session.ledger.mark_healed(record.undo, {"assigned_ns": stamp.mono_ns - session.zero.mono_ns})
    session.phases.last_heal = max(session.phases.last_heal or 0, stamp.mono_ns)


def _how_it_ended(process: WorkloadProcess, signum: int) -> tuple[str, bool]:
    if process.exit is None:
        return "nothing", False
    if process.exit.signal is not None:
        how = signal.Signals(process.exit.signal).name
        return how, process.exit.signal == signum
    return f"exit {process.exit.code}", signum == signal.SIGTERM and process.exit.code in (0, 143)


def _client_row(session: Session, record: FaultRecord, process: WorkloadProcess, kind: str) -> None:
    ended = process.exit
    session.rec.fault_row(
        record,
        kind,
        observed=ended.stamp if ended else None,
        observer="harness",
        proc_ref=process.proc.hex(),
        detail={
            "proc_no": process.proc_no,
            "group": process.group,
            "member": process.member,
            "signal": ended.signal if ended else None,
            "code": ended.code if ended else None,
            "planned": True,
        },
    )
