"""The common steps of every injection: wait until it is due, choose victims, give evidence.

The undo of each fault is in its module; ``undo.py`` replays what the ledger has open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from failback.chaos.cluster.broker_facts import silence_of
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import ClusterView, Member, ProcessIdentity, Role, Stamp
from failback.chaos.errors import ChaosError, NotProved, TargetError
from failback.chaos.experiment.fault_kinds import FaultKind, Values, parse_milestone
from failback.chaos.failpoints import crash_point
from failback.chaos.faults.victims import choose
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session

Action = Callable[..., dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of an action that are no parameters of its fault."""

    at_seconds: float = 0.0
    fid: str = ""
    pair: str = ""
    role: Role = "master"
    group: str = ""
    mode: str = "all"
    value: float = 0.0


def action_of(kind: FaultKind, act: Callable[[Session, Call, Values], dict[str, Any]]) -> Action:
    """Return a function with the name, the text and the arguments of a fault's action.

    ``act`` gets the parameters by their names in a file, times unscaled.
    """
    signature = kind.signature()
    names = {each.argument: each.name for each in kind.parameters}

    def run(*given: Any, **named: Any) -> dict[str, Any]:
        arguments = signature.bind(*given, **named).arguments
        for key, fixed in kind.fixed.items():
            if arguments.pop(key, fixed) != fixed:
                raise ChaosError(f"{kind.action} has {key} {fixed} only")
        values = {name: arguments.pop(key) for key, name in names.items() if key in arguments}
        return act(arguments.pop("session"), Call(**arguments), kind.values(values))

    run.__name__ = kind.action
    run.__doc__ = f"{kind.code}: {kind.title}. Proof: {kind.proves}."
    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def broker_action(kind: FaultKind, hit: Callable[[Session, FaultRecord, Values], None]) -> Action:
    """Return the action of a fault of one broker: wait until it is due, choose the broker, hit it.

    ``hit`` returns when the effect is proved or not; what comes later it gives to the recorder.
    """

    def act(session: Session, call: Call, values: Values) -> dict[str, Any]:
        lasts = float(values[kind.lasts] or 0.0) if kind.lasts else 0.0
        record = begin_on_broker(session, kind.name, call, values["after"], lasts=lasts)
        hit(session, record, values)
        return returned(session, record)

    return action_of(kind, act)


def group_action(
    kind: FaultKind, hit: Callable[[Session, FaultRecord, str, Values], None]
) -> Action:
    """Return the action of a fault of all members of a group, as :func:`broker_action` does."""

    def act(session: Session, call: Call, values: Values) -> dict[str, Any]:
        if call.mode != "all":
            raise ChaosError(f"{kind.action} changes all members, not {call.mode}")
        intended = wait_for_time(session, call, values["after"])
        seed, rule = session.schedule.seeds["victims"], f"group={call.group} mode=all"
        record = FaultRecord(call.fid, kind.name, rule, seed, intended_ns=intended)
        record.victims = [{"group": call.group}]
        hit(session, record, call.group, values)
        return returned(session, record)

    return action_of(kind, act)


def wait_for_time(session: Session, call: Call, after: str, served: int = 0) -> int:
    """Wait until a fault is due; return the intended instant, monotonic ns.

    Raises:
        TargetError: The milestone that it waits for can no longer be reached.
        Aborted: The run must stop.
    """
    offset_ns = round(session.scaled(call.at_seconds) * 1e9)
    if not after:
        intended = session.zero.mono_ns + offset_ns
        session.sleep_until(intended)
        return intended
    milestone, other = parse_milestone(after)
    if milestone == "slave-serving" and call.group:
        stamp = wait_served(session, other, call.group, served)
    else:
        stamp = session.rec.milestones.wait(other, milestone, session.deadline, session.stop_reason)
    if stamp is None:
        raise TargetError(f"{call.fid}: wait for {after}", "it was not reached")
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
        if recorder.milestones.get(other, "accept") is not None:
            return (
                f"the master of {other} returned when the slave had served "
                f"{recorder.served(other, group)} of {wanted} messages to {group}"
            )
        return ""

    return recorder.wait_served(other, group, wanted, session.deadline, hopeless)


def begin_on_broker(
    session: Session, fault: str, call: Call, after: str, *, lasts: float = 0.0
) -> FaultRecord:
    """Wait until it is due, ask every guard once more, and choose the broker."""
    intended = wait_for_time(session, call, after)
    session.refuse_unsafe(fault, lasts)
    member = choose(_view(session), call.pair, call.role, session.schedule.seeds["victims"])
    return open_record(session, call.fid, fault, member, intended)


def _view(session: Session) -> ClusterView:
    """The cluster now. That a name server is silent is no contradiction where a fault killed it."""
    view = session.target.view()
    excused = {
        silence_of(str(each["address"]))
        for record in session.faults().values()
        if record.others and record.in_effect
        for each in record.victims
    }
    return replace(view, conflicts=tuple(each for each in view.conflicts if each not in excused))


def open_record(
    session: Session, fid: str, fault: str, member: Member, intended_ns: int
) -> FaultRecord:
    """K1: the victim's process, and whether it says itself that it is the broker that is meant."""
    identity = session.target.identity(member)
    record = FaultRecord(
        fid=fid,
        fault=fault,
        rule=f"pair={member.pair} role={member.role} mode=one",
        seed=session.schedule.seeds["victims"],
        victim=member,
        identity=identity,
        victims=[describe(member, identity)],
        intended_ns=intended_ns,
    )
    record.proof["K1"] = identity.boot_ms is not None
    if identity.boot_ms is None:
        record.add_unproved_reason(f"{member.pod} did not answer code 28 before the signal")
    return record


def enter(session: Session, record: FaultRecord, call: str, args: Mapping[str, Any]) -> None:
    """Write the undo into the ledger, and have the recorder look for the fault from now on."""
    record.undo = session.ledger.add(call, args, record.fid)
    crash_point("ledger-written")
    session.rec.open_fault(record)


def undone(
    session: Session, record: FaultRecord, kind: str, text: str, seen: Stamp | None = None
) -> None:
    """The fault was taken back: say so in the ledger and in a row. The heal is seen later."""
    session.ledger.mark_undone(record.undo)
    session.rec.fault_row(record, kind, observed=seen or now(), observer="harness")
    session.progress(f"{record.fid}: {text}")


def returned(session: Session, record: FaultRecord) -> dict[str, Any]:
    """What is known when the action returns.

    Raises:
        NotProved: A fault that is not proved fails its action, unless the experiment goes on.
    """
    evidence = session.rec.evidence(record, "returned")
    if record.proved is False and session.experiment.spec.on_not_honest == "stop":
        raise NotProved(f"{record.fid} is not proved: {record.why}")
    return evidence


def describe(member: Member, identity: ProcessIdentity) -> dict[str, Any]:
    """A victim, as evidence names it."""
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
