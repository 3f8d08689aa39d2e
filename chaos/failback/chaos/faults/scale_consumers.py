"""F22: a group gets more or fewer members under load, and its own number again.

Several times there and back are an autoscaler that flaps. Members that go end in order, as a
deployment ends them. Proof of effect and of heal: the broker lists as many members of the group.
"""

from __future__ import annotations

import signal
import time
from typing import Final

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.wire import WireConnection
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter, Values
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import member_faults
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import group_action
from failback.chaos.faults.kill_consumer import client_row
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.chaos.workload.process import WorkloadProcess
from failback.protocol import calls
from failback.protocol.errors import FailbackError

SCALE_BACK: Final = "scale-back"
END_SECONDS: Final = 60.0
LISTED_SECONDS: Final = 60.0
"""A broker that has just started lists a member with its next heartbeat."""
MAX_MEMBERS: Final = 64
MAX_TIMES: Final = 16


def _within_limits(values: Values) -> tuple[str, str] | None:
    for name, most in (("members", MAX_MEMBERS), ("times", MAX_TIMES)):
        if int(values[name]) > most:
            return name, f"must be a whole number from 1 to {most} (got {values[name]})"
    return None


KIND = FaultKind(
    code="F22",
    name="scale-consumers",
    proves="a broker lists so many members; healed when it lists as many as before",
    action="scale_consumers",
    target="group",
    title="a group is scaled to so many members and back after everySeconds, times over",
    parameters=(
        Parameter("members", "count", "members", 1, always=True),
        Parameter("everySeconds", "seconds", "every_seconds", 30.0, always=True),
        Parameter("times", "count", "times", 1),
        AFTER,
    ),
    lasts="everySeconds",
    modes=("all",),
    check=_within_limits,
)


def scale_consumers(session: Session, record: FaultRecord, group: str, values: Values) -> None:
    """Scale a group to ``members``, and back after ``everySeconds``; ``times`` over."""
    members, times = int(values["members"]), int(values["times"])
    before = len(member_faults.members_of(session, group))
    if before == members:
        raise TargetError(f"members of {group}", f"there are {before} already")
    member_faults.begin(session, record, SCALE_BACK, {"group": group, "members": before})
    wait_ns = round(session.scaled(values["everySeconds"]) * 1e9)
    for turn in range(times):
        if turn:
            _scale_and_prove(session, record, group, before)
            session.sleep_until(time.monotonic_ns() + wait_ns)
        due = time.monotonic_ns() + wait_ns
        _scale_and_prove(session, record, group, members)
        if turn + 1 < times:
            session.sleep_until(due)
    record.proof["K2"] = True
    member_faults.effect_seen(session, record, "SCALE", {"from": before, "to": members})
    session.undo_at(due, lambda: _scale_back(session, record, group, before))


def _scale_and_prove(session: Session, record: FaultRecord, group: str, wanted: int) -> None:
    _scale(session, record, group, wanted)
    patience = LISTED_SECONDS + session.scaled(LISTED_SECONDS)
    if not session.wait_for(lambda: listed(session, group) == wanted, patience, period=0.5):
        found = listed(session, group)
        record.add_unproved_reason(f"the broker lists {found} members of {group}, not {wanted}")
    record.proof.setdefault("LISTED", []).append(listed(session, group))


def _scale(session: Session, record: FaultRecord, group: str, wanted: int) -> None:
    """Start those that are missing, end those with the highest numbers in order."""
    running = {each.member: each for each in member_faults.members_of(session, group)}
    session.progress(f"{record.fid}: {group} from {len(running)} to {wanted} members")
    ended = [each for number, each in running.items() if number >= wanted]
    for each in ended:
        session.load.signal_member(each, signal.SIGTERM)
    _await_ends(session, record, ended)
    for number in sorted(set(range(wanted)) - set(running)):
        session.load.start_member(group, number)
        session.rec.fault_row(record, "CLIENT_START", observed=now(), observer="harness")
    crash_point("scaled")


def _await_ends(session: Session, record: FaultRecord, ended: list[WorkloadProcess]) -> None:
    for each in ended:
        session.load.await_end(each, END_SECONDS)
        client_row(session, record, each, "CLIENT_TERM")


def listed(session: Session, group: str) -> int | None:
    """How many members the masters list at most; ``None`` where none answers."""
    counts = []
    for master in session.masters():
        try:
            with WireConnection(master.address) as connection:
                counts.append(len(connection.ask(calls.consumer_ids(group), 1.0)))
        except FailbackError:
            continue
    return max(counts, default=None)


def _scale_back(session: Session, record: FaultRecord, group: str, before: int) -> None:
    if session.in_rollback:  # the run is ending, and its consumers with it
        session.ledger.mark_healed(record.undo, {"ended_with": "the run"})
        return
    _scale(session, record, group, before)
    session.ledger.mark_undone(record.undo)
    session.rec.later(
        lambda: listed(session, group) == before,
        lambda: member_faults.heal_seen(session, record, {"members": before}),
    )


FAULT = Fault(KIND, group_action(KIND, scale_consumers), Undo(SCALE_BACK, member_faults.leave))
