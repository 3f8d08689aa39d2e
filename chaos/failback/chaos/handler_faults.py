"""F20: handlers that are slow, ask for retries or raise. Their knobs are the workload's own.

Proof of effect: every member shows the knobs, and calls that began since were handled so. Proof of
heal: the knobs stand at their own values and calls that began since were handled.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from failback.chaos.board import EFFECT
from failback.chaos.errors import TargetError
from failback.chaos.failpoints import crash_point
from failback.chaos.fault_record import FaultRecord
from failback.chaos.ledger import RESET_HANDLERS
from failback.chaos.session import Session
from failback.chaos.wire import now
from failback.chaos.workload_process import CONSUMER, WorkloadProcess

EFFECT_SECONDS: Final = 30.0
Knobs = Mapping[str, float]


def own_knobs(session: Session, group: str) -> dict[str, float]:
    """The knobs that a group's members start with."""
    found = next(each for each in session.arm.workload.groups if each.name == group)
    return {"delay_ms": 0.0, "fail_ratio": found.handler.fail_ratio, "throw_ratio": 0.0}


def set_handlers(
    session: Session, record: FaultRecord, group: str, knobs: Knobs, duration_seconds: float | None
) -> None:
    """Turn the knobs of all members, prove it, and have them turned back after the time."""
    members = session.load.of_role(CONSUMER, group=group)
    if not members:
        raise TargetError(f"handlers of {group}", "no member is running")
    own = own_knobs(session, group)
    record.undo = session.ledger.add(
        RESET_HANDLERS,
        {"sockets": [str(each.socket_path) for each in members], "knobs": own},
        record.fid,
    )
    crash_point("ledger-written")
    session.rec.open_fault(record)
    record.rungs["K1"] = True
    begun = now()
    record.issued = (begun, begun)
    session.phases.first_fault = session.phases.first_fault or begun.mono_ns
    refused = [each.name for each in members if not _turn(session, each, knobs)]
    crash_point("handlers-set")
    record.issued = (begun, now())
    record.rungs["K2"] = not refused
    if refused:
        record.doubt(f"{', '.join(refused)} did not take the knobs")
    session.progress(f"{record.fid}: handlers of {group}: {_said(knobs)}")
    patience = EFFECT_SECONDS + knobs["delay_ms"] / 1000
    seen = session.wait_for(lambda: _handled_so(session, members, knobs), patience)
    record.rungs["HANDLED"] = _sums(session, members)
    if not seen:
        record.doubt(f"no message was handled so within {patience:g} s: {record.rungs['HANDLED']}")
    if record.honest is None:
        record.honest = True
    session.rec.fault_row(
        record, "SET_HANDLER", observed=now(), observer="workload", detail={"knobs": dict(knobs)}
    )
    session.rec.evidence(record, "effect")
    session.rec.board.post(record.fid, EFFECT, now())
    if duration_seconds is not None:
        due = begun.mono_ns + round(session.scaled(duration_seconds) * 1e9)
        session.rec.later(
            lambda: session.in_rollback or time.monotonic_ns() >= due,
            lambda: reset_handlers(session, record, group, own),
        )


def reset_handlers(session: Session, record: FaultRecord, group: str, own: Knobs) -> None:
    """Turn the knobs back; healed once messages were handled with them, or nothing is left."""
    for process in session.load.of_role(CONSUMER, group=group):
        _turn(session, process, own)
    session.ledger.mark_undone(record.undo)
    session.rec.fault_row(record, "RESET_HANDLER", observed=now(), observer="harness")
    session.progress(f"{record.fid}: handlers of {group} are as before")
    session.rec.later(lambda: _is_back(session, group, own), lambda: _close(session, record, group))


def _turn(session: Session, process: WorkloadProcess, knobs: Knobs) -> bool:
    return bool(session.load.ask(process, {"op": "set-handler", **knobs}).get("ok"))


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
    """Every member shows its own knobs, and somebody has handled with them.

    Where nothing comes any more nobody can: then it is enough that nothing is under way.
    """
    members = session.load.of_role(CONSUMER, group=group)
    shown = [_handler(session, each) for each in members]
    if not shown or any(each.get("knobs") != dict(own) for each in shown):
        return False
    return any(each["handled"] for each in shown) or not session.load.unfinished(group)


def _close(session: Session, record: FaultRecord, group: str) -> None:
    stamp = now()
    record.rungs["K8"] = True
    session.rec.healed(record, stamp)
    members = session.load.of_role(CONSUMER, group=group)
    session.ledger.mark_healed(record.undo, {"handlers": _sums(session, members)})
    session.phases.last_heal = max(session.phases.last_heal or 0, stamp.mono_ns)


def _handler(session: Session, process: WorkloadProcess) -> dict[str, Any]:
    found: dict[str, Any] = session.load.ask(process, {"op": "stats"}).get("handler", {})
    return found


def _sums(session: Session, members: list[WorkloadProcess]) -> dict[str, int]:
    shown = [_handler(session, each) for each in members]
    return {
        name: sum(int(each.get(name, 0)) for each in shown)
        for name in ("handled", "later", "thrown")
    }


def _said(knobs: Knobs) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in knobs.items())
