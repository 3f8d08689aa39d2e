"""Prove that a fault on a broker is what it says: proof steps K3 to K6.

K3 the signal that the process died of, K4 whether shutdown code ran, K5 what peers saw, K6 is it
gone. Each function writes its proof steps into the record, and the doubt when one is not proved.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from typing import Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Deadline, FileStat
from failback.chaos.cluster.view import Member, ProcessIdentity, ProcessState
from failback.chaos.cluster.wire import WireConnection, split_address
from failback.chaos.errors import TargetError
from failback.chaos.failpoints import crash_point
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.protocol.errors import FailbackError, RemotingTimeout

STORE_SECONDS: Final = 60.0
K5_SECONDS: Final = 3.0
PAUSE_PROOF_SECONDS: Final = 3.0
OFFSET_FILE: Final = "config/consumerOffset.json"
ABORT_FILE: Final = "abort"


def prove_death(
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
    session.rec.gone(record, death.seen)
    if death.signal is not None:
        record.proof["K3"] = signal.Signals(death.signal).name
    else:
        record.proof["K3"] = f"exit {death.code}"
    if asked == signal.SIGTERM:
        right = death.signal == signal.SIGTERM or death.code in (0, 143)
    else:
        right = death.signal == asked
    if not right:
        name = signal.Signals(asked).name
        record.add_unproved_reason(f"asked {name}, but {member.pod} ended by {record.proof['K3']}")
    if death.doubt:
        record.add_unproved_reason(death.doubt)


def prove_shutdown_code(
    session: Session,
    record: FaultRecord,
    member: Member,
    *,
    must_run: bool,
    file_before: int | None,
) -> None:
    """K4: a clean stop deletes the store's ``abort`` file and writes the offset file.

    A broker persists its offsets every few seconds, so it may do so right before it is killed. The
    kernel takes the signal at some instant between issue and return; only a file that is younger
    than both is evidence.
    """
    assert record.issued is not None
    issued, returned = record.issued
    abort = _stat(session, member, ABORT_FILE)
    offsets = _stat(session, member, OFFSET_FILE)
    _keep_files(session, record, member)
    written_later = (
        offsets is not None
        and offsets.mtime_ns != file_before
        and offsets.mtime_ns > returned.wall_ns
    )
    if must_run:
        ran = abort is None
        record.proof["K4"] = "shutdown code ran" if ran else "shutdown code did not run"
        if not ran:
            record.add_unproved_reason("the abort file is still there: shutdown code did not run")
        return
    clean = abort is not None and not written_later
    record.proof["K4"] = "no shutdown code ran" if clean else "shutdown code ran"
    record.observed["file_age_ms"] = (
        max(0, round((issued.wall_ns - offsets.mtime_ns) / 1e6)) if offsets is not None else None
    )
    if abort is None:
        record.add_unproved_reason("the abort file is gone: shutdown code ran")
    if written_later:
        record.add_unproved_reason(
            f"{OFFSET_FILE} was written after the signal (before: {file_before})"
        )


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


def offset_file_time(session: Session, member: Member) -> int | None:
    found = _stat(session, member, OFFSET_FILE)
    return found.mtime_ns if found else None


def prove_gone(session: Session, record: FaultRecord, member: Member) -> None:
    """K5 from the witness's own connection, K6 from the kernel and a refused connect."""
    session.wait_for(lambda: "K5" in record.proof, K5_SECONDS, period=0.02)
    record.proof.setdefault("K5", None)
    assert record.identity is not None
    identity = record.identity
    gone = session.target.process_state(identity) in (ProcessState.GONE, ProcessState.REPLACED)
    refused = _refuses(member.address)
    record.proof["K6"] = gone and refused
    if not gone:
        record.add_unproved_reason(f"pid {identity.pid} still exists")
    if not refused:
        record.add_unproved_reason(f"{member.address} still accepts connections")


def _refuses(address: str) -> bool:
    try:
        socket.create_connection(split_address(address), 0.5).close()
    except OSError:
        return True
    return False


def prove_stopped(session: Session, record: FaultRecord, identity: ProcessIdentity) -> None:
    """K3 of a stop: the kernel says ``T``. A stopped process runs no code, so K4 holds too."""
    stopped = session.wait_for(
        lambda: session.target.process_state(identity) is ProcessState.STOPPED, 5.0, period=0.01
    )
    record.proof["K3"] = "SIGSTOP" if stopped else None
    record.proof["K4"] = "no shutdown code ran"
    if not stopped:
        state = session.target.process_state(identity).value
        record.add_unproved_reason(f"pid {identity.pid} is {state}, not stopped")
    session.rec.gone(record, now())


def prove_silence(record: FaultRecord, member: Member, resume_at: int) -> None:
    """K6 of a stop: the kernel accepts the connection, and no answer comes for three seconds.

    A pause that is over sooner is watched for as long as it lasts.
    """
    left = (resume_at - time.monotonic_ns()) / 1e9
    seconds = min(PAUSE_PROOF_SECONDS, left - 0.2)
    record.proof["K5"] = "SILENCE"
    record.observed.setdefault("peer", "SILENCE")
    if seconds <= 0:
        record.proof["K6"] = False
        record.add_unproved_reason("the pause is too short to be proved")
        return
    try:
        with WireConnection(member.address) as connection:
            connection.runtime_info(timeout=seconds)
    except RemotingTimeout:
        record.proof["K6"] = True
        record.observed["silent_seconds"] = round(seconds, 3)
    except FailbackError as error:
        record.proof["K6"] = False
        record.add_unproved_reason(f"while stopped, {member.address}: {error}")
    else:
        record.proof["K6"] = False
        record.add_unproved_reason(f"{member.address} answered while it should be stopped")
