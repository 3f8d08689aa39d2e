"""F13: the wall clock of a broker steps or drifts; clocks that count from a start stay true.

Only where the broker's clock can be changed: ``failback up --faults clock``. Proof of effect and of
heal is the broker's own clock in its answers to code 28. The times at which our broker stores
messages never go back: after a step ahead they stand still until the clock has caught up.
"""

from __future__ import annotations

from typing import Any, Final

from failback.chaos.cluster.broker_clock import clock_shift_ms
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Member, Role
from failback.chaos.experiment.fault_kinds import AFTER, FaultKind, Parameter, Values
from failback.chaos.faults.fault import Fault, Undo
from failback.chaos.faults.injection import begin_on_broker, returned
from failback.chaos.faults.set_on_broker import Change, Seen, change_for_a_while
from failback.chaos.session import Session
from failback.protocol.errors import FailbackError

TRUE_MS: Final = 50.0
"""A clock that is no further off counts as true."""


def _moves(values: Values) -> tuple[str, str] | None:
    if not values["offsetSeconds"] and not values["driftRatio"]:
        return "offsetSeconds", "must not be 0 without driftRatio: the clock would stay true"
    return None


KIND = FaultKind(
    code="F13",
    name="clock-skew",
    needs="failback up --faults clock (a C compiler)",
    proves="the broker's own clock, by code 28; healed below 50 ms",
    action="skew_clock",
    target="broker",
    title="The wall clock of a broker steps by offsetSeconds, and runs too fast by driftRatio",
    parameters=(
        Parameter("offsetSeconds", "offset", "offset_seconds", 120.0, always=True),
        Parameter("driftRatio", "ratio", "drift_ratio", 0.0),
        Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
        AFTER,
    ),
    lasts="durationSeconds",
    supported_by=frozenset({"local"}),
    check=_moves,
)


def shift_of(member: Member) -> float | None:
    """How far a broker's clock is ahead, in milliseconds; ``None`` when it does not show it."""
    try:
        return round(clock_shift_ms(member.address), 1)
    except FailbackError:
        return None


def _is_true(_target: Target, member: Member) -> Seen:
    shift = shift_of(member)
    return {"shift_ms": shift} if shift is not None and abs(shift) < TRUE_MS else None


CHANGE: Final = Change("clock", "clock", "true-clock", _is_true, of_slaves=True)


def skew_clock(
    session: Session,
    pair: str,
    at_seconds: float,
    role: Role = "master",
    offset_seconds: float = 120.0,
    drift_ratio: float = 0.0,
    duration_seconds: float = 60.0,
    after: str = "",
    fid: str = "",
) -> dict[str, Any]:
    """F13: step a broker's clock, or let it drift. Undone by :func:`true_clock`.

    ``offset_seconds`` is not scaled. With ``drift_ratio`` 0.01 it gains 0.6 s a minute.
    """
    record = begin_on_broker(
        session, KIND.name, fid, pair, role, at_seconds, after, lasts=duration_seconds
    )

    def skewed(_target: Target, member: Member) -> Seen:
        shift = shift_of(member)
        return {"shift_ms": shift} if shift is not None and is_skewed(shift) else None

    def is_skewed(shift_ms: float) -> bool:
        off = shift_ms - offset_seconds * 1e3
        return off > 2 * TRUE_MS if drift_ratio else abs(off) < TRUE_MS

    value = {"seconds": offset_seconds, "drift": drift_ratio}
    change_for_a_while(session, record, CHANGE, value, duration_seconds, skewed)
    return returned(session, record)


FAULT = Fault(KIND, skew_clock, Undo(CHANGE.call, CHANGE.take_back, "true_clock"), CHANGE.refuse)
