"""F15: consumer processes end by KILL or TERM and start again.

The harness is their parent: a wait status is all the proof.
"""

from __future__ import annotations

import random
import signal as signals
import time
from collections.abc import Callable
from typing import Any, Final

from failback.chaos.cluster.clock import now
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import (
    AFTER,
    MODES,
    FaultKind,
    Parameter,
    Values,
    parse_milestone,
)
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import member_faults
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import Call, action_of, returned, undone, wait_for_time
from failback.chaos.faults.victims import amount_of
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.chaos.workload.process import CONSUMER, WorkloadProcess

START_CONSUMERS: Final = "start-consumers"
END_SECONDS: Final = 15.0
ASSIGNED_SECONDS: Final = 120.0

KIND = FaultKind(
    code="F15",
    name="kill-consumer",
    proves="wait status of every process; healed when new ones are assigned",
    action="restart_consumers",
    target="group",
    title="consumer processes end by KILL or TERM and start again",
    parameters=(
        Parameter("signal", "choice", "signal", "KILL", ("KILL", "TERM"), always=True),
        Parameter("rolling", "flag", "rolling", False),
        AFTER,
        Parameter("minServed", "count", "min_served", 100),
        Parameter("restartAfter", "milestone", "restart_after", ""),
        Parameter("restartAfterSeconds", "seconds", "restart_after_seconds", 5.0, always=True),
    ),
    lasts="restartAfterSeconds",
    milestones=("gone",),
    modes=MODES,
)


def restart_consumers(session: Session, call: Call, values: Values) -> dict[str, Any]:
    """End members of a group and start them again.

    With ``after`` the wait begins at that milestone of another fault; ``slave-serving`` is reached
    once the slave has served ``minServed`` messages to this group. ``restartAfter`` names the
    milestone from which ``restartAfterSeconds`` count, the members' end otherwise. With ``rolling``
    the next member ends when the one before is assigned again.
    """
    signum = signals.SIGTERM if values["signal"] == "TERM" else signals.SIGKILL
    intended = wait_for_time(session, call, values["after"], values["minServed"])
    members = choose_members(session, call.group, call.mode, call.value)
    waves = [[each] for each in members] if values["rolling"] else [members]
    evidence: dict[str, Any] = {}
    for number, wave in enumerate(waves):
        name = f"{call.fid}.{number + 1}" if number else call.fid
        due = time.monotonic_ns() if number else intended
        record = record_of(session, name, f"group={call.group} mode={call.mode}", wave, due)
        end_consumers(session, record, wave, signum)
        start_consumers_later(session, record, wave, values)
        evidence = returned(session, record)
        if wave is not waves[-1]:
            _await_assigned(session, name)
    return evidence


def _await_assigned(session: Session, fid: str) -> None:
    """Wait for the consumers of one wave: of a rolling restart, no two are away at a time."""
    observed = session.rec.faults[fid].observed
    if not session.wait_for(lambda: "healed_ns" in observed, ASSIGNED_SECONDS):
        raise TargetError(fid, f"not assigned again within {ASSIGNED_SECONDS:g} s")


def choose_members(session: Session, group: str, mode: str, value: float) -> list[WorkloadProcess]:
    """Running members of a group, chosen by seed. Raises ``TargetError`` when there is none."""
    running = sorted(member_faults.members_of(session, group), key=lambda each: each.member)
    seed = session.schedule.seeds["victims"]
    amount = amount_of(mode, value, len(running), seed)
    chosen = random.Random(seed).sample(running, amount)
    return sorted(chosen, key=lambda each: each.member)


def record_of(
    session: Session, fid: str, rule: str, members: list[WorkloadProcess], intended_ns: int
) -> FaultRecord:
    """The process that will be ended, by pid and ticks."""
    record = FaultRecord(fid, KIND.name, rule, session.schedule.seeds["victims"])
    record.intended_ns = intended_ns
    record.victims = [
        {"group": each.group, "member": each.member, "pid": each.pid, "ticks": each.ticks}
        for each in members
    ]
    return record


