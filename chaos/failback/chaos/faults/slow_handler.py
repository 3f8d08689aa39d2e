"""F20: handlers that are slow, ask for retries or raise. Their knobs are the workload's own.

Proof of effect: every member shows the knobs, and calls that began since were handled so. Proof of
heal: the knobs stand at their own values and calls that began since were handled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from failback.chaos.cluster.target import Target
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter, Values
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import member_faults
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import group_action, undone
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.chaos.workload.process import CONSUMER, WorkloadProcess

RESET_HANDLERS: Final = "reset-handlers"
EFFECT_SECONDS: Final = 30.0
Knobs = Mapping[str, float]


def _changes_something(values: Values) -> tuple[str, str] | None:
    if not any(values[name] for name in ("delayMs", "failRatio", "throwRatio")):
        return "", "changes nothing: give delayMs, failRatio or throwRatio"
    if float(values["failRatio"]) + float(values["throwRatio"]) > 1:
        return "throwRatio", "is more than 1 together with failRatio"
    return None


KIND = FaultKind(
    code="F20",
    name="slow-handler",
    proves="calls were handled so; healed when calls are handled as before",
    action="set_handler",
    target="group",
    title="handlers take longer, ask for retries or raise, for durationSeconds",
    parameters=(
        Parameter("delayMs", "milliseconds", "delay_ms", 0.0),
        Parameter("failRatio", "ratio", "fail_ratio", 0.0),
        Parameter("throwRatio", "ratio", "throw_ratio", 0.0),
        Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
        AFTER,
    ),
    lasts="durationSeconds",
    modes=("all",),
    check=_changes_something,
)


def own_knobs(session: Session, group: str) -> dict[str, float]:
    """The knobs that a group's members start with."""
    found = next(each for each in session.arm.workload.groups if each.name == group)
    return {"delay_ms": 0.0, "fail_ratio": found.handler.fail_ratio, "throw_ratio": 0.0}


def set_handlers(session: Session, record: FaultRecord, group: str, values: Values) -> None:
    """Turn the knobs of all members, prove it, and have them turned back after the time."""
    names = {"delay_ms": "delayMs", "fail_ratio": "failRatio", "throw_ratio": "throwRatio"}
    knobs = {knob: float(values[name]) for knob, name in names.items()}
    duration_seconds = float(values["durationSeconds"])
    members = member_faults.members_of(session, group)
    own = own_knobs(session, group)
    undo = {"sockets": member_faults.sockets_of(members), "knobs": own}
    member_faults.begin(session, record, RESET_HANDLERS, undo)
    member_faults.tell_all(session, record, members, _request(knobs))
    crash_point("handlers-set")
    session.progress(f"{record.fid}: handlers of {group}: {_said(knobs)}")
    patience = EFFECT_SECONDS + knobs["delay_ms"] / 1000
    seen = session.wait_for(lambda: _handled_so(session, members, knobs), patience)
    record.proof["HANDLED"] = _sums(session, members)
    if not seen:
        record.add_unproved_reason(
            f"no message was handled so within {patience:g} s: {record.proof['HANDLED']}"
        )
    member_faults.effect_seen(session, record, "SET_HANDLER", {"knobs": dict(knobs)})
    member_faults.undo_after(
        session, record, duration_seconds, lambda: reset_handlers(session, record, group, own)
    )


def reset_handlers(session: Session, record: FaultRecord, group: str, own: Knobs) -> None:
    """Turn the knobs back; healed once messages were handled with them, or nothing is left."""
    for process in session.load.of_role(CONSUMER, group=group):
        member_faults.tell(session, process, _request(own))
    undone(session, record, "RESET_HANDLER", f"handlers of {group} are as before")
    session.rec.later(lambda: _is_back(session, group, own), lambda: _close(session, record, group))


def _request(knobs: Knobs) -> dict[str, Any]:
    return {"op": "set-handler", **knobs}


def _handled_so(session: Session, members: list[WorkloadProcess], knobs: Knobs) -> bool:
    shown = [_handler(session, each) for each in members]
    if any(each.get("knobs") != dict(knobs) for each in shown):
        return False
    busy = [each for each in shown if each["handled"]]
    slow = all(each["least_ms"] >= knobs["delay_ms"] for each in busy)
    later = not knobs["fail_ratio"] or any(each["later"] for each in busy)
    thrown = not knobs["throw_ratio"] or any(each["thrown"] for each in busy)
    return bool(busy) and slow and later and thrown


def _is_back(session: Session, group: str, own: Knobs) -> bool:
    """Every member shows its own knobs, and at least one has handled with them.

    A member that does not gets the request once more: it may have been too busy to answer. Where no
    message arrives any more, it is enough that none is under way.
    """
    members = session.load.of_role(CONSUMER, group=group)
    shown = [(each, _handler(session, each)) for each in members]
    others = [each for each, handler in shown if handler.get("knobs") != dict(own)]
    for each in others:
        member_faults.tell(session, each, _request(own))
    if others or not shown:
        return False
    handled = any(handler["handled"] for _, handler in shown)
    return handled or not session.load.unfinished(group)


def _close(session: Session, record: FaultRecord, group: str) -> None:
    members = session.load.of_role(CONSUMER, group=group)
    member_faults.heal_seen(session, record, {"handlers": _sums(session, members)})


def _handler(session: Session, process: WorkloadProcess) -> dict[str, Any]:
    found: dict[str, Any] = member_faults.stats_of(session, process).get("handler", {})
    return found


def _sums(session: Session, members: list[WorkloadProcess]) -> dict[str, int]:
    shown = [_handler(session, each) for each in members]
    return {
        name: sum(int(each.get(name, 0)) for each in shown)
        for name in ("handled", "later", "thrown")
    }


def _said(knobs: Knobs) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in knobs.items())


def _reset_handlers(
    _target: Target, args: Mapping[str, Any], _deadline: float
) -> dict[str, Any] | None:
    """Turn the knobs of handlers back; a process that is gone has none."""
    request = {"op": "set-handler", **args["knobs"]}
    shown = member_faults.ask_sockets(args["sockets"], request)
    healed = all(each.get("handler", {}).get("knobs") == args["knobs"] for each in shown)
    return {"answered": len(shown), "knobs": args["knobs"]} if healed else None


FAULT = Fault(
    KIND,
    group_action(KIND, set_handlers),
    Undo(RESET_HANDLERS, _reset_handlers, "reset_handlers"),
)
