"""F6: SIGSTOP of a broker; proved by the process state and by silence on code 28.

A broker that is frozen when the harness dies runs on after two minutes: its keeper, the init
of its container or the local runtime, continues it unless the harness renews that. The entry of the
undo ledger stays open until ``failback experiment heal`` or the operator's heal Job has seen it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Member, ProcessIdentity, ProcessState
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter, Values
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import proof
from failback.chaos.faults.broker_faults import (
    close_when_healed,
    finish_effect,
    issued_ns,
    signal_victim,
    victim_of,
)
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import broker_action, enter, undone
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session

CONTINUE: Final = "continue"

DEFAULT_SECONDS: Final = 60.0
"""Of a pause that names none; the same in ``failback.operator.planning.jobs.guards``."""
KIND = FaultKind(
    code="F6",
    name="pause",
    proves="process state T, silence on code 28; healed when it answers and is registered",
    action="pause_broker",
    target="broker",
    title="SIGSTOP of a broker, SIGCONT after durationSeconds",
    parameters=(
        Parameter("durationSeconds", "seconds", "duration_seconds", DEFAULT_SECONDS, always=True),
        AFTER,
    ),
    lasts="durationSeconds",
    milestones=("gone", "accept", "registered", "slave-serving"),
)


def pause(session: Session, record: FaultRecord, values: Values) -> None:
    """SIGSTOP a broker; SIGCONT after ``durationSeconds``."""
    freeze(session, record)
    resume_at = issued_ns(record) + round(session.scaled(values["durationSeconds"]) * 1e9)
    resume_when(session, record, lambda: time.monotonic_ns() >= resume_at)
    proof.prove_silence(record, victim_of(record)[0], resume_at)
    finish_effect(session, record, "PAUSE")


def freeze(session: Session, record: FaultRecord) -> None:
    """SIGSTOP a broker, with the undo in the ledger first: K1 to K4."""
    member, identity = victim_of(record)
    record.keeps_process = True
    enter(session, record, CONTINUE, _named(member, identity))
    signal_victim(session, record, signal.SIGSTOP)
    proof.prove_stopped(session, record, identity)


def resume_when(session: Session, record: FaultRecord, due: Callable[[], bool]) -> None:
    """Have the recorder let the broker run on, once ``due`` says so or the run ends."""
    session.rec.later(lambda: due() or session.in_rollback, lambda: resume(session, record))


def resume(session: Session, record: FaultRecord) -> None:
    """SIGCONT a broker, unless it runs on already."""
    member, identity = victim_of(record)
    if record.resumed is not None:
        return
    crash_point("before-continue")
    with contextlib.suppress(TargetError):
        session.target.signal(identity, signal.SIGCONT)
    record.resumed = now()
    undone(session, record, "RESUME", f"{member.pod} runs on", record.resumed)
    close_when_healed(session, record)


def _named(member: Member, identity: ProcessIdentity) -> dict[str, Any]:
    """One process for the ledger: enough to find exactly it again."""
    named = {"pod": member.pod, "pid": identity.pid, "ticks": identity.ticks}
    where = {"container": identity.container, "uid": identity.uid}
    return named | {key: value for key, value in where.items() if value}


def _continue(target: Target, args: Mapping[str, Any], deadline: float) -> dict[str, Any] | None:
    """SIGCONT exactly the process that was stopped; one that is gone needs none."""
    victim = ProcessIdentity(
        str(args["pod"]),
        int(args["pid"]),
        int(args["ticks"]),
        container=str(args.get("container", "")),
        uid=str(args.get("uid", "")),
    )
    state = target.process_state(victim)
    if state is ProcessState.STOPPED:
        target.signal(victim, signal.SIGCONT)
        end = min(deadline, time.monotonic() + 10)
        while state is ProcessState.STOPPED and time.monotonic() < end:
            time.sleep(0.02)
            state = target.process_state(victim)
    return None if state is ProcessState.STOPPED else {"pid": victim.pid, "state": state.value}


FAULT = Fault(KIND, broker_action(KIND, pause), Undo(CONTINUE, _continue, "resume_broker"))
