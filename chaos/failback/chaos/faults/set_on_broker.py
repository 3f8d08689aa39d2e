"""What a broker lives under for a while: its disk or its clock is changed, and changed back.

The platform, the broker's keeper, makes the change and ends it: also by itself, some two minutes
after a harness that died. Effect and heal are seen in what the broker answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from failback.chaos.cluster import probe
from failback.chaos.cluster.broker_facts import ask_broker
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import FaultSetter, Target
from failback.chaos.cluster.view import SLAVE, ClusterView, Member, ProcessState
from failback.chaos.errors import TargetError
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter, Values
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import member_faults
from failback.chaos.faults.broker_faults import finish_effect, member_of, victim_of
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import broker_action, enter, undone
from failback.chaos.faults.proof import OFFSET_FILE
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.common.text import typed
from failback.protocol.errors import BrokerError, FailbackError

Seen = dict[str, Any] | None
"""What was seen; ``None`` when it was not seen yet."""
Look = Callable[[Target, Member], Seen]
LASTING: Final = (
    Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
    AFTER,
)
"""Parameters of every change."""
EFFECT_SECONDS: Final = 30.0
HEAL_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.5
_PERSISTS: Final = 3
"""After so many intervals without a newer file of offsets none was written."""


@dataclass(frozen=True, slots=True)
class Change:
    """One kind of change.

    ``fault`` is its name at the platform, ``option`` of which option a cluster needs to start,
    ``call`` the kind of its ledger entry. A broker that may die of it is held down until the end.
    """

    fault: str
    option: str
    call: str
    healed: Look
    deadly: bool = False
    of_slaves: bool = False
    """Whether it can be seen at a slave, which takes no message."""

    def refuse(self, target: Target, view: ClusterView, fault: Written) -> str:
        """Say why a fault can't be injected here; empty when it can."""
        if fault.target.role == SLAVE and not self.of_slaves:
            return f"{fault.fault} hits masters: a slave takes no message that would prove it"
        for member in view.members:
            if problem := self.problem_of(target, member):
                return problem
        return ""

    def problem_of(self, target: Target, member: Member) -> str:
        """Say what a broker lacks for this change; empty when nothing."""
        if not isinstance(target, FaultSetter):
            return f"a {target.kind} target cannot change the {self.option} of a broker"
        if self.fault in target.possible_faults(member):
            return ""
        start = typed("failback", "up", "--faults", self.option)
        return f"{member.pod} runs without a {self.option} that can be changed: start it by {start}"

    def take_back(self, target: Target, args: Mapping[str, Any], deadline: float) -> Seen:
        """End what was changed at a pod, and see it ended."""
        member = member_of(target, str(args["pod"]))
        self.end(target, member)
        end = min(deadline, time.monotonic() + HEAL_SECONDS)
        while True:
            found = self.healed(target, member_of(target, member.pod))
            if found is not None or time.monotonic() >= end:
                return found
            time.sleep(_LOOK_SECONDS)

    def end(self, target: Target, member: Member) -> None:
        """Make the broker's surroundings what they were; safe to repeat."""
        if not isinstance(target, FaultSetter):
            raise TargetError(f"end {self.fault} of {member.pod}", self.problem_of(target, member))
        target.end_faults(member)
        if self.deadly:
            target.release(member)
            target.start(member)


@dataclass(slots=True)
class Often:
    """A look that is repeated, at most twice a second, until it sees something."""

    look: Callable[[], Seen]
    seen: Seen = None
    _next: float = field(default=0.0)

    def __call__(self) -> bool:
        if self.seen is None and time.monotonic() >= self._next:
            self.seen = self.look()
            self._next = time.monotonic() + _LOOK_SECONDS
        return self.seen is not None


def fault_of(
    kind: FaultKind,
    change: Change,
    value: Callable[[Values], Mapping[str, Any]],
    seen: Callable[[FaultRecord, Values], Look],
    refuse: Callable[[Target, ClusterView, Written], str] | None = None,
) -> Fault:
    """Return the fault of a change for ``durationSeconds``.

    Args:
        value: What the platform is given, made of the parameters.
        seen: Makes the look that sees the effect.
    """

    def hit(session: Session, record: FaultRecord, values: Values) -> None:
        lasts = float(values["durationSeconds"])
        change_for_a_while(session, record, change, value(values), lasts, seen(record, values))

    undo = Undo(change.call, change.take_back, change.call.replace("-", "_"))
    return Fault(kind, broker_action(kind, hit), undo, refuse or change.refuse)


