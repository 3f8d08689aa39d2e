"""F13: the wall clock of a broker steps or drifts; clocks that count from a start stay true.

Only where the broker's clock can be changed: ``failback up --faults clock``. Proof of effect and of
heal is the broker's own clock in its answers to code 28. The times at which our broker stores
messages never go back: after a step ahead they stand still until the clock has caught up.
"""

from __future__ import annotations

from typing import Final

from failback.chaos.cluster.broker_clock import clock_shift_ms
from failback.chaos.cluster.target import Target
from failback.chaos.cluster.view import Member
from failback.chaos.experiment.fault_kinds import FaultKind, Parameter, Values
from failback.chaos.faults.set_on_broker import LASTING, Change, Look, Seen, fault_of
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
        *LASTING,
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


def _is_skewed(values: Values) -> Look:
    """See a clock that is off by the step; one that drifts too is further ahead each time."""

    def skewed(_target: Target, member: Member) -> Seen:
        shift = shift_of(member)
        if shift is None:
            return None
        off = shift - float(values["offsetSeconds"]) * 1e3
        seen = off > 2 * TRUE_MS if values["driftRatio"] else abs(off) < TRUE_MS
        return {"shift_ms": shift} if seen else None

    return skewed


FAULT = fault_of(
    KIND,
    Change("clock", "clock", "true-clock", _is_true, of_slaves=True),
    lambda values: {"seconds": values["offsetSeconds"], "drift": values["driftRatio"]},
    lambda _record, values: _is_skewed(values),
)