def end_consumers(
    session: Session, record: FaultRecord, members: list[WorkloadProcess], signum: int
) -> None:
    """End consumer processes; their wait status is the proof. They start again later."""
    record.signum = signum
    undo = {"members": [[each.group, each.member] for each in members]}
    member_faults.begin(session, record, START_CONSUMERS, undo)
    assert record.issued is not None
    for process in members:
        receipt = session.load.signal_member(process, signum)
        record.issued = (record.issued[0], receipt.returned)
    record.proof["K2"] = True
    name = signals.Signals(signum).name
    names = ", ".join(each.name for each in members)
    session.progress(f"{record.fid}: {name} to {names}")
    record.proof["K6"] = all(session.load.await_end(each, END_SECONDS) for each in members)
    crash_point("consumers-ended")
    ends = [_how_it_ended(each, signum) for each in members]
    record.proof["K3"] = ", ".join(how for how, _ in ends)
    if not record.proof["K6"]:
        record.add_unproved_reason(f"{names}: still running {END_SECONDS:g} s after {name}")
    for how, right in ends:
        if not right:
            record.add_unproved_reason(f"asked {name}, but a consumer ended by {how}")
    last = max(
        (each.exit.stamp for each in members if each.exit), key=lambda s: s.mono_ns, default=now()
    )
    session.rec.gone(record, last)
    record.settle()
    kind = "CLIENT_TERM" if signum == signals.SIGTERM else "CLIENT_KILL"
    for process in members:
        client_row(session, record, process, kind)
    session.rec.evidence(record, "effect")


def start_consumers_later(
    session: Session,
    record: FaultRecord,
    members: list[WorkloadProcess],
    values: Values,
) -> None:
    """Start the ended members again after their end, or after another milestone."""
    restart_after = values["restartAfter"]
    delay_ns = round(session.scaled(values["restartAfterSeconds"]) * 1e9)
    milestone, other = parse_milestone(restart_after) if restart_after else ("gone", record.fid)

    def due() -> bool:
        stamp = session.rec.milestones.get(other, milestone)
        return stamp is not None and time.monotonic_ns() >= stamp.mono_ns + delay_ns

    start_consumers_when(session, record, members, due)


def start_consumers_when(
    session: Session,
    record: FaultRecord,
    members: list[WorkloadProcess],
    due: Callable[[], bool],
) -> None:
    """Start the ended members again once ``due`` says so; a run that ends starts none."""
    pending = [(each.group, each.member) for each in members]

    def start() -> None:
        if session.in_rollback:
            # The run is ending: no member is started any more, and nothing is left to take back.
            session.ledger.mark_healed(record.undo, {"ended_with": "the run"})
            return
        crash_point("before-consumers-start")
        for group, member in pending:
            session.load.start_member(group, member)
        names = ", ".join(f"{group}-{member}" for group, member in pending)
        undone(session, record, "CLIENT_START", f"{names} started again")
        session.rec.later(
            lambda: _assigned(session, pending), lambda: _consumers_back(session, record)
        )

    session.rec.later(lambda: session.in_rollback or due(), start)


def _assigned(session: Session, pending: list[tuple[str, int]]) -> bool:
    running = {(each.group, each.member): each for each in session.load.of_role(CONSUMER)}
    return all(key in running and bool(running[key].stats.get("assigned")) for key in pending)


def _consumers_back(session: Session, record: FaultRecord) -> None:
    record.proof["K7"] = "new processes assigned"
    member_faults.heal_seen(session, record, {"members": "assigned"})


def _how_it_ended(process: WorkloadProcess, signum: int) -> tuple[str, bool]:
    if process.exit is None:
        return "nothing", False
    if process.exit.signal is not None:
        how = signals.Signals(process.exit.signal).name
        return how, process.exit.signal == signum
    return f"exit {process.exit.code}", signum == signals.SIGTERM and process.exit.code in (0, 143)


def client_row(session: Session, record: FaultRecord, process: WorkloadProcess, kind: str) -> None:
    """Write the row of a member that ended."""
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


FAULT = Fault(KIND, action_of(KIND, restart_consumers), Undo(START_CONSUMERS, member_faults.leave))
