"""Upper limits of re-consumption for the faults of the catalogue. Pure.

Rates are messages per second on the affected queues, times are seconds, results are messages. The
mechanisms are those of a RocketMQ 4.9 pair: what the broker had not persisted, what a client had
not committed, and what only a slave was told while the master was away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from failback.chaos.catalogue import CATALOGUE, parse_rung
from failback.chaos.model import Fault


@dataclass(frozen=True, slots=True)
class Intervals:
    """The timers that govern how old a copy of an offset can be, in seconds, already scaled."""

    broker_persist: float = 5.0
    client_commit: float = 5.0
    slave_sync: float = 10.0
    first_persist: float = 10.0

    def scaled(self, time_scale: float) -> Intervals:
        return Intervals(
            self.broker_persist * time_scale,
            self.client_commit * time_scale,
            self.slave_sync * time_scale,
            self.first_persist * time_scale,
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """One evaluated limit: ``formula`` in the symbols of its inputs, ``messages`` its value."""

    mechanism: str
    formula: str
    messages: int


def bound_of(
    faults: Sequence[Fault],
    *,
    rate_per_second: float,
    outage_seconds: float,
    window_messages: int,
    members: int,
    intervals: Intervals = Intervals(),
) -> Bound:
    """Return the limit of what one group re-consumes under these faults.

    Args:
        faults: All faults of the arm.
        rate_per_second: Highest rate at which the group consumes the affected queues.
        outage_seconds: From the kill until the clients are back on the master.
        window_messages: Finished messages that may lie above the lowest unfinished one, all queues.
        members: Members of the group.
        intervals: Timers of the run.
    """
    down = [fault for fault in faults if fault.fault in ("kill", "pause")]
    consumers = [fault for fault in faults if fault.fault == "kill-consumer"]
    tail = rate_per_second * intervals.client_commit + window_messages
    if not down and not consumers:
        return Bound("nothing", "0", 0)
    if not down:
        return Bound("consumer end", "R*c + W", ceil(tail))
    if members > 1:
        return Bound(
            "partial member list",
            "R*(D + I_b + I_c + 30 s) + W",
            ceil(
                rate_per_second
                * (outage_seconds + intervals.broker_persist + 6 * intervals.client_commit)
                + tail
            ),
        )
    if any(_starts_on_returned_master(fault) for fault in consumers):
        seconds = outage_seconds + intervals.broker_persist + intervals.client_commit
        return Bound(
            "slave-only progress",
            "R*(D + I_b + I_c) + W",
            ceil(rate_per_second * seconds + window_messages),
        )
    if consumers:
        seconds = intervals.slave_sync + intervals.client_commit
        return Bound(
            "stale slave", "R*(I_s + c) + W", ceil(rate_per_second * seconds + window_messages)
        )
    return Bound("running consumer", "0", 0)


def _starts_on_returned_master(fault: Fault) -> bool:
    for name in ("restartAfter", "after"):
        text = fault.with_.get(name)
        if text:
            return parse_rung(str(text))[0] in ("accept", "registered")
    return True


def consume_rate(threads: int, mean_ms: float) -> float:
    """Messages per second that one member can handle, in theory."""
    return threads * 1000.0 / mean_ms if mean_ms > 0 else float("inf")


def describe(faults: Sequence[Fault]) -> str:
    """Codes of the faults, for people: ``F1 kill, F15 kill-consumer``."""
    return ", ".join(f"{CATALOGUE[each.fault].code} {each.fault}" for each in faults)
