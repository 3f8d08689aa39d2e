"""Actions on consumer groups: their processes end and start again, their handlers change."""

from __future__ import annotations

import signal as signals
import time
from typing import Any

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration, Secrets

from failback.chaos.faults import (
    broker_faults,
    consumer_faults,
    handler_faults,
    subscription_faults,
)
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.run_folder.undo_ledger import RESET_HANDLERS, SUBSCRIBE
from failback.chaos.session import Session
from failback.chaos.toolkit.action_context import (
    await_assigned,
    evidence_of,
    guarded,
    session_of,
    undo_open_calls,
)


def restart_consumers(
    group: str,
    at_seconds: float = 0.0,
    signal: str = "TERM",
    mode: str = "all",
    value: float = 0,
    rolling: bool = False,
    restart_after_seconds: float = 5.0,
    after: str = "",
    fid: str = "",
    min_served: int = 100,
    restart_after: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F15: end members of a group and start them again.

    With ``after`` the wait begins at that rung of another fault; ``slave-serving`` is reached once
    the slave has served ``min_served`` messages to this group. ``restart_after`` names the rung
    from which ``restart_after_seconds`` count, the members' end otherwise. ``rolling`` ends the
    next member when the one before is assigned again.
    """
    signum = {"TERM": signals.SIGTERM, "KILL": signals.SIGKILL}.get(signal)
    if signum is None:
        raise ActivityFailed(f"signal must be TERM or KILL, not {signal}")
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(
            session, fid, at_seconds, after, group=group, served=min_served
        )
        members = consumer_faults.choose_members(session, group, mode, value)
        waves = [[each] for each in members] if rolling else [members]
        result: dict[str, Any] = {}
        for number, wave in enumerate(waves):
            name = fid if number == 0 else f"{fid}.{number + 1}"
            due = intended if number == 0 else time.monotonic_ns()
            rule = f"group={group} mode={mode}"
            record = consumer_faults.record_of(session, name, rule, wave, due)
            consumer_faults.end_consumers(session, record, wave, signum)
            consumer_faults.start_consumers_later(
                session, record, wave, restart_after, restart_after_seconds
            )
            result = evidence_of(session, record)
            if number + 1 < len(waves):
                await_assigned(session, name)
        return result

    return guarded(act)


def set_handler(
    group: str,
    at_seconds: float,
    delay_ms: float = 0.0,
    fail_ratio: float = 0.0,
    throw_ratio: float = 0.0,
    duration_seconds: float | None = None,
    fid: str = "",
    mode: str = "all",
    after: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F20: handlers of a group take longer, ask for retries or raise.

    Undone after ``duration_seconds``, else by :func:`reset_handlers`. All members change: ``mode``
    is there because every fault of a group has one.
    """
    if mode != "all":
        raise ActivityFailed(f"set_handler changes all members, not {mode}")
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(session, fid, at_seconds, after, group=group)
        record = _record_of_all(session, fid, "slow-handler", group, intended)
        knobs = {"delay_ms": delay_ms, "fail_ratio": fail_ratio, "throw_ratio": throw_ratio}
        handler_faults.set_handlers(session, record, group, knobs, duration_seconds)
        return evidence_of(session, record)

    return guarded(act)


def reset_handlers(configuration: Configuration = None, secrets: Secrets = None) -> dict[str, Any]:
    """Undo of :func:`set_handler` for every group; safe to repeat."""
    return undo_open_calls(session_of(configuration), RESET_HANDLERS)


def _record_of_all(
    session: Session, fid: str, fault: str, group: str, intended_ns: int
) -> FaultRecord:
    """A fault of all members of a group."""
    record = FaultRecord(fid, fault, f"group={group} mode=all", session.schedule.seeds["victims"])
    record.intended_ns = intended_ns
    record.victims = [{"group": group}]
    return record


def unsubscribe_consumers(
    group: str,
    at_seconds: float,
    duration_seconds: float = 60.0,
    fid: str = "",
    mode: str = "all",
    after: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F21: the members of a group drop their subscription and give their queues up.

    They subscribe again ``duration_seconds`` later. All of them: one alone would leave its queues
    to nobody, because members of a group are expected to subscribe to the same.
    """
    if mode != "all":
        raise ActivityFailed(f"unsubscribe_consumers tells all members, not {mode}")
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(session, fid, at_seconds, after, group=group)
        record = _record_of_all(session, fid, "unsubscribe", group, intended)
        subscription_faults.unsubscribe(session, record, group, duration_seconds)
        return evidence_of(session, record)

    return guarded(act)


def subscribe_consumers(
    configuration: Configuration = None, secrets: Secrets = None
) -> dict[str, Any]:
    """Undo of :func:`unsubscribe_consumers` for every group; safe to repeat."""
    return undo_open_calls(session_of(configuration), SUBSCRIBE)
