"""The fault catalogue: one row per fault that an experiment file may name.

A row says what the fault is called, which parameters ``with`` may hold, which action of
``failback.chaos.toolkit.actions`` injects it and which targets can do it. Parsing, generation and
``failback run --list`` read this table, so a further fault is a further row and its action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

MODES: Final = ("one", "all", "fixed", "fixed-percent", "random-max-percent")
"""How many of those that match are hit."""
RUNGS: Final = ("gone", "slave-serving", "accept", "registered", "slave-synced")
"""Instants of another fault that ``after`` may wait for, in the order in which they come."""

ParameterKind = Literal["seconds", "milliseconds", "ratio", "count", "choice", "rung", "flag"]
TargetKind = Literal["broker", "group", "both", "none"]


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
    ``rungs`` are those that a later fault can wait for, ``modes`` those of its target: a broker
    fault hits one broker. A kind without an ``action`` is made of others: see
    :mod:`failback.chaos.experiment.composites`.
    """

    code: str
    name: str
    action: str
    target: TargetKind
    title: str
    parameters: tuple[Parameter, ...] = ()
    lasts: str | None = None
    rungs: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("one",)
    supported_by: frozenset[str] = frozenset({"local", "kubernetes"})
    engines: frozenset[str] = frozenset({"failback", "apache"})

    def parameter(self, name: str) -> Parameter | None:
        return next((each for each in self.parameters if each.name == name), None)


_AFTER = Parameter("after", "rung", "after", default="")
_DOWN = Parameter("downSeconds", "seconds", "down_seconds")
_CONSUMER_SIGNAL = Parameter("consumerSignal", "choice", "signal", "KILL", ("KILL", "TERM"))
_RESTART = Parameter("restartAfterSeconds", "seconds", "restart_after_seconds", 1.0)

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
            _DOWN,
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
            _DOWN,
            _AFTER,
        ),
        lasts="downSeconds",
        rungs=RUNGS,
    ),
    FaultKind(
        code="F3",
        name="kill-then-restart-consumers",
        action="",
        target="both",
        title="F1, and all consumers restarted right after the broker accepts again",
        parameters=(
            _DOWN,
            Parameter("afterAcceptSeconds", "seconds", "at_seconds", 0.5),
            _CONSUMER_SIGNAL,
            _RESTART,
            _AFTER,
        ),
        lasts="downSeconds",
        rungs=RUNGS,
    ),
    FaultKind(
        code="F4",
        name="kill-and-restart-consumers-during",
        action="",
        target="both",
        title="F1, and all consumers restarted while the broker is down",
        parameters=(
            Parameter("downSeconds", "seconds", "down_seconds", 60.0),
            Parameter("consumerAtSeconds", "seconds", "at_seconds", 20.0),
            _CONSUMER_SIGNAL,
            _RESTART,
            _AFTER,
        ),
        lasts="downSeconds",
        rungs=RUNGS,
    ),
    FaultKind(
        code="F5",
        name="long-outage",
        action="long_outage",
        target="both",
        title="F1; the consumers end on the slave, new ones start after its table was overwritten",
        parameters=(
            Parameter("downSeconds", "seconds", "down_seconds", 300.0, always=True),
            Parameter("stopOwners", "flag", "stop_owners", True),
            Parameter("returnAfterStopSeconds", "seconds", "return_after_stop_seconds", 5.0),
            Parameter("startOwnersSeconds", "seconds", "start_owners_seconds", 60.0),
            Parameter("minServed", "count", "min_served", 100),
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
        rungs=("gone",),
        modes=MODES,
    ),
    FaultKind(
        code="F17",
        name="double-kill",
        action="",
        target="broker",
        title="F1 again and again, each gapSeconds after the broker accepts",
        parameters=(
            Parameter("gapSeconds", "seconds", "at_seconds", 8.0),
            Parameter("second", "choice", "second", "same", ("same", "slave")),
            Parameter("times", "count", "times", 2),
            _DOWN,
            _AFTER,
        ),
        lasts="downSeconds",
        rungs=RUNGS,
    ),
    FaultKind(
        code="F19",
        name="replace-offset-file",
        action="replace_offset_file",
        target="broker",
        title="F1, and another consumerOffset.json before the broker starts again",
        parameters=(
            Parameter(
                "content",
                "choice",
                "content",
                "older",
                ("older", "delete", "empty", "truncate"),
                always=True,
            ),
            Parameter("ageSeconds", "seconds", "age_seconds", 60.0),
            Parameter("bak", "choice", "bak", "same", ("same", "keep"), always=True),
            _DOWN,
            _AFTER,
        ),
        lasts="downSeconds",
        rungs=RUNGS,
        supported_by=frozenset({"local"}),
    ),
    FaultKind(
        code="F20",
        name="slow-handler",
        action="set_handler",
        target="group",
        title="handlers take longer, ask for retries or raise, for durationSeconds",
        parameters=(
            Parameter("delayMs", "milliseconds", "delay_ms", 0.0),
            Parameter("failRatio", "ratio", "fail_ratio", 0.0),
            Parameter("throwRatio", "ratio", "throw_ratio", 0.0),
            Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
            _AFTER,
        ),
        lasts="durationSeconds",
        modes=("all",),
    ),
    FaultKind(
        code="F21",
        name="unsubscribe",
        action="unsubscribe_consumers",
        target="group",
        title="members drop their subscription and subscribe again after durationSeconds",
        parameters=(
            Parameter("durationSeconds", "seconds", "duration_seconds", 60.0, always=True),
            _AFTER,
        ),
        lasts="durationSeconds",
        modes=("all",),
        rungs=("gone",),
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
