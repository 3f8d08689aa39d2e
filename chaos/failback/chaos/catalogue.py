"""The fault catalogue: one row per fault that an experiment file may name.

A row says what the fault is called, which parameters ``with`` may hold, which action of
``failback.chaos.actions`` injects it and which targets can do it. Parsing, generation and
``failback run --list`` read this table, so a further fault is a further row and its action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

RUNGS: Final = ("gone", "accept", "registered", "slave-serving")
"""Instants of another fault that ``after`` may wait for, in the order in which they come."""

ParameterKind = Literal["seconds", "count", "choice", "rung", "flag"]
TargetKind = Literal["broker", "group", "none"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One key of ``with``. ``argument`` is the keyword of the action that takes it.

    A parameter whose ``always`` is set is written into the generated experiment even when the file
    leaves it out, so that a journal can be read without this table.
    """

    name: str
    kind: ParameterKind
    argument: str
    default: object = None
    choices: tuple[str, ...] = ()
    always: bool = False


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One row of the catalogue.

    ``lasts`` names the parameter that holds the length of the effect, for the overlap check.
    ``rungs`` are those that a later fault can wait for.
    """

    code: str
    name: str
    action: str
    target: TargetKind
    title: str
    parameters: tuple[Parameter, ...] = ()
    lasts: str | None = None
    rungs: tuple[str, ...] = ()
    supported_by: frozenset[str] = frozenset({"local", "kubernetes"})
    engines: frozenset[str] = frozenset({"failback", "apache"})

    def parameter(self, name: str) -> Parameter | None:
        return next((each for each in self.parameters if each.name == name), None)


_AFTER = Parameter("after", "rung", "after", default="")

_ROWS: Final = (
    FaultKind(
        code="F0",
        name="none",
        action="do_nothing",
        target="none",
        title="nothing happens: proves the instrument",
        parameters=(
            Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
        ),
        lasts="durationSeconds",
    ),
    FaultKind(
        code="F1",
        name="kill",
        action="kill_broker",
        target="broker",
        title="SIGKILL of a broker, held down for downSeconds",
        parameters=(
            Parameter("downSeconds", "seconds", "down_seconds"),
            _AFTER,
        ),
        lasts="downSeconds",
        rungs=RUNGS,
    ),
    FaultKind(
        code="F2",
        name="terminate",
        action="terminate_broker",
        target="broker",
        title="SIGTERM of a broker and time to shut down in order",
        parameters=(
            Parameter("graceSeconds", "seconds", "grace_seconds", 60.0),
            Parameter("restart", "flag", "restart", True),
            Parameter("downSeconds", "seconds", "down_seconds"),
            _AFTER,
        ),
        lasts="downSeconds",
        rungs=RUNGS,
    ),
    FaultKind(
        code="F6",
        name="pause",
        action="pause_broker",
        target="broker",
        title="SIGSTOP of a broker, SIGCONT after durationSeconds",
        parameters=(
            Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
            _AFTER,
        ),
        lasts="durationSeconds",
        rungs=("gone", "accept", "registered", "slave-serving"),
    ),
    FaultKind(
        code="F15",
        name="kill-consumer",
        action="restart_consumers",
        target="group",
        title="consumer processes end by KILL or TERM and start again",
        parameters=(
            Parameter("signal", "choice", "signal", "KILL", ("KILL", "TERM"), always=True),
            Parameter("rolling", "flag", "rolling", False),
            _AFTER,
            Parameter("minServed", "count", "min_served", 100),
            Parameter("restartAfter", "rung", "restart_after", ""),
            Parameter("restartAfterSeconds", "seconds", "restart_after_seconds", 5.0, always=True),
        ),
        lasts="restartAfterSeconds",
    ),
)

CATALOGUE: Final[Mapping[str, FaultKind]] = MappingProxyType({row.name: row for row in _ROWS})
"""Fault kinds by the name that ``faults[].fault`` uses."""


def parse_rung(text: str) -> tuple[str, str]:
    """Split ``"accept:f1"`` into rung and fault id.

    Raises:
        ValueError: The form is wrong or the rung unknown; the message says which.
    """
    rung, colon, fid = text.partition(":")
    if not colon or not fid:
        raise ValueError(f'must be RUNG:FAULT-ID, for example "accept:f1", not "{text}"')
    if rung not in RUNGS:
        raise ValueError(f'unknown rung "{rung}", one of {", ".join(RUNGS)}')
    return rung, fid
