"""The faults that can be predicted: what dies, when consumers stop, when they start again. Pure.

Times are seconds after the kill (or after the return, where a field says so), before
``failbackTimeScale``. ``rows`` are the mechanisms that a report's bound names as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from failback.common.text import near_or_all, nearest
from failback.protocol.errors import ConfigError

Signal = Literal["TERM", "KILL"]
Offsets = Literal["file", "None", "WaitSync", "CopyMax"]
Moment = Literal["outage", "serving", "served", "return"]


@dataclass(frozen=True, slots=True)
class Stop:
    """When all members of the group end, and how.

    ``outage`` and ``return`` count ``seconds`` from the kill and from the master's return; with
    ``seconds`` left out the instant is anywhere in the outage. ``serving``: anywhere while the
    slave serves. ``served``: once the slave's offsets have moved by ``messages``.
    """

    moment: Moment
    seconds: float | None = None
    messages: float = 0
    signal: Signal = "TERM"


@dataclass(frozen=True, slots=True)
class Start:
    """When they start again: ``seconds`` after their end, or after the master's return."""

    seconds: float = 5.0
    after_return: bool = False


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One fault. Without ``stop`` the consumers run on."""

    name: str
    title: str
    rows: str
    down_seconds: float = 60.0
    kills_master: bool = True
    offsets: Offsets = "file"
    """What the answering master knows: its file, or what a planned switch carried over."""
    slaves: int | None = None
    """Predict as with so many slaves, against the settings."""
    stop: Stop | None = None
    start: Start = Start(1.0)
    broker_uptime_seconds: float | None = None
    """The master had run this long: a second kill."""

    def scaled(self, factor: float) -> FaultPlan:
        """Return the same fault with its times and counts multiplied."""
        stop = self.stop
        if stop is not None:
            seconds = None if stop.seconds is None else stop.seconds * factor
            stop = replace(stop, seconds=seconds, messages=max(1.0, stop.messages * factor))
        uptime = self.broker_uptime_seconds
        return replace(
            self,
            down_seconds=self.down_seconds * factor,
            stop=stop,
            start=replace(self.start, seconds=self.start.seconds * factor),
            broker_uptime_seconds=None if uptime is None else uptime * factor,
        )


_SWITCH_SECONDS: Final = 10.0
_JUST_AFTER: Final = 0.5

_ROWS: Final = (
    FaultPlan("kill", "master killed and back, consumers run on", "8, or 1+6+11"),
    FaultPlan(
        "kill-without-slave",
        "the same without a slave: consumers run on",
        "8, 9 or 1+11",
        slaves=0,
    ),
    FaultPlan(
        "restart-on-slave",
        "consumers restarted cleanly while only the slave is known",
        "5",
        stop=Stop("outage"),
    ),
    FaultPlan(
        "handover",
        "consumers stopped cleanly on the slave, started after the master's return",
        "1+2+3+6",
        stop=Stop("serving"),
        start=Start(5.0, after_return=True),
    ),
    FaultPlan(
        "restart-after-return",
        "consumers killed just after the master's return, before they commit to it",
        "1+2+3+6",
        stop=Stop("return", _JUST_AFTER, signal="KILL"),
    ),
    FaultPlan(
        "restart-without-slave",
        "the same without a slave",
        "1+2+3",
        slaves=0,
        stop=Stop("return", _JUST_AFTER, signal="KILL"),
    ),
    *(
        FaultPlan(
            f"switch-{policy.lower()}",
            f"planned switch with offsetPolicy {policy}, consumers killed before they commit again",
            "26" if policy == "None" else "2+3",
            down_seconds=_SWITCH_SECONDS,
            kills_master=False,
            offsets=policy,
            stop=Stop("return", _JUST_AFTER, signal="KILL"),
        )
        for policy in ("None", "WaitSync", "CopyMax")
    ),
    FaultPlan(
        "double-kill",
        "the returned master killed again within 8 s, consumers killed after its return",
        "25",
        down_seconds=_JUST_AFTER,
        stop=Stop("return", _JUST_AFTER, signal="KILL"),
        broker_uptime_seconds=8.0,
    ),
    FaultPlan(
        "consumer-crash",
        "consumers killed, brokers untouched",
        "2+3",
        down_seconds=0.0,
        kills_master=False,
        offsets="CopyMax",
        stop=Stop("outage", 0.0, signal="KILL"),
    ),
    FaultPlan("delayed", "delayed and retried messages alone, at a kill", "19"),
)

FAULTS: Final[Mapping[str, FaultPlan]] = MappingProxyType({row.name: row for row in _ROWS})
"""Faults by name."""

OFFSET_FREE: Final = frozenset({"delayed", "none"})
"""Faults that move no offset: at most the replay of delayed messages is counted."""


def find_fault(name: str) -> FaultPlan:
    """Return a fault. Raises ``ConfigError`` with the nearest known name."""
    fault = FAULTS.get(name)
    if fault is None:
        hint = near_or_all(nearest(name, FAULTS, cutoff=0.5), FAULTS)
        raise ConfigError("--fault", f'unknown "{name}"{hint}')
    return fault