def change_for_a_while(
    session: Session,
    record: FaultRecord,
    change: Change,
    value: Mapping[str, Any],
    duration_seconds: float,
    seen: Look,
) -> None:
    """Change, prove it by what ``seen`` sees, and have it changed back after the time."""
    target = session.target
    member, _ = victim_of(record)
    record.heals_itself = True
    if problem := change.problem_of(target, member):
        raise TargetError(record.fid, problem)
    assert isinstance(target, FaultSetter)
    if not change.of_slaves:
        probe.make_topic(member.address)
    enter(session, record, change.call, {"pod": member.pod})
    if change.deadly:
        target.hold(member, record.undo)
    issued = now()
    record.issued = (issued, issued)
    session.phases.fault_begun(issued.mono_ns)
    target.set_fault(member, change.fault, value)
    record.issued = (issued, now())
    record.proof["K2"] = True
    crash_point("fault-set")
    session.progress(f"{record.fid}: {change.fault} of {member.pod}")
    effect = Often(lambda: seen(target, member))
    session.wait_for(effect, EFFECT_SECONDS)
    record.proof["EFFECT"] = effect.seen
    if effect.seen is not None:
        record.observed["effect_ns"] = now()
    else:
        record.add_unproved_reason(
            f"{member.pod} shows no effect of {change.fault} within {EFFECT_SECONDS:g} s"
        )
    finish_effect(session, record, change.fault.upper().replace("-", "_"))
    member_faults.undo_after(
        session, record, duration_seconds, lambda: _end(session, record, change)
    )


def _end(session: Session, record: FaultRecord, change: Change) -> None:
    member, _ = victim_of(record)
    crash_point("before-end")
    change.end(session.target, member)
    undone(session, record, "END", f"{change.fault} of {member.pod} is taken back")
    healed = Often(lambda: change.healed(session.target, member))

    def close() -> None:
        member_faults.heal_seen(session, record, healed.seen or {})
        session.progress(f"{record.fid}: healed")

    session.rec.later(healed, close)


def refused(_target: Target, member: Member) -> Seen:
    """The broker answers a message with an error."""
    try:
        probe.send(member.address)
    except BrokerError as error:
        return {"refused": error.remark or f"code {error.code}"}
    except FailbackError:
        return None
    return None


def accepted(_target: Target, member: Member) -> Seen:
    """The broker takes a message."""
    try:
        return {"accepted": probe.send(member.address)}
    except FailbackError:
        return None


def writes(target: Target, member: Member) -> Seen:
    """The broker takes a message, name servers show it, and its file of offsets is young."""
    found = accepted(target, member)
    if found is None or target.view().conflicts:
        return None
    age = _file_age(target, member)
    return (
        {**found, "file_age_seconds": age} if age is not None and age < patience(member) else None
    )


def hurt(record: FaultRecord) -> Look:
    """Return the look that sees a broker whose disk or files fail.

    It has ended, refuses a message, or its file of offsets is not written any more. The last is all
    that Apache's broker shows of a disk that takes no write: it acknowledges what it only mapped.
    """
    member, identity = victim_of(record)
    most, began = patience(member), time.time()

    def look(target: Target, member: Member) -> Seen:
        if target.process_state(identity) in (ProcessState.GONE, ProcessState.REPLACED):
            return {"ended": identity.pid}
        if found := refused(target, member):
            return found
        age, lasted = _file_age(target, member), time.time() - began
        unwritten = lasted if age is None else min(age, lasted)  # no file: it was deleted first
        return {"file_age_seconds": round(unwritten, 1)} if unwritten > most else None

    return look


def patience(member: Member) -> float:
    """Seconds within which a broker that persists its offsets has written their file."""
    config, _ = ask_broker(member.address)
    interval = float(config.get("flushConsumerOffsetInterval", 5000)) / 1e3
    return _PERSISTS * interval * float(config.get("failbackTimeScale", 1)) + 1


def _file_age(target: Target, member: Member) -> float | None:
    stat = target.stat_store(member, OFFSET_FILE)
    return None if stat is None else round(time.time() - stat.mtime_ns / 1e9, 1)
