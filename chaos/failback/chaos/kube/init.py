"""What ``failback-init`` says inside a container, as values. Pure.

The init is PID 1 of every container of ours: it knows its one child, keeps it down while a hold
file exists, and has written how earlier children died. It ends with its child, so a death is read
from the container that was started afterwards; the records lie on a volume of the pod.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from failback.chaos.view import DeathRecord, ProcessState, Stamp

COMMAND: Final = "failback-init"
_DEAD_STATES: Final = "ZXx"
_STOPPED_STATES: Final = "Tt"


@dataclass(frozen=True, slots=True)
class Child:
    """The process that the init started; ``state`` is the kernel's letter."""

    pid: int
    ticks: int
    state: str

    @property
    def process_state(self) -> ProcessState:
        if self.state in _DEAD_STATES:
            return ProcessState.GONE
        return ProcessState.STOPPED if self.state in _STOPPED_STATES else ProcessState.RUNNING


@dataclass(frozen=True, slots=True)
class Death:
    """A death as the init recorded it, on the node's clocks."""

    pid: int
    ticks: int
    signal: int | None
    code: int | None
    stamp: Stamp
    sent: bool
    """Whether the init knows who sent the signal that it died of."""


@dataclass(frozen=True, slots=True)
class InitStatus:
    """One answer of ``failback-init status --json``."""

    child: Child | None
    held: bool
    deaths: tuple[Death, ...] = ()

    def death_of(self, pid: int, ticks: int) -> Death | None:
        return next((each for each in self.deaths if (each.pid, each.ticks) == (pid, ticks)), None)


def parse_status(text: bytes) -> InitStatus:
    """Read one answer. ``ValueError`` when it is none."""
    said = _object(text)
    child = said.get("child")
    return InitStatus(
        child=Child(int(child["pid"]), int(child["ticks"]), str(child["state"])) if child else None,
        held=bool(said["held"]),
        deaths=tuple(_death(each) for each in said["deaths"] if not _is_a_step(each)),
    )


def parse_receipt(text: bytes) -> tuple[Stamp, Stamp]:
    """The instants before and after the kernel took a signal, on the node's clocks."""
    said = _object(text)
    return _stamp(said["issued"]), _stamp(said["returned"])


def to_harness(stamp: Stamp, at: Stamp, *, same_host: bool) -> Stamp:
    """Express an instant of a node on the harness's clocks.

    On one host they are the same. Elsewhere the wall clocks stand for each other, and an instant
    never lies after ``at``, when it was heard of.
    """
    if same_host:
        return stamp
    age = max(0, at.wall_ns - stamp.wall_ns)
    return Stamp(at.wall_ns - age, at.mono_ns - age)


def death_record(death: Death, seen: Stamp) -> DeathRecord:
    """A death for the ladder. A signal that nobody gave to the init was somebody else's."""
    doubt = ""
    if death.signal is not None and not death.sent:
        doubt = f"nobody asked the init for signal {death.signal}: out of memory, or another sender"
    return DeathRecord(death.pid, death.ticks, death.signal, death.code, seen, doubt)


def _is_a_step(said: Mapping[str, Any]) -> bool:
    """Init containers share the run directory; their ends are no broker's death."""
    return list(said.get("command") or ())[1:2] == ["tools"]


def _death(said: Mapping[str, Any]) -> Death:
    signum, code = said.get("signal"), said.get("code")
    return Death(
        int(said["pid"]),
        int(said["ticks"]),
        None if signum is None else int(signum),
        None if code is None else int(code),
        _stamp(said),
        bool(said.get("sent_by")),
    )


def _stamp(said: Mapping[str, Any]) -> Stamp:
    return Stamp(int(said["wall_ns"]), int(said["mono_ns"]))


def _object(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(str(error)) from error
    if not isinstance(said, dict):
        raise ValueError("not an object")
    return said
